"""How far a stream is behind its store: in offsets, in bytes of the log, in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.clock import Clock, SystemClock
from penstock.spark.offsets import LostRange, Places, QueueKey


@dataclass(frozen=True, slots=True)
class QueueLag:
    """One queue. ``bytes`` and ``seconds`` are None when the store could not be asked."""

    topic: str
    queue_id: int
    offset: int
    """The next one to read."""
    latest: int
    """The end of the queue when the batch was planned."""
    bytes: int | None = None
    """Size in the log of the messages not yet read."""
    seconds: float | None = None
    """Age of the oldest message not yet read; 0 when there is none."""

    @property
    def offsets(self) -> int:
        """Messages not yet read."""
        return max(0, self.latest - self.offset)


@dataclass(frozen=True, slots=True)
class LagReport:
    """What one batch of one query left to read."""

    query_id: str
    name: str | None
    batch_id: int
    queues: tuple[QueueLag, ...]
    lost: tuple[LostRange, ...] = ()
    """Ranges that were removed before this batch could read them (failOnDataLoss=false)."""
    fault: str | None = None
    """Why there are no bytes and seconds, None when there are."""

    @property
    def offsets(self) -> int:
        return sum(queue.offsets for queue in self.queues)

    @property
    def bytes(self) -> int | None:
        known = [queue.bytes for queue in self.queues]
        return None if None in known else sum(size for size in known if size is not None)

    @property
    def seconds(self) -> float | None:
        """Age of the oldest message not yet read."""
        known = [queue.seconds for queue in self.queues]
        return None if None in known else max((age for age in known if age is not None), default=0.0)

    def of(self, topic: str) -> LagReport:
        """The part of one topic; at all brokers, unless it is named with one (``orders@broker-a``)."""
        return LagReport(
            self.query_id,
            self.name,
            self.batch_id,
            tuple(queue for queue in self.queues if _is_of(queue.topic, topic)),
            tuple(lost for lost in self.lost if _is_of(lost[0], topic)),
            self.fault,
        )

    @property
    def topics(self) -> list[str]:
        return sorted({queue.topic for queue in self.queues})

    def as_dict(self) -> dict[str, Any]:
        """For JSON: totals, per topic and per queue."""
        return {
            "query": self.query_id,
            "name": self.name,
            "batch": self.batch_id,
            **_totals(self),
            "topics": {topic: _totals(self.of(topic)) for topic in self.topics},
            "queues": [
                {
                    "topic": queue.topic,
                    "queueId": queue.queue_id,
                    "offset": queue.offset,
                    "latest": queue.latest,
                    "offsets": queue.offsets,
                    "bytes": queue.bytes,
                    "seconds": queue.seconds,
                }
                for queue in self.queues
            ],
            "lost": [list(lost) for lost in self.lost],
            "fault": self.fault,
        }


def _is_of(name: str, topic: str) -> bool:
    return topic in (name, name.partition("@")[0])


def _totals(report: LagReport) -> dict[str, Any]:
    return {"offsets": report.offsets, "bytes": report.bytes, "seconds": report.seconds}


class Measured(Protocol):
    """What the meter asks a store."""

    def bytes_between(self, topic: str, queue_id: int, begin: int, end: int) -> int: ...
    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None: ...


class LagMeter:
    """Bytes and seconds of one query's lag. Reads each queue unit when it comes and when it goes."""

    def __init__(self, store: Measured, clock: Clock | None = None) -> None:
        self._store = store
        self._clock: Clock = clock or SystemClock()
        self._known: dict[QueueKey, tuple[int, int, int]] = {}

    def measure(self, places: Places, latest: Places) -> tuple[QueueLag, ...]:
        """The lag of every queue that there is something to say of."""
        return tuple(
            QueueLag(*key, offset, end, self._bytes(key, offset, end), self._seconds(key, offset, end))
            for key, offset, end in joined(places, latest)
        )

    def _bytes(self, key: QueueKey, begin: int, end: int) -> int:
        if begin >= end:
            self._known.pop(key, None)
            return 0
        known = self._known.get(key)
        if known is not None and known[0] <= begin <= known[1] <= end:
            low, high, size = known
            size += self._store.bytes_between(*key, high, end) - self._store.bytes_between(*key, low, begin)
        else:
            size = self._store.bytes_between(*key, begin, end)
        self._known[key] = (begin, end, size)
        return size

    def _seconds(self, key: QueueKey, begin: int, end: int) -> float | None:
        if begin >= end:
            return 0.0
        stored = self._store.store_time(*key, begin)
        return None if stored is None else max(0, self._clock.now_ms() - stored) / 1000


def joined(places: Places, latest: Places) -> Iterable[tuple[QueueKey, int, int]]:
    """Key, place and end of each queue, sorted. One not known to the batch is unread."""
    for key in sorted({*places, *latest}):
        here = places.get(key, 0)
        yield key, here, max(here, latest.get(key, here))
