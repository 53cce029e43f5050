"""One (topic, queue id): fixed units that say where in the log each message lies (format section 9)."""

from __future__ import annotations

import struct
from bisect import bisect_left

from penstock._native.units import count_before, first_at, scan_units
from penstock.files.filecache import FileCache
from penstock.files.storage import Entry, SparseFile, Storage
from penstock.store.consumequeueunits import PIECE, UNIT, ConsumeQueueUnits, Unit, unit_struct
from penstock.store.queuefolder import is_hole, numbered_files, whole_files

__all__ = ["BLANK_UNIT", "FILE", "FULL", "GAP", "OK", "UNIT", "ConsumeQueue"]

BLANK_UNIT = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
"""Fills a place that has no record: before the first unit of a queue, or where records were lost."""

OK, FULL, FILE, GAP = range(4)
"""Answers of the native queue: see ``_native.queue``."""


class ConsumeQueue(ConsumeQueueUnits):
    """A queue that is loaded, written, cut and removed. Writing goes through ``native``, from one thread at a
    time.

    Files are sparse and written by position; readers see what ``max_offset`` covers.
    """

    def __init__(
        self, storage: Storage, folder: str, topic: str, queue_id: int, file_size: int, cache: FileCache
    ) -> None:
        super().__init__(storage, folder, topic, queue_id, file_size, cache)
        self._attached: SparseFile | None = None
        self._unsynced: set[int] = set()
        self._head: Unit | None = None
        """The first unit of the first file, if recovery saw it and nothing has changed it since."""
        self.cut_off: list[Entry] = []
        """Files that loading left out: one before them is missing or empty."""

    # -- loading and recovery ----------------------------------------------------------------------

    def load(self) -> None:
        """Take in the files of the folder; nothing is known of their content before ``recover``."""
        entries = numbered_files(self.storage, self.folder)
        self._files = whole_files(self.folder, entries, self.file_size)
        self.cut_off = entries[len(self._files) :]
        self._head = None

    def recover(self) -> None:
        """Find the end of the units, from the third-last file on (section 9.5)."""
        native = self.native
        native.max_physical = -1
        if not self._files:
            native.min_logic = native.max_logic = 0
            return
        native.min_logic = self._files[0]
        end = self._files[0]
        for file_from in self._files[-3:]:
            valid, physical = self._scan(file_from)
            end = file_from + valid
            if physical >= 0:
                native.max_physical = physical
            if valid < self.file_size:
                break
        native.max_logic = end
        if native.max_physical < 0:
            native.max_physical = self._last_record_end(end)

    def _scan(self, file_from: int) -> tuple[int, int]:
        """Bytes of valid units at the start of a file, and the end of the last one's record."""
        position, last, piece = 0, -1, UNIT * 200
        with self._cache.use(self.path_of(file_from), self.file_size) as file:
            while position < self.file_size:
                data = file.read(position, min(piece, self.file_size - position))
                if not data:
                    break
                count, end, _ = scan_units(data)
                if end >= 0:
                    last = end
                if position == 0 and count and file_from == self._files[0]:
                    self._head = Unit(file_from // UNIT, *unit_struct.unpack_from(data))
                position += count * UNIT
                if count * UNIT < len(data):
                    break
                piece = min(piece * 4, UNIT * 50_000)
        return position, last

    def has_grown(self) -> bool:
        """Whether a look at the files would find another end than the last one did: one small read."""
        logic = self.native.max_logic
        try:
            data = self.read(logic, UNIT)
        except FileNotFoundError:
            return True  # it shrank: somebody removed the file
        if not data and logic and logic % self.file_size == 0:
            return self.storage.exists(self.path_of(logic))  # another file may have been begun
        return len(data) == UNIT and unit_struct.unpack(data)[1] > 0

    def truncate_dirty(self, physical: int) -> int:
        """Drop units of records at or behind ``physical`` (section 9.6) and erase them; how many.

        RocketMQ leaves the bytes; here they go, or the next opening would take them for units.
        """
        native = self.native
        native.drop_staged()
        end = native.max_logic
        kept, last = end, -1
        while kept > self._files[0] if self._files else False:
            file_from = (kept - 1) // self.file_size * self.file_size
            begin = max(file_from, kept - PIECE)
            if file_from not in self._files:
                break
            count, stop = count_before(self.read(begin, kept - begin), physical)
            kept, last = begin + count * UNIT, stop
            if count:
                break
        self._erase(kept)
        native.max_logic = kept
        native.min_logic = min(native.min_logic, kept)
        # A unit whose size was damaged must not claim records behind the cut: they would never get a unit.
        native.max_physical = min(last if last >= 0 else self._last_record_end(kept), physical)
        return (end - kept) // UNIT

    def _last_record_end(self, logic: int) -> int:
        """End of the last record that has a unit before a byte offset, -1 if all of them are blanks."""
        while self._files and logic > self._files[0]:
            file_from = (logic - 1) // self.file_size * self.file_size
            begin = max(file_from, logic - PIECE)
            _, end, _ = scan_units(self.read(begin, logic - begin))
            if end >= 0:
                return end
            logic = begin
        return -1

    def erase_behind(self) -> None:
        """Remove what a crash left behind the last unit. It may look valid, and would be taken for units
        once the queue has grown up to it."""
        self._erase(self.native.max_logic)

    def _erase(self, logic: int) -> None:
        """Remove everything behind a byte offset of the queue."""
        self.detach()
        self._unmap()
        if self._head is not None and logic <= self._head.queue_offset * UNIT:
            self._head = None
        for file_from in [f for f in self._files if f >= logic and f != self._files[0]]:
            self._remove(file_from)
        if self._files and logic < self._files[-1] + self.file_size:
            last = self._files[-1]
            with self._cache.use(self.path_of(last), self.file_size) as file:
                if not is_hole(file, logic - last):
                    file.zero(logic - last, self.file_size)
                    file.sync()

    def _remove(self, file_from: int) -> None:
        path = self.path_of(file_from)
        self._cache.forget(path)
        self.storage.unlink(path)
        self._files.remove(file_from)
        self._unsynced.discard(file_from)

    def correct_min_offset(self, min_physical: int) -> None:
        """Skip units of records that were deleted from the head of the log (section 9.7)."""
        native = self.native
        low, end = max(native.min_logic, self._files[0] if self._files else 0), native.max_logic
        if low >= end:
            return
        head = self._head
        if (
            head is not None
            and low == head.queue_offset * UNIT
            and not head.is_blank
            and head.physical_offset >= min_physical
        ):
            return  # with thousands of queues, looking again at each is most of the time that opening takes
        while low < end:
            high = min((low // self.file_size + 1) * self.file_size, end)
            tail = self.unit_at(high - UNIT)
            if tail is None or tail.is_blank or tail.physical_offset >= min_physical:
                units = self.read(low, high - low)
                place = low + first_at(units, min_physical) * UNIT
                if place < low + len(units):
                    low = place
                    break
            low = high
        native.min_logic = low

    # -- writing -----------------------------------------------------------------------------------

    def attach(self) -> None:
        """Give the native queue the file that its staged units belong to; it is made when it is not there.

        In memory the units are written at once instead.
        """
        native = self.native
        file_from = native.staged_from - native.staged_from % self.file_size
        self.detach()
        new = file_from not in self._files
        if new and not self._files:
            self.storage.makedirs(self.folder, later=True)
        file = self._cache.acquire(self.path_of(file_from), self.file_size, create=True)
        if new:
            self._files.append(file_from)
            self._files.sort()
        self._unsynced.add(file_from)
        if file.memory is not None:
            # The memory storage has to see each write, to refuse it or to remember it.
            try:
                file.write(native.staged_from - file_from, native.staged_bytes())
            finally:
                file.release()
            native.staged_written()
            return
        self._attached = file
        native.attach(file, file_from)

    def detach(self) -> None:
        """Let go of the file: it may be closed when others are needed more."""
        if self._attached is not None:
            self.native.detach()
            self._attached.release()
            self._attached = None

    def put_message_position_info(self, physical: int, size: int, tags_code: int, queue_offset: int) -> bool:
        """Write one unit (section 9.4). True if it is there now, put by this call or before it.

        Raises OSError when the disk refuses; the unit is then not counted as written, and can be put again.
        """
        native = self.native
        while True:
            code = native.put(physical, size, tags_code, queue_offset)
            if code == GAP:
                self.fill_gap(queue_offset)
                continue
            if code == OK:
                code = native.flush()
            elif code == FULL:
                code = native.flush()
                if code == OK:
                    continue
            if code == OK:
                return True
            if code == FILE:
                self.attach()
                if native.flush() == OK and native.max_physical >= physical + size:
                    return True
                continue
            raise OSError(
                -code,
                "writing a queue unit failed",
                self.path_of(native.staged_from // self.file_size * self.file_size),
            )

    def replace_unit(self, queue_offset: int, unit: bytes) -> None:
        """Put a unit over a damaged one."""
        logic = queue_offset * UNIT
        file_from = logic - logic % self.file_size
        with self._cache.use(self.path_of(file_from), self.file_size) as file:
            file.write(logic - file_from, unit)
        self._unsynced.add(file_from)
        self.native.unsynced = True

    def blank_between(self, begin: int, end: int) -> int:
        """Make blanks of the units of records in ``[begin, end)`` of the log, which are lost; how many."""
        low, high = max(self.native.min_logic, self._files[0] if self._files else 0), self.native.max_logic
        if low >= high or self.max_physical_offset <= begin:
            return 0
        first = bisect_left(range(low // UNIT, high // UNIT), begin, key=self._physical_from)
        count = 0
        for queue_offset in range(low // UNIT + first, high // UNIT):
            unit = self.unit_at(queue_offset * UNIT)
            if unit is None or (not unit.is_blank and unit.physical_offset >= end):
                break
            if not unit.is_blank:
                self.replace_unit(queue_offset, BLANK_UNIT)
                count += 1
        return count

    def _physical_from(self, queue_offset: int) -> int:
        """Where the record of a queue offset lies, or of the next one that is no blank."""
        while queue_offset * UNIT < self.native.max_logic:
            unit = self.unit_at(queue_offset * UNIT)
            if unit is not None and not unit.is_blank:
                return unit.physical_offset
            queue_offset += 1
        return 1 << 63

    def fill_gap(self, queue_offset: int) -> int:
        """Make the next unit's place ``queue_offset``: blanks before it; how many were needed.

        The first unit of a queue that does not start at 0 moves the minimum there (section 9.4, pre-blank).
        """
        native = self.native
        target = queue_offset * UNIT
        self._write_staged()
        start = native.max_logic
        first = not self._files and start == 0
        if first:
            start = target - target % self.file_size
        logic = start
        while logic < target:
            file_from = logic - logic % self.file_size
            stop = min(target, file_from + self.file_size)
            self._blank(file_from, logic - file_from, stop - file_from)
            logic = stop
        native.max_logic = target
        if first:
            native.min_logic = target
            return 0
        return (target - start) // UNIT

    def _write_staged(self) -> None:
        while (code := self.native.flush()) != OK:
            if code != FILE:
                raise OSError(-code, "writing queue units failed", self.folder)
            self.attach()

    def _blank(self, file_from: int, begin: int, end: int) -> None:
        new = file_from not in self._files
        if new and not self._files:
            self.storage.makedirs(self.folder, later=True)
        with self._cache.use(self.path_of(file_from), self.file_size, create=True) as file:
            if new:
                self._files.append(file_from)
                self._files.sort()
            block = BLANK_UNIT * 3200
            while begin < end:
                file.write(begin, block[: min(len(block), end - begin)])
                begin += min(len(block), end - begin)
        self._unsynced.add(file_from)
        self.native.unsynced = True

    def flush(self) -> int:
        """Everything written so far is on disk; how many files that took."""
        if not self.native.unsynced:
            return 0
        # Cleared first: a unit that comes while we sync sets it again.
        self.native.unsynced = False
        files, self._unsynced = (
            self._unsynced,
            ({f for f in self._unsynced if self._attached and f == self._files[-1]}),
        )
        for file_from in sorted(files):
            try:
                with self._cache.use(self.path_of(file_from), self.file_size) as file:
                    file.sync()
            except OSError:
                self._unsynced |= files
                self.native.unsynced = True
                raise
        return len(files)

    # -- removing ----------------------------------------------------------------------------------

    def delete_expired(self, min_physical: int) -> int:
        """Remove files all of whose units point before ``min_physical``, never the last; how many."""
        count = 0
        while len(self._files) > 1:
            end = self._files[0] + self.file_size
            last = self.unit_at(end - UNIT)
            if last is None or last.physical_offset >= min_physical:
                break
            if (
                last.is_blank
                and first_at(self.read(self._files[0], self.file_size), min_physical) * UNIT < self.file_size
            ):
                break
            if self.slab is not None and self.slab.file_from == self._files[0]:
                self._unmap()
            self._remove(self._files[0])
            count += 1
        if count:
            self.native.min_logic = max(self.native.min_logic, self._files[0])
        return count

    def destroy(self) -> None:
        """Remove all files and the folder; the queue is empty then."""
        self.detach()
        self._unmap()
        self.native.drop_staged()
        self._head = None
        for file_from in list(self._files):
            self._remove(file_from)
        try:
            self.storage.rmdir(self.folder)
        except OSError:
            pass  # other people's files are in it: they stay
        self.native.min_logic = self.native.max_logic = 0
        self.native.max_physical = -1

    def close(self) -> None:
        self.detach()
        self._unmap()
