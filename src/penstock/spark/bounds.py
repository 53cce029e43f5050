"""Which messages a store has: offsets of its queues, by number, by time and by consumer group. Reads only."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from penstock.errors import DataLost, NotAStore, UsageError
from penstock.spark.options import EARLIEST, LATEST, QueueOffsets, ReadOptions
from penstock.spark.places import Place
from penstock.store.readonly import ReadOnlyStore

QueueKey: TypeAlias = tuple[str, int]
Extents: TypeAlias = dict[QueueKey, tuple[int, int]]
"""First offset and end of queues."""

LOOK_FOR_QUEUES = 1.0
"""Seconds between two listings of the queue folders."""

_UNITS_AT_ONCE = 4096
_BLANK = 0x7FFFFFFF
_SIMPLE = struct.Struct(">qiq")
_BATCH = struct.Struct(">qiqqqhi4x")


class QueueRange(NamedTuple):
    """Queue offsets [start, end) of one queue."""

    topic: str
    queue_id: int
    start: int
    end: int


class StoreBounds:
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

    def resolve(self, options: ReadOptions) -> list[QueueRange]:
        """The ranges that the options ask for, of queues that are there now.

        Raises DataLost for offsets that are no longer there, unless ``failOnDataLoss`` is off, and UsageError
        for topics and queues that never were.
        """
        extents = {
            key: low_high for key, low_high in self.store.extents().items() if options.wants_queue(*key)
        }
        self._check_names(options, extents)
        starts = self.starts(options, extents)
        ends = self.ends(options, extents)
        lost: list[tuple[str, int, int, int]] = []
        ranges: list[QueueRange] = []
        for key in sorted(extents):
            low, high = extents[key]
            start, end = starts[key], ends[key]
            if start < low:
                lost.append((*key, start, min(low, end)))
            if start > high or end > high:
                lost.append((*key, high, max(start, end)))
            start, end = min(max(start, low), high), min(max(end, low), high)
            if start < end:
                ranges.append(QueueRange(*key, start, end))
        if lost and options.failOnDataLoss:
            raise DataLost(
                "offsets that were asked for are not there",
                lost,
                file=self.place.uri,
                hint="they were removed, or are yet to come; failOnDataLoss=false reads what is there",
            )
        return ranges

    def starts(self, options: ReadOptions, extents: Extents) -> dict[QueueKey, int]:
        """Where the options begin, for each of the queues; not yet held against what is there."""
        if options.startingTimestamp is not None:
            times = dict.fromkeys(extents, options.startingTimestamp)
            return self._by_time(times, extents, options.startingOffsetsByTimestampStrategy)
        if options.startingOffsetsByTimestamp is not None:
            given = _chosen(options.startingOffsetsByTimestamp, extents, "startingOffsetsByTimestamp")
            found = self._by_time(given, extents, options.startingOffsetsByTimestampStrategy)
            return {key: found.get(key, low) for key, (low, _) in extents.items()}
        if options.startingGroup is not None:
            return self._by_group(options.startingGroup, extents)
        return _numbers(options.startingOffsets or "earliest", extents, EARLIEST, "startingOffsets")

    def ends(self, options: ReadOptions, extents: Extents) -> dict[QueueKey, int]:
        """Where the options end, exclusive."""
        if options.endingTimestamp is not None:
            return self._by_time(dict.fromkeys(extents, options.endingTimestamp), extents, "latest")
        if options.endingOffsetsByTimestamp is not None:
            given = _chosen(options.endingOffsetsByTimestamp, extents, "endingOffsetsByTimestamp")
            found = self._by_time(given, extents, "latest")
            return {key: found.get(key, high) for key, (_, high) in extents.items()}
        return _numbers(options.endingOffsets or "latest", extents, LATEST, "endingOffsets")

    def _by_time(self, times: dict[QueueKey, int], extents: Extents, strategy: str) -> dict[QueueKey, int]:
        found: dict[QueueKey, int] = {}
        for key, when in times.items():
            found[key] = self.offset_by_time(*key, when)
            if found[key] >= extents[key][1] and strategy == "error":
                raise UsageError(
                    f"queue {key[1]} of {key[0]} has no message stored at {when} or later",
                    hint="startingOffsetsByTimestampStrategy=latest reads nothing of such a queue",
                )
        return found

    def _by_group(self, group: str, extents: Extents) -> dict[QueueKey, int]:
        table = self.store.consumer_offsets
        known = {key: table.query(group, *key) for key in extents}
        if extents and all(offset < 0 for offset in known.values()):
            groups = sorted({name for topic, _ in extents for name in table.groups(topic)})
            raise UsageError(
                f"the group {group!r} has no offset in any of these queues",
                hint=f"groups with offsets here: {', '.join(groups) or 'none'}",
            )
        # A queue that the group has not reached yet is read from its first message.
        return {key: known[key] if known[key] >= 0 else low for key, (low, _) in extents.items()}

    def _check_names(self, options: ReadOptions, extents: Extents) -> None:
        topics = {topic for topic, _ in extents}
        missing = [topic for topic in options.topics or () if topic not in topics]
        if missing and options.failOnDataLoss:
            raise UsageError(
                f"there is no message of {', '.join(missing)}",
                hint=f"topics here: {_some(self.store.topics())}; failOnDataLoss=false goes on without them",
            )


def _some(names: list[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more


def _chosen(given: QueueOffsets, extents: Extents, option: str) -> dict[QueueKey, int]:
    chosen = {(topic, queue): value for topic, queues in given.items() for queue, value in queues.items()}
    unknown = sorted(key for key in chosen if key not in extents)
    if unknown:
        names = ", ".join(f"{topic}/{queue}" for topic, queue in unknown)
        raise UsageError(
            f"{option} names queues that are not read: {names}",
            hint=f"queues: {_some([f'{topic}/{queue}' for topic, queue in sorted(extents)])}",
        )
    return chosen


def _numbers(given: str | QueueOffsets, extents: Extents, missing: int, option: str) -> dict[QueueKey, int]:
    """An offset for every queue; queues that are not named get ``missing``."""
    if given == "earliest":
        return {key: low for key, (low, _) in extents.items()}
    if isinstance(given, str):
        return {key: high for key, (_, high) in extents.items()}
    chosen = _chosen(given, extents, option)
    made: dict[QueueKey, int] = {}
    for key, (low, high) in extents.items():
        value = chosen.get(key, missing)
        made[key] = low if value == EARLIEST else high if value == LATEST else value
    return made
