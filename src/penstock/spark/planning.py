"""From what is wanted to the tasks that read it.

Two ways to read: along the log, past records that are not wanted, or along the units of queues, from record
to record. The first reads every byte of a stretch of the log once; the second only what is wanted, but every
record with a cost of its own, and every queue by itself. The cheaper one is taken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock._native.units import find_record, first_nonzero
from penstock.errors import UsageError
from penstock.spark.bounds import StoreBounds
from penstock.spark.keysearch import search_index
from penstock.spark.options import ReadOptions
from penstock.spark.places import Place, open_places
from penstock.spark.queuefiles import QueueFileSizes
from penstock.spark.ranges import QueueRange
from penstock.spark.wanted import FOREVER, QueueExtent, Wanted, wanted_of
from penstock.store.directory import StoreDirectory
from penstock.store.fault import FaultList
from penstock.store.scan import LogScanner
from penstock.store.sizes import QueueFile

log = logging.getLogger("penstock.spark")

Align = Callable[[int, int], int | None]
"""Takes an offset of the log and a distance: the start of a record no further from it than that, or None."""

RECORDS_AT_ONCE = 10_000
"""Places of single records that one task gets."""
SEEK_COST = 16 << 10
"""What jumping to a record costs, in bytes of log that could be read along in that time."""

_PROBE = 256 << 10
_TAIL = 8 << 20
_QUEUES_ASKED = 3
_GUESSES = 8


@dataclass(frozen=True)
class LogSplit:
    """Records that START at physical offsets [begin, end); the last one is read to its own end.

    ``aligned``: a record starts at ``begin``. Otherwise the reader looks for the first one, as the split
    before finds its last. Behind ``limit`` (None: unknown) nothing belongs to the log.
    """

    place: Place
    begin: int
    end: int
    limit: int | None = None
    aligned: bool = False

    @property
    def size(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class Split:
    """What one task reads: a stretch of the log, units of queues, or single records."""

    place: Place
    wanted: Wanted
    log: LogSplit | None = None
    ranges: tuple[QueueRange, ...] = ()
    offsets: tuple[int, ...] = ()
    queue_files: QueueFileSizes | None = None


def log_end(place: Place) -> int:
    """Where the log ends: behind the last whole record that belongs to it.

    With an owner at work that is the highest place a queue points to. Otherwise the tail is walked from the
    last record that a queue knows, or from one that lies near the end of the last file. Damage at the very
    end counts as part of the log when somebody was told that it is stored: who reads it has to meet it.
    """
    directory = place.directory
    files = directory.log_files
    if not files:
        return 0
    if directory.is_live:
        return max(directory.queued_end, files[0].begin)
    for begin in _tail_starts(place, directory):
        faults = FaultList()
        scanner = LogScanner(directory, begin=begin, on_fault=faults)
        read = sum(run.end for run in scanner.runs())
        if not read and begin > files[0].begin:
            continue
        damaged = any((fault.physical_offset or 0) >= scanner.end for fault in faults.faults)
        return files[-1].begin + files[-1].size if damaged and scanner.tail else scanner.end
    return files[-1].begin


def _tail_starts(place: Place, directory: StoreDirectory) -> Iterable[int]:
    files = directory.log_files
    if place.has_queues:
        last = _last_queued(place)
        if last is not None and files[0].begin <= last < files[-1].begin + files[-1].size:
            yield last
    if files:
        yield _near_end(directory, files[-1])
    for file in reversed(files):
        yield file.begin


def _near_end(directory: StoreDirectory, file: QueueFile) -> int:
    """A record not far from where a file stops to hold anything; its start if that is near enough.

    Behind the last record lie zeros. A body of zeros may look like them: then it is a record further up.
    """
    low, high = 0, file.size
    while high - low > _PROBE:
        middle = (low + high) // 2
        if first_nonzero(directory.storage.pread(file.path, middle, _PROBE)) >= 0:
            low = middle
        else:
            high = middle
    begin = high - _TAIL
    if begin <= 0:
        return file.begin
    view = directory.storage.pread(file.path, begin, _TAIL)
    found, _ = find_record(view, 0, file.begin + begin, 0)
    return file.begin + begin + int(found) if found >= 0 else file.begin


def _last_queued(place: Place) -> int | None:
    """Start of the last record that a queue points to."""
    bounds = StoreBounds(place)
    try:
        last = None
        for (topic, queue_id), end in bounds.latest().items():
            unit = bounds.unit(topic, queue_id, end - 1)
            if unit is not None and (last is None or unit[0] > last):
                last = unit[0]
        return last
    finally:
        bounds.close()


def log_splits(
    place: Place,
    *,
    split_bytes: int,
    begin: int | None = None,
    end: int | None = None,
    limit: int | None = None,
    align: Align | None = None,
) -> list[LogSplit]:
    """The log of a place in pieces of about ``split_bytes``, in order, no byte of it twice or left out.

    ``begin`` and ``end`` narrow it to records that start in [begin, end). ``limit`` is where the log is known
    to end or go on; without it the end is looked for. No piece reaches over two files, but into a hole where
    one is missing: reading it reports the hole. ``align`` knows starts of records to cut at.
    """
    files = place.log_files
    if not files:
        return []
    limit = log_end(place) if limit is None else limit
    position = files[0].begin if begin is None else begin
    stop = limit if end is None else min(end, limit)
    made: list[LogSplit] = []
    for file in files:
        file_end = min(file.begin + file.size, stop)
        if file_end <= position:
            continue
        count = max(1, round((file_end - position) / split_bytes))
        step = -(-(file_end - position) // count)
        cuts = range(position, file_end, step)
        starts = [align(cut, step // 4 if cut > position else 0) if align else None for cut in cuts]
        starts = [start if start is not None and start < file_end else None for start in starts]
        begins = [start if start is not None else cut for cut, start in zip(cuts, starts, strict=True)]
        for low, high, start in zip(begins, [*begins[1:], file_end], starts, strict=True):
            if low < high:
                made.append(LogSplit(place, low, high, limit, aligned=start is not None))
        position = file_end
    if position < stop:  # the last files are gone
        made.append(LogSplit(place, position, stop, limit))
    return made


def record_finder(bounds: StoreBounds, extents: Sequence[_Extent]) -> Align:
    """Starts of records that the queues know, so that a task need not look for its first one.

    A guess or two into a large queue is near enough. What a unit points to is looked at before it is
    believed: of a damaged queue nothing is taken.
    """
    largest = sorted(extents, key=lambda extent: -extent.count)[:_QUEUES_ASKED]
    firsts = {extent.low for extent in extents}

    def find(cut: int, distance: int) -> int | None:
        found = (
            [cut] if cut in firsts else [_record_near(bounds, extent, cut, distance) for extent in largest]
        )
        return next((at for at in found if at is not None and bounds.store.lookup(at) is not None), None)

    return find


def _record_near(bounds: StoreBounds, extent: _Extent, cut: int, distance: int) -> int | None:
    """Place of a record of a queue near an offset of the log; None if some guesses do not meet one."""
    low, high, low_at, high_at = extent.range.start, extent.range.end, extent.low, extent.high
    for _ in range(_GUESSES):
        if low >= high or not low_at <= cut <= high_at:
            break
        guess = min(low + (high - low) * (cut - low_at) // max(1, high_at - low_at), high - 1)
        unit = bounds.unit(extent.range.topic, extent.range.queue_id, guess)
        if unit is None:
            break
        if abs(unit[0] - cut) <= distance:
            return unit[0]
        if unit[0] < cut:
            low, low_at = guess + 1, unit[0]
        else:
            high, high_at = guess, unit[0]
    return None


def plan(
    options: ReadOptions,
    ranges: Sequence[QueueRange],
    *,
    columns: Sequence[str] = (),
    bounds: StoreBounds | None = None,
) -> list[Split]:
    """The tasks that read these queue ranges of the one store that the options name."""
    if bounds is None:
        places = open_places(options.path)
        if len(places) != 1:
            raise UsageError(
                f"the path names {len(places)} stores", hint="queue ranges belong to one store directory"
            )
        bounds = StoreBounds(places[0])
    return plan_queues(bounds, options, ranges)


def plan_places(options: ReadOptions) -> list[Split]:
    """The tasks of a batch read: everything the options ask for, of every place."""
    splits: list[Split] = []
    for place in open_places(options.path):
        _refuse_cut_files(place, options)
        if options.view == "commitlog" or not place.has_queues:
            splits += plan_log(place, options)
            continue
        bounds = StoreBounds(place)
        try:
            splits += plan_queues(bounds, options, bounds.resolve(options))
        finally:
            bounds.close()
    return splits


def _refuse_cut_files(place: Place, options: ReadOptions) -> None:
    """The queues of such a store no longer tell of what is missing at its end: nobody would notice."""
    for fault in place.cut_files:
        if options.badRecords == "fail":
            raise fault
        log.warning("%s", fault)


def plan_log(place: Place, options: ReadOptions) -> list[Split]:
    """Tasks that walk the whole log and judge each record by what it says of itself."""
    if options.startingOffsets == "latest" or options.endingOffsets == "earliest":
        return []
    split_bytes = _split_bytes(options, sum(file.size for file in place.log_files))
    wanted = _wanted_of_log(place, options)
    if not place.has_queues:
        return [Split(place, wanted, log=piece) for piece in log_splits(place, split_bytes=split_bytes)]
    bounds = StoreBounds(place)
    try:
        queues = sorted(bounds.store.extents().items(), key=lambda item: item[1][0] - item[1][1])
        parts = [QueueRange(*key, *offsets) for key, offsets in queues[:_QUEUES_ASKED]]
        extents = [extent for extent in (_extent(bounds, part) for part in parts) if extent is not None]
        pieces = log_splits(place, split_bytes=split_bytes, align=record_finder(bounds, extents))
    finally:
        bounds.close()
    return [Split(place, wanted, log=piece) for piece in pieces]


def _wanted_of_log(place: Place, options: ReadOptions) -> Wanted:
    looked_up = (
        options.startingGroup is not None
        or options.startingOffsetsByTimestamp is not None
        or options.endingOffsetsByTimestamp is not None
    )
    given = isinstance(options.startingOffsets, dict) or isinstance(options.endingOffsets, dict)
    if not looked_up and not (given and place.has_queues):
        return wanted_of(options)
    bounds = StoreBounds(place)
    try:
        ranges = bounds.resolve(options)
    finally:
        bounds.close()
    return wanted_of(options, queues=tuple((*part, 0, FOREVER) for part in ranges))


def _split_bytes(options: ReadOptions, whole: int) -> int:
    if not options.minPartitions:
        return options.splitBytes
    return max(1, min(options.splitBytes, -(-whole // options.minPartitions)))


@dataclass(frozen=True)
class _Extent:
    """Where the records of a queue range lie."""

    range: QueueRange
    low: int
    high: int
    light: bool

    @property
    def queue(self) -> QueueExtent:
        return (*self.range, self.low, self.high)

    @property
    def count(self) -> int:
        return self.range.end - self.range.start


def plan_queues(bounds: StoreBounds, options: ReadOptions, ranges: Sequence[QueueRange]) -> list[Split]:
    """Tasks for queue ranges: along the log, or along the units where few of its bytes are wanted."""
    found = [extent for extent in (_extent(bounds, part) for part in ranges) if extent is not None]
    # Records of a light queue have another topic in the log: only the units know them.
    splits = _unit_splits(bounds, options, [extent for extent in found if extent.light])
    extents = [extent for extent in found if not extent.light]
    if not extents:
        return splits
    low, high = min(e.low for e in extents), max(e.high for e in extents)
    if options.keys and (indexed := _key_splits(bounds, options, extents, low, high)) is not None:
        return splits + indexed
    # Jumping alone may cost more than reading all: then no size needs to be known.
    by_units = sum(min(e.high - e.low, e.count * SEEK_COST) for e in extents) < high - low and (
        sum(min(e.high - e.low, _cost_by_units(bounds, e)) for e in extents) < high - low
    )
    if by_units:
        return splits + _unit_splits(bounds, options, extents)
    return splits + _log_splits(bounds, options, extents, low, high)


def _key_splits(
    bounds: StoreBounds, options: ReadOptions, extents: Sequence[_Extent], low: int, high: int
) -> list[Split] | None:
    """Records that the index knows, and a scan where it does not; None without an index."""
    topics = {extent.range.topic for extent in extents}
    found = search_index(bounds.place, topics, options.keys or (), low, high)
    if found is None:
        return None
    splits: list[Split] = []
    if found.offsets:
        wanted = wanted_of(options, queues=tuple(extent.queue for extent in extents))
        for first in range(0, len(found.offsets), RECORDS_AT_ONCE):
            offsets = found.offsets[first : first + RECORDS_AT_ONCE]
            splits.append(Split(bounds.place, wanted, offsets=offsets))
    for begin, end in found.unknown:
        splits += _log_splits(bounds, options, extents, begin, end)
    return splits


def _extent(bounds: StoreBounds, part: QueueRange) -> _Extent | None:
    """Blank units at the ends are stepped over; None if there is nothing else."""
    first = _unit_from(bounds, part, range(part.start, part.end))
    last = _unit_from(bounds, part, range(part.end - 1, part.start - 1, -1))
    if first is None or last is None:
        return None
    message = bounds.store.lookup(first[0])
    light = message is not None and message.topic != part.topic
    return _Extent(part, first[0], last[0] + last[1], light)


def _unit_from(bounds: StoreBounds, part: QueueRange, offsets: range) -> tuple[int, int] | None:
    """Place and size of the first message at these offsets."""
    for offset in offsets:
        unit = bounds.unit(part.topic, part.queue_id, offset)
        if unit is not None:
            return unit[0], unit[1]
    return None


def _mean_size(bounds: StoreBounds, part: QueueRange) -> float:
    """An even sample is near enough: sizes decide only how to read."""
    step = max(1, (part.end - part.start) // 16)
    units = [bounds.unit(part.topic, part.queue_id, offset) for offset in range(part.start, part.end, step)]
    sizes = [unit[1] for unit in units if unit is not None]
    return sum(sizes) / max(1, len(sizes))


def _cost_by_units(bounds: StoreBounds, extent: _Extent) -> int:
    return int(extent.count * (_mean_size(bounds, extent.range) + SEEK_COST))


def _log_splits(
    bounds: StoreBounds, options: ReadOptions, extents: Sequence[_Extent], low: int, high: int
) -> list[Split]:
    # What queues point to is part of the log: no need to look for its end.
    limit = max(extent.high for extent in extents)
    size = _split_bytes(options, high - low)
    align = record_finder(bounds, extents)
    pieces = log_splits(bounds.place, split_bytes=size, begin=low, end=high, limit=limit, align=align)
    splits = []
    for piece in pieces:
        inside = [e for e in extents if e.low < piece.end and e.high > piece.begin]
        if inside:
            queues = tuple(e.queue for e in inside)
            splits.append(Split(bounds.place, wanted_of(options, queues=queues), log=piece))
    return splits


def _unit_splits(bounds: StoreBounds, options: ReadOptions, extents: Sequence[_Extent]) -> list[Split]:
    """Ranges cut and packed so that each task reads about as much."""
    costs = [_cost_by_units(bounds, extent) for extent in extents]
    budget = max(1, _split_bytes(options, sum(costs)))
    packed: list[list[QueueRange]] = [[]]
    room = budget
    for extent, cost in zip(extents, costs, strict=True):
        part, each = extent.range, max(1, cost // max(1, extent.count))
        start = part.start
        while start < part.end:
            take = min(part.end - start, max(1, room // each))
            packed[-1].append(part._replace(start=start, end=start + take))
            start += take
            room -= take * each
            if room < each:
                packed.append([])
                room = budget
    wanted = Wanted(tags=options.tags, keys=options.keys)
    sizes = QueueFileSizes.of(bounds.store.config)
    return [
        Split(bounds.place, wanted, ranges=tuple(ranges), queue_files=sizes) for ranges in packed if ranges
    ]
