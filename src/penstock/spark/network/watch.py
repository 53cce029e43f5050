"""The queues at brokers that a stream reads, looked at again and again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from penstock._native.units import record_header
from penstock.spark.network.access import Access
from penstock.spark.network.bounds import BrokerBounds, wants
from penstock.spark.network.planning import access_of, plan_ranges
from penstock.spark.network.queuename import queue_of
from penstock.spark.network.reading import BrokerSplit
from penstock.spark.offsets import Places, QueueKey
from penstock.spark.options import BROKERS, ReadOptions
from penstock.spark.ranges import Extents, QueueRange

LOOK = 0.1
"""Seconds between two questions: Spark asks a hundred times a second."""
LOOK_FOR_TOPICS = 1.0
_SHARE = 20
"""Looking takes no more than one part in so many of the time."""
_UNITS = 500


class BrokerWatch:
    """What a stream knows of its brokers: as it was at the last ``refresh``."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self.bounds = BrokerBounds(access_of(options))
        self._topics: list[str] = []
        self._extents: Extents = {}
        # When a queue was last in a route: a broker that starts again is in none for a moment.
        self._seen: dict[QueueKey, float] = {}
        self._look_again = 0.0
        self._look_for_topics = 0.0
        self._looked = False

    @classmethod
    def open(cls, uri: str) -> BrokerWatch:
        """All queues of the cluster that a stream's ``uri`` names."""
        return cls(ReadOptions(namesrv=uri.removeprefix(BROKERS)))

    @property
    def access(self) -> Access:
        return self.bounds.access

    @property
    def uri(self) -> str:
        return self.bounds.uri

    def refresh(self, *, thoroughly: bool = False) -> bool:
        """Ask the brokers, unless that was a moment ago; False when nothing changed."""
        begun = time.monotonic()
        if self._looked and not thoroughly and begun < self._look_again:
            return False
        if thoroughly or begun >= self._look_for_topics:
            self._topics = self.bounds.wanted_topics(self._options)
            self._look_for_topics = begun + max(LOOK_FOR_TOPICS, _SHARE * (time.monotonic() - begun))
        brokers = self.bounds.brokers
        found = brokers.run(brokers.extents(self._topics))
        extents = {key: ends for key, ends in found.items() if wants(self._options, key)}
        now = time.monotonic()
        self._seen.update(dict.fromkeys(extents, now))
        for key, ends in self._extents.items():
            if key not in extents and now - self._seen[key] < self.access.retry_timeout:
                extents[key] = ends
        self._look_again = now + max(LOOK, _SHARE * (now - begun))
        changed = not self._looked or extents != self._extents
        self._looked, self._extents = True, extents
        return changed

    def plan(self, ranges: Sequence[QueueRange], columns: Sequence[str]) -> list[BrokerSplit]:
        """The tasks that read these ranges."""
        return plan_ranges(self.bounds, self._options, ranges)

    def earliest(self) -> Places:
        return {key: low for key, (low, _) in self._extents.items()}

    def latest(self) -> Places:
        return {key: high for key, (_, high) in self._extents.items()}

    def starts(self) -> Places:
        """Where the options begin, in every queue there is."""
        return self.bounds.starts(self._options, self._extents)

    def units(self, key: QueueKey, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Queue offset, place in the log and size of the messages between two offsets."""
        brokers, queue = self.bounds.brokers, queue_of(key)
        while begin < end:
            units = brokers.run(brokers.units(queue, begin, min(end - begin, _UNITS)))
            units = [unit for unit in units if unit[0] < end]
            if not units:
                return
            yield from units
            begin = units[-1][0] + 1

    def first_place(self, key: QueueKey, offset: int) -> int:
        """When the message of an offset was stored: places in the logs of two brokers can't be compared."""
        return self.store_time(*key, offset) or 0

    def bytes_between(self, topic: str, queue_id: int, begin: int, end: int) -> int:
        """About the size of the messages between two offsets: brokers tell sizes only one by one."""
        return round((end - begin) * self.bounds.mean_size({(topic, queue_id): (begin, end)}))

    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """When the message of an offset was stored, in milliseconds; None when it is gone."""
        brokers = self.bounds.brokers
        answer = brokers.run(brokers.pull(queue_of((topic, queue_id)), offset, 1))
        header = record_header(answer.body) if answer.body else None
        return header[5] if header is not None else None
