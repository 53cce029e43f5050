"""Which messages brokers have: the offsets of their queues, and what the options choose of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.errors import UsageError
from penstock.message.topic import LMQ_PREFIX
from penstock.spark.network.access import Access
from penstock.spark.network.brokers import Brokers
from penstock.spark.network.queuename import queue_of, topic_of
from penstock.spark.options import ReadOptions
from penstock.spark.ranges import Extents, QueueKey, RangeFinder

_SAMPLES = 4
_SAMPLE = 16


class BrokerBounds(RangeFinder):
    """The queues of a cluster. Every call asks the brokers, as they are now."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._mean = 0.0

    @property
    def brokers(self) -> Brokers:
        return Brokers.of(self.access)

    @property
    def uri(self) -> str:
        return str(self.access)

    def extents(self, options: ReadOptions) -> Extents:
        brokers = self.brokers
        found = brokers.run(brokers.extents(self.wanted_topics(options)))
        return {key: ends for key, ends in found.items() if wants(options, key)}

    def wanted_topics(self, options: ReadOptions) -> list[str]:
        """Topics by their names: given, or those there are that fit."""
        if options.topics is not None:
            return list(dict.fromkeys(topic_of(name) for name in options.topics))
        return [topic for topic in self.topic_names() if options.wants_topic(topic)]

    def offsets_by_time(self, times: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        return self.brokers.run(self.brokers.offsets_by_time(times))

    def group_offsets(self, group: str, keys: Iterable[QueueKey]) -> dict[QueueKey, int]:
        return self.brokers.run(self.brokers.group_offsets(group, keys))

    def group_names(self, topics: Iterable[str]) -> list[str]:
        plain = dict.fromkeys(topic_of(topic) for topic in topics)
        return self.brokers.run(self.brokers.group_names(plain))

    def topic_names(self) -> list[str]:
        return self.brokers.run(self.brokers.topic_names())

    def has_topic(self, topic: str, extents: Extents) -> bool:
        return any(topic in (name, topic_of(name)) for name, _ in extents)

    def key_of(self, topic: str, queue_id: int, extents: Extents) -> QueueKey:
        if "@" in topic:
            return topic, queue_id
        found = [key for key in extents if key[1] == queue_id and topic_of(key[0]) == topic]
        if len(found) > 1:
            names = ", ".join(name for name, _ in sorted(found))
            raise UsageError(f"several brokers have queue {queue_id} of {topic}", hint=f"say which: {names}")
        return found[0] if found else (topic, queue_id)

    def mean_size(self, extents: Mapping[QueueKey, tuple[int, int]]) -> float:
        """About how long the records of some ranges are, from a few of them. Asked once."""
        if not self._mean:
            longest = sorted(extents.items(), key=lambda item: item[1][0] - item[1][1])[:_SAMPLES]
            self._mean = self.brokers.run(self._sample(longest))
        return self._mean or 1024.0

    async def _sample(self, spans: list[tuple[QueueKey, tuple[int, int]]]) -> float:
        taken = size = 0
        for key, (begin, end) in spans:
            middle = begin + (end - begin) // 2
            answer = await self.brokers.pull(queue_of(key), middle, min(_SAMPLE, end - middle))
            if answer.body:
                taken += max(1, min(answer.next_offset, end) - middle)
                size += len(answer.body)
        return size / taken if taken else 0.0


def wants(options: ReadOptions, key: QueueKey) -> bool:
    """Whether a queue is asked for; queues may be named with their broker."""
    name, queue_id = key
    topic = topic_of(name)
    if topic.startswith(LMQ_PREFIX):
        raise UsageError(
            f"{topic} is a light queue: its messages do not tell their place in it over the network",
            hint="read the topic that they were sent to, or the store with path",
        )
    if options.assign is not None:
        return any(queue_id in options.assign.get(each, ()) for each in (name, topic))
    return name in options.subscribe or options.wants_topic(topic)
