"""Which messages a store has: the offsets and units of its queues. Reads only."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Mapping

from penstock.errors import NotAStore
from penstock.spark.options import ReadOptions
from penstock.spark.places import Place
from penstock.spark.ranges import Extents, QueueKey, RangeFinder
from penstock.store.readonly import ReadOnlyStore

LOOK_FOR_QUEUES = 1.0
"""Seconds between two listings of the queue folders."""

_UNITS_AT_ONCE = 4096
_BLANK = 0x7FFFFFFF
_SIMPLE = struct.Struct(">qiq")
_BATCH = struct.Struct(">qiqqqhi4x")


class StoreBounds(RangeFinder):
    """The queues of one store as they are at the last ``refresh``, which is cheap enough for every 10 ms."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._store: ReadOnlyStore | None = None
        self._look_again = 0.0

    @property
    def store(self) -> ReadOnlyStore:
        """The store, opened for reading. Raises NotAStore for segments without one around them."""
        if self._store is None:
            if not self.place.has_queues:
                raise NotAStore(
                    "there are no consume queues here",
                    file=self.place.uri,
                    hint="queue offsets, groups and streams need a whole store directory, not segments alone",
                )
            self._store = ReadOnlyStore(self.place.root, storage=self.place.storage)
            self._look_again = time.monotonic() + LOOK_FOR_QUEUES
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def refresh(self, *, queues: bool | None = None) -> bool:
        """Take in what the writer did; False if that is nothing. New queues are looked for once a second, or
        now with ``queues``."""
        store = self.store
        begun = time.monotonic()
        if queues or (queues is None and begun >= self._look_again):
            store.refresh()
            store.consumer_offsets.load()
            # Thousands of queues take a while to look at: not more than a twentieth of the time.
            done = time.monotonic()
            self._look_again = done + max(LOOK_FOR_QUEUES, 20 * (done - begun))
            return True
        return store.poll()

    # -- offsets -----------------------------------------------------------------------------------

    def queues(self) -> list[QueueKey]:
        """Queues that hold or held messages, sorted."""
        return sorted(self.store.extents())

    def earliest(self) -> dict[QueueKey, int]:
        """The first offset that can be read, of every queue."""
        return {key: low for key, (low, _) in self.store.extents().items()}

    def latest(self) -> dict[QueueKey, int]:
        """One past the last offset that can be read, of every queue."""
        return {key: high for key, (_, high) in self.store.extents().items()}

    def unit(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code of a queue offset, None where there is no message."""
        found = self.store.queue_unit(topic, queue_id, offset)
        return None if found is None or (found[0] == 0 and found[1] == _BLANK) else found

    def units(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Queue offset, physical offset and size of the messages of [begin, end); size 0 where there is none.

        The record of an inner batch comes once, with the offset of its first message.
        """
        while begin < end:
            data, size = self.store.units(topic, queue_id, begin, min(_UNITS_AT_ONCE, end - begin))
            if not data:
                return
            if size == _SIMPLE.size:
                for physical, length, _ in _SIMPLE.iter_unpack(data):
                    yield begin, physical, 0 if length == _BLANK else length
                    begin += 1
                continue
            for physical, length, _, _, base, count, _ in _BATCH.iter_unpack(data):
                if base >= end:
                    return
                yield base, physical, length
                begin = base + count

    def bytes_between(self, topic: str, queue_id: int, begin: int, end: int) -> int:
        """Bytes of the records of the queue offsets [begin, end)."""
        return sum(size for _, _, size in self.units(topic, queue_id, begin, end))

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The first offset that was stored at a time or later; the end if none was."""
        return self.store.offset_by_time(topic, queue_id, timestamp, "lower")

    # -- what the options ask for ------------------------------------------------------------------

    @property
    def uri(self) -> str:
        return self.place.uri

    def extents(self, options: ReadOptions) -> Extents:
        return {key: ends for key, ends in self.store.extents().items() if options.wants_queue(*key)}

    def offsets_by_time(self, times: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        return {key: self.offset_by_time(*key, when) for key, when in times.items()}

    def group_offsets(self, group: str, keys: Iterable[QueueKey]) -> dict[QueueKey, int]:
        return {key: self.store.consumer_offsets.query(group, *key) for key in keys}

    def group_names(self, topics: Iterable[str]) -> list[str]:
        return sorted({name for topic in topics for name in self.store.consumer_offsets.groups(topic)})

    def topic_names(self) -> list[str]:
        return self.store.topics()
