"""The SQL filters of consumer groups, and the bitmaps that tell beforehand which messages they want.

``config/consumerFilter.json`` is RocketMQ's. A bitmap is made when a message is dispatched: it has the bits
of every group whose filter is true of the message. A pull passes over messages whose bitmap lacks the
group's bits; what bitmaps cannot tell, because they are older than the filter, the filter itself does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.broker.bloom import BloomFilter
from penstock.broker.consumers import Consumers
from penstock.broker.statefile import StateFile
from penstock.broker.subscription import Subscription, subscription
from penstock.clock import Clock
from penstock.errors import InvalidFilter
from penstock.filters import SQL92
from penstock.format.extunit import ExtUnit
from penstock.format.record import RecordFields

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


@dataclass(slots=True)
class FilterData:
    """The filter of one group for one topic."""

    group: str
    subscription: Subscription
    bits: tuple[int, ...]
    version: int
    born_ms: int
    dead_ms: int
    alive_from: int
    """Where in the log the messages begin whose bitmaps know this filter: of this run of the broker."""

    @property
    def is_dead(self) -> bool:
        """Whether nobody uses it now. It is kept, and in the bitmaps, for when its group comes back."""
        return self.dead_ms >= self.born_ms


class ConsumerFilters:
    """All of them. Lives on the loop; the file follows.

    ``reached`` tells how far the log is dispatched: messages behind it get bitmaps with what is known now.
    """

    def __init__(
        self, clock: Clock, bloom: BloomFilter, keep_dead_ms: int, reached: Callable[[], int]
    ) -> None:
        self._clock = clock
        self.bloom = bloom
        self._keep_dead_ms = keep_dead_ms
        self._reached = reached
        self._topics: dict[str, dict[str, FilterData]] = {}
        self.file: StateFile | None = None

    def __iter__(self) -> Iterator[FilterData]:
        return (data for groups in list(self._topics.values()) for data in list(groups.values()))

    def find(self, topic: str, group: str) -> FilterData | None:
        return self._topics.get(topic, {}).get(group)

    # -- who filters --------------------------------------------------------------------------------------

    def register(self, group: str, wanted: Subscription) -> FilterData:
        """A group pulls with this subscription. InvalidFilter when its expression is none."""
        groups = self._topics.get(wanted.topic)
        known = groups.get(group) if groups is not None else None
        if known is not None and known.subscription is wanted and not known.is_dead:
            return known
        try:
            _ = wanted.filter
        except InvalidFilter:
            if known is not None:
                self._remove(known)
            raise
        if known is not None and known.subscription.expression == wanted.expression:
            known.subscription = wanted
            known.version = wanted.version
            known.dead_ms = 0
        else:
            known = FilterData(
                group,
                wanted,
                self.bloom.positions(f"{group}#{wanted.topic}"),
                wanted.version,
                self._clock.now_ms(),
                0,
                self._reached(),
            )
            self._topics.setdefault(wanted.topic, {})[group] = known
        self._changed()
        return known

    def _remove(self, data: FilterData) -> None:
        groups = self._topics[data.subscription.topic]
        del groups[data.group]
        if not groups:
            del self._topics[data.subscription.topic]
        self._changed()

    def refresh(self, consumers: Consumers) -> None:
        """Now and then: see who is gone, and forget who has been gone for long."""
        now = self._clock.now_ms()
        for data in self:
            group = consumers.find(data.group)
            wanted = group.subscriptions.get(data.subscription.topic) if group is not None else None
            alive = wanted is not None and wanted.expression == data.subscription.expression
            if not alive and not data.is_dead:
                data.dead_ms = max(now, data.born_ms)
                self._changed()
            elif not alive and now - data.dead_ms >= self._keep_dead_ms:
                self._remove(data)

    # -- bitmaps ------------------------------------------------------------------------------------------

    def bitmap(self, fields: RecordFields) -> bytes | None:
        """The bitmap of a record that is dispatched; None when nobody filters its topic."""
        groups = self._topics.get(fields.topic)
        if not groups:
            return None
        bits = bytearray(self.bloom.bit_count // 8)
        for data in groups.values():
            if data.subscription.filter.matches_bytes(fields.properties_bytes):
                for position in data.bits:
                    bits[position >> 3] |= 1 << (position & 7)
        return bytes(bits)

    def may_match(self, data: FilterData, physical_offset: int, unit: ExtUnit) -> bool:
        """Whether the filter may be true of the message at a place of the log, by what its bitmap says."""
        if physical_offset < data.alive_from or len(unit.bitmap) * 8 != self.bloom.bit_count:
            return True
        return all(unit.bitmap[position >> 3] >> (position & 7) & 1 for position in data.bits)

    # -- the file -----------------------------------------------------------------------------------------

    def content(self) -> dict[str, Any]:
        """What the file is to hold."""
        return {
            "filterDataByTopic": {
                topic: {
                    "groupFilterData": {group: self._to_json(data) for group, data in groups.items()},
                    "topic": topic,
                }
                for topic, groups in self._topics.items()
            }
        }

    def _to_json(self, data: FilterData) -> dict[str, Any]:
        return {
            "bloomFilterData": {"bitNum": self.bloom.bit_count, "bitPos": list(data.bits)},
            "bornTime": data.born_ms,
            "clientVersion": data.version,
            "consumerGroup": data.group,
            "dead": data.is_dead,
            "deadTime": data.dead_ms,
            "expression": data.subscription.expression,
            "expressionType": data.subscription.expression_type,
            "topic": data.subscription.topic,
        }

    def load(self, content: Any) -> None:
        """Take over what the file holds. ValueError when it is not RocketMQ's.

        All are dead until their groups come. Entries of another width of bitmap, and those whose expression
        is none, are left out.
        """
        for topic, group, given in _entries(content):
            data = self._from_json(topic, group, given)
            if data is not None:
                self._topics.setdefault(topic, {})[group] = data

    def _from_json(self, topic: str, group: str, given: dict[str, Any]) -> FilterData | None:
        bits = self.bloom.positions(f"{group}#{topic}")
        known = given.get("bloomFilterData") == {"bitNum": self.bloom.bit_count, "bitPos": list(bits)}
        if not known or given.get("expressionType") != SQL92:
            return None
        born, dead, version = (given.get(name) for name in ("bornTime", "deadTime", "clientVersion"))
        expression = given.get("expression")
        if not (
            isinstance(expression, str)
            and isinstance(born, int)
            and isinstance(dead, int)
            and isinstance(version, int)
        ):
            raise ValueError(f"the filter of {group} for {topic} is not whole")
        wanted = subscription(topic, expression, SQL92, version)
        try:
            _ = wanted.filter
        except InvalidFilter:
            return None
        dead = dead or max(born, self._clock.now_ms() - 30_000)
        return FilterData(group, wanted, bits, version, born, dead, self._reached())

    def _changed(self) -> None:
        if self.file is not None:
            self.file.changed()


def consumer_filters(broker: Broker) -> ConsumerFilters:
    """A broker's, with bitmaps for its store if it is to make them."""
    config, store = broker.config, broker.store
    bloom = BloomFilter(config.expect_consumer_num_use_filter, config.max_error_rate_of_bloom_filter)
    # The end of the log, not of what is dispatched: there a bitmap may be made already for a unit that a
    # failing disk has not taken yet.
    made = ConsumerFilters(
        broker.clock, bloom, config.filter_data_clean_time_span_ms, lambda: store.appended_where
    )
    if config.enable_calc_filter_bit_map:
        store.use_filter_bitmaps(made.bitmap)
    return made


def _entries(content: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Topic, group and filter of everything in a file's content."""
    if content is None:
        return
    topics = content.get("filterDataByTopic") if isinstance(content, dict) else None
    if not isinstance(topics, dict):
        raise ValueError("no filters by topic")
    for topic, each in topics.items():
        groups = each.get("groupFilterData") if isinstance(each, dict) else None
        if not isinstance(groups, dict):
            raise ValueError(f"no filters by group for {topic}")
        for group, given in groups.items():
            if isinstance(given, dict):
                yield str(topic), str(group), given
