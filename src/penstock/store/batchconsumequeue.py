"""One queue of a topic with batches: a 46-byte unit per record (format section 3.5)."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import PurePath

from penstock._native.mapping import Mapping
from penstock._native.queue import Queue
from penstock.errors import StoreError
from penstock.files.filecache import FileCache
from penstock.files.mappedfile import file_name
from penstock.files.storage import Entry, Storage
from penstock.format.batchunit import BATCH_UNIT_SIZE, BatchUnit, decode_batch_unit, encode_batch_unit
from penstock.store.consumequeue import UNIT as SIMPLE_UNIT
from penstock.store.queuefolder import numbered_files, whole_files

UNIT = BATCH_UNIT_SIZE
_PIECE = UNIT * 2000
_MAX_BATCH = 0x7FFF

log = logging.getLogger("penstock.store")

Place = tuple[int, int]
"""First byte offset of a file and the number of a unit in it."""


class BatchConsumeQueue:
    """The units of one batch queue. One thread writes; readers see what was published last.

    Offsets are those of messages: a unit covers ``batch_size`` of them. ``native`` keeps them times 20, as a
    simple queue does, so that its users need not know which kind they have.
    """

    def __init__(
        self,
        storage: Storage,
        folder: str,
        topic: str,
        queue_id: int,
        file_size: int,
        *,
        writable: bool = True,
        cache: FileCache | None = None,
    ) -> None:
        if file_size < UNIT:
            raise StoreError(f"a batch queue file holds at least one unit of {UNIT} bytes", file=folder)
        self.storage = storage
        self.folder = folder
        self.file_size = file_size
        self.writable = writable
        self.native = Queue(topic, queue_id, file_size)
        self.native.special = True
        self._own_cache = cache is None
        self._cache = cache if cache is not None else FileCache(storage, 2, writable=writable)
        self._per_file = file_size // UNIT
        # Files and the byte offset behind the last unit: replaced together, so that readers see what fits.
        self._extent: tuple[tuple[int, ...], int] = ((), 0)
        self._last: BatchUnit | None = None
        self._unsynced: set[int] = set()
        self.cut_off: list[Entry] = []
        """Files that loading left out: one before them is missing or empty."""
        self._mapped: tuple[int, Mapping] | None = None
        self._guard = threading.Lock()

    # -- what it is --------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        return str(self.native.topic)

    @property
    def queue_id(self) -> int:
        return int(self.native.queue_id)

    @property
    def min_offset(self) -> int:
        """Offset of the first message whose record is in the log."""
        return int(self.native.min_logic) // SIMPLE_UNIT

    @property
    def max_offset(self) -> int:
        """One past the last message."""
        return int(self.native.max_logic) // SIMPLE_UNIT

    @property
    def max_physical_offset(self) -> int:
        """End of the last record that has a unit, -1 if none has."""
        return int(self.native.max_physical)

    @property
    def last_start_offset(self) -> int:
        """Where the last record that has a unit begins, -1 if none has. Records up to it were put already."""
        return self._last.physical_offset if self._last is not None else -1

    @property
    def files(self) -> tuple[int, ...]:
        """First byte offsets of the files."""
        return self._extent[0]

    def path_of(self, file_from: int) -> str:
        return str(PurePath(self.folder) / file_name(file_from))

    # -- loading and recovery ----------------------------------------------------------------------

    def load(self) -> None:
        """Take in the files of the folder; nothing is known of their content before ``recover``."""
        self._unmap()
        entries = numbered_files(self.storage, self.folder)
        files = tuple(whole_files(self.folder, entries, self.file_size))
        self.cut_off = entries[len(files) :]
        self._extent = (files, files[0] if files else 0)

    def recover(self) -> None:
        """Find the end of the units, from the third-last file on; when writable, erase what is behind it."""
        files = self._extent[0]
        end, last = self._scan(files[-3:])
        if last is None and len(files) > 3:
            end, last = self._scan(files)
        kept = tuple(file_from for file_from in files if file_from <= end) if files else ()
        self._extent = (kept, end)
        if self.writable:
            for file_from in files[len(kept) :]:
                self._remove(file_from)
            self._erase_behind(end)
        first = self._read_place((kept[0], 0)) if last is not None else None
        self._publish(first.base_offset if first is not None else 0, last)

    def _scan(self, files: tuple[int, ...]) -> tuple[int, BatchUnit | None]:
        """End of the valid units of some files that follow each other, and the last one."""
        end, last = files[0] if files else 0, None
        for file_from in files:
            count, last = self._scan_file(file_from, last)
            end = file_from + count * UNIT
            if count < self._per_file:
                break
        return end, last

    def _scan_file(self, file_from: int, last: BatchUnit | None) -> tuple[int, BatchUnit | None]:
        """How many units at the start of a file are valid and go on behind ``last``, and the last of them."""
        count, limit = 0, self._per_file * UNIT
        with self._cache.use(self.path_of(file_from), self.file_size) as file:
            while count < self._per_file:
                data = file.read(count * UNIT, min(_PIECE, limit - count * UNIT))
                for position in range(0, len(data) - UNIT + 1, UNIT):
                    unit = decode_batch_unit(data, position)
                    # A torn unit may look valid; one that goes back cannot be ours.
                    if not unit.is_valid or (last is not None and not _follows(last, unit)):
                        return count, last
                    last = unit
                    count += 1
                if len(data) < UNIT:
                    break
        return count, last

    def _publish(self, minimum: int, last: BatchUnit | None) -> None:
        native = self.native
        self._last = last
        native.max_physical = last.physical_offset + last.size if last is not None else -1
        native.min_logic = minimum * SIMPLE_UNIT
        native.max_logic = (last.next_offset if last is not None else minimum) * SIMPLE_UNIT

    def truncate_dirty(self, physical: int) -> int:
        """Drop units of records at or behind ``physical`` and erase them; how many."""
        place = self._first(lambda unit: unit.physical_offset >= physical)
        if place is None:
            return 0
        files = self._extent[0]
        dropped = sum(self._count(f) for f in files if f >= place[0]) - place[1]
        first = self._read_place((files[0], 0))
        last = self._before(place)
        logic = place[0] + place[1] * UNIT
        kept = tuple(f for f in files if f <= place[0])
        minimum = min(self.min_offset, last.next_offset if last is not None else first.base_offset)
        self._publish(minimum, last)
        self._extent = (kept, logic)
        self._unmap()
        for file_from in reversed(files[len(kept) :]):
            self._remove(file_from)
        self._erase_behind(logic)
        return dropped

    def _erase_behind(self, logic: int) -> None:
        files = self._extent[0]
        if not files or logic >= files[-1] + self._per_file * UNIT:
            return
        with self._cache.use(self.path_of(files[-1]), self.file_size) as file:
            if any(file.read(logic - files[-1], UNIT)):
                file.zero(logic - files[-1], self.file_size)
                file.sync()

    def correct_min_offset(self, min_physical: int) -> None:
        """Skip messages whose records were deleted from the head of the log."""
        if self._last is None:
            return
        place = self._first(lambda unit: unit.physical_offset >= min_physical)
        if place is None:
            minimum = self.max_offset
        else:
            before = self._before(place)
            minimum = before.next_offset if before is not None else self._read_place(place).base_offset
        self.native.min_logic = minimum * SIMPLE_UNIT

    # -- writing -----------------------------------------------------------------------------------

    def put(
        self,
        physical: int,
        size: int,
        tags_code: int,
        store_timestamp: int,
        base_offset: int,
        batch_size: int,
    ) -> bool:
        """Append the unit of one record. True if it is there now, put by this call or before it.

        False, and nothing done, when it cannot be a unit of this queue. OSError when the disk refuses;
        nothing changed then, and it can be put again.
        """
        last = self._last
        if last is not None and physical <= last.physical_offset:
            return True
        unit = BatchUnit(physical, size, tags_code, store_timestamp, base_offset, batch_size)
        if (
            not unit.is_valid
            or batch_size > _MAX_BATCH
            or (last is not None and base_offset < last.next_offset)
        ):
            log.error(
                "%s: a unit for offset %d at %d does not fit behind %s",
                self.folder,
                base_offset,
                physical,
                last,
            )
            return False
        files, end = self._extent
        if not files:
            self.storage.makedirs(self.folder, later=True)
            file_from = end = 0
        elif end - files[-1] >= self._per_file * UNIT:
            file_from = end = files[-1] + self.file_size
        else:
            file_from = files[-1]
        with self._cache.use(self.path_of(file_from), self.file_size, create=True) as file:
            file.write(end - file_from, encode_batch_unit(unit))
        self._unsynced.add(file_from)
        self.native.unsynced = True
        self._extent = (files if file_from in files else (*files, file_from), end + UNIT)
        minimum = self.min_offset if last is not None else base_offset
        self._publish(minimum, unit)
        return True

    def flush(self) -> int:
        """Everything written so far is on disk; how many files that took."""
        if not self.native.unsynced:
            return 0
        # Cleared first: a unit that comes while we sync sets it again, and its file stays in the set.
        self.native.unsynced = False
        files = sorted(self._unsynced)
        try:
            for file_from in files:
                with self._cache.use(self.path_of(file_from), self.file_size) as file:
                    file.sync()
        except OSError:
            self.native.unsynced = True
            raise
        last = self._extent[0][-1:]
        self._unsynced -= {file_from for file_from in files if file_from not in last}
        return len(files)

    # -- finding -----------------------------------------------------------------------------------

    def _count(self, file_from: int) -> int:
        files, end = self._extent
        return (end - file_from) // UNIT if files and file_from == files[-1] else self._per_file

    def _read_place(self, place: Place) -> BatchUnit:
        with self._cache.use(self.path_of(place[0]), self.file_size) as file:
            return decode_batch_unit(file.read(place[1] * UNIT, UNIT))

    def _before(self, place: Place) -> BatchUnit | None:
        """The unit in front of a place."""
        if place[1] > 0:
            return self._read_place((place[0], place[1] - 1))
        earlier = [file_from for file_from in self._extent[0] if file_from < place[0]]
        return self._read_place((earlier[-1], self._per_file - 1)) if earlier else None

    def _first(self, wanted: Callable[[BatchUnit], bool]) -> Place | None:
        """The first unit that is ``wanted``, as are all behind it; None if none is."""
        files = [file_from for file_from in self._extent[0] if self._count(file_from) > 0]
        number = bisect_left(
            files,
            True,
            key=lambda file_from: wanted(self._read_place((file_from, self._count(file_from) - 1))),
        )
        if number == len(files):
            return None
        file_from = files[number]
        found = bisect_left(
            range(self._count(file_from)),
            True,
            key=lambda index: wanted(self._read_place((file_from, index))),
        )
        return (file_from, found)

    def _place_of(self, queue_offset: int) -> Place | None:
        """The unit that holds a message; inside a gap the one behind it, so that a reader gets on."""
        if not self.min_offset <= queue_offset < self.max_offset:
            return None
        try:
            return self._first(lambda unit: unit.next_offset > queue_offset)
        except FileNotFoundError:  # expired while we looked
            return None

    # -- reading -----------------------------------------------------------------------------------

    def spans(self, queue_offset: int, count: int) -> list[tuple[int, int]]:
        """Physical offset and size of the records of so many messages at most, the first to the last."""
        spans: list[tuple[int, int]] = []
        for number in range(count):
            unit = self.unit(queue_offset + number)
            if unit is None:
                break
            if not spans or spans[-1][0] != unit.physical_offset:
                spans.append((unit.physical_offset, unit.size))
        return spans

    def unit(self, queue_offset: int) -> BatchUnit | None:
        """The unit of the record that holds a message, or None outside of the queue."""
        place = self._place_of(queue_offset)
        unit = self._read_place(place) if place is not None else None
        return unit if unit is not None and unit.base_offset <= queue_offset else None

    def units_from(self, queue_offset: int) -> memoryview | None:
        """Units from the one that holds ``queue_offset`` to the end of its file or of the queue, where they
        lie. None outside of the queue."""
        place = self._place_of(queue_offset)
        if place is None:
            return None
        with self._guard:
            mapped = self._mapped
            if mapped is None or mapped[0] != place[0]:
                try:
                    with self._cache.use(self.path_of(place[0]), self.file_size) as file:
                        fresh = (place[0], file.map())
                except FileNotFoundError:
                    return None
                if mapped is not None:
                    mapped[1].close()
                mapped = self._mapped = fresh
            return memoryview(mapped[1])[place[1] * UNIT : self._count(place[0]) * UNIT]

    def _unmap(self) -> None:
        with self._guard:
            mapped, self._mapped = self._mapped, None
            if mapped is not None:
                mapped[1].close()

    def iterate(self, queue_offset: int) -> Iterator[BatchUnit]:
        """Units from the one that holds ``queue_offset`` on, over all files, to the end as it is now."""
        place = self._place_of(max(queue_offset, self.min_offset))
        if place is None:
            return
        files, end = self._extent
        for file_from in [f for f in files if f >= place[0]]:
            first = place[1] if file_from == place[0] else 0
            stop = (
                min(self._per_file, (end - file_from) // UNIT) if file_from == files[-1] else self._per_file
            )
            with self._cache.use(self.path_of(file_from), self.file_size) as file:
                data = file.read(first * UNIT, (stop - first) * UNIT)
            for position in range(0, len(data) - UNIT + 1, UNIT):
                yield decode_batch_unit(data, position)

    def roll_next_file(self, queue_offset: int) -> int:
        """The first queue offset of the file behind the one that holds ``queue_offset``."""
        place = self._place_of(queue_offset)
        later = [f for f in self._extent[0] if place is not None and f > place[0] and self._count(f) > 0]
        return self._read_place((later[0], 0)).base_offset if later else self.max_offset

    def offset_by_time(
        self, timestamp: int, boundary: str, store_time: Callable[[int, int], int], min_physical: int
    ) -> int:
        """The queue offset for a store time, by the times in the units themselves.

        Between the units of one file this is RocketMQ's own search: with the upper boundary it can name the
        record after the wanted one, and behind the last record it stays at that.
        """
        offset = self._search_time(timestamp, boundary.lower() == "lower")
        return max(self.min_offset, min(offset, self.max_offset))

    def _search_time(self, timestamp: int, lower: bool) -> int:
        files = [file_from for file_from in self._extent[0] if self._count(file_from) > 0]
        if not files:
            return -1
        chosen = files[0]
        for file_from in reversed(files):
            if self._read_place((file_from, 0)).store_timestamp <= timestamp:
                chosen = file_from
                break
        left, right = 0, self._count(chosen) - 1
        last = self._read_place((chosen, right))
        if timestamp >= last.store_timestamp:
            return last.base_offset
        while left <= right:
            middle = (left + right) // 2
            unit = self._read_place((chosen, middle))
            if middle == right:
                return unit.base_offset if unit.store_timestamp >= timestamp else -1
            if middle == left:
                if unit.store_timestamp >= timestamp:
                    return unit.base_offset
                left = middle + 1
            elif lower:
                left, right = (middle + 1, right) if unit.store_timestamp < timestamp else (left, middle)
            else:
                left, right = (middle, right) if unit.store_timestamp <= timestamp else (left, middle - 1)
        return -1

    # -- removing ----------------------------------------------------------------------------------

    def delete_expired(self, min_physical: int) -> int:
        """Remove files all of whose units point before ``min_physical``, never the last; how many."""
        count = 0
        while len(self._extent[0]) > 1:
            files, end = self._extent
            if self._read_place((files[0], self._per_file - 1)).physical_offset >= min_physical:
                break
            # The minimum first: a reader must not look for what is about to go.
            head = self._read_place((files[1], 0))
            if head.is_valid:
                self.native.min_logic = max(self.native.min_logic, head.base_offset * SIMPLE_UNIT)
            self._extent = (files[1:], end)
            if self._mapped is not None and self._mapped[0] == files[0]:
                self._unmap()
            self._remove(files[0])
            count += 1
        return count

    def _remove(self, file_from: int) -> None:
        path = self.path_of(file_from)
        self._cache.forget(path)
        self.storage.unlink(path)
        self._unsynced.discard(file_from)

    def destroy(self) -> None:
        """Remove all files and the folder; the queue is empty then."""
        self._unmap()
        files = self._extent[0]
        self._extent = ((), 0)
        self._publish(0, None)
        for file_from in reversed(files):
            self._remove(file_from)
        try:
            self.storage.rmdir(self.folder)
        except OSError:
            pass  # other people's files are in it: they stay

    def detach(self) -> None:
        """Let go of open files; they are opened again when needed."""
        if self._own_cache:
            self._cache.close()

    def close(self) -> None:
        self._unmap()
        self.detach()


def _follows(last: BatchUnit, unit: BatchUnit) -> bool:
    return unit.physical_offset > last.physical_offset and unit.base_offset >= last.next_offset
