"""Places in the log that are no whole record: where the log goes on behind them, and what is put over them.

Recovery decides that something is damage and not the end of the log; here it is contained. The bytes are kept
aside, the place is covered with records that nobody sees, and both Penstock and RocketMQ walk over it from
then on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from penstock._native.units import find_record, first_nonzero, record_header
from penstock.errors import CorruptFile, CorruptRecord, StoreError
from penstock.files.mappedfile import MappedFile
from penstock.format.dispatch import dispatch_run
from penstock.format.record import encode_blank
from penstock.store.commitlog import BLANK, CommitLog
from penstock.store.consumequeue import UNIT, ConsumeQueue
from penstock.store.filler import filler_record
from penstock.store.queuetable import QueueTable

DAMAGED = "penstock.damaged"
KEEP_LIMIT = 64 << 20
"""So much of one place is kept aside at most."""
KEEP_FILES = 32
PIECE = 16 << 20
OVERLAP = 8 << 20
"""Records up to this length are found across two pieces."""
COVER = 1 << 20
"""Length of the records that cover a long place; every reader takes such."""
HEADER = 91
TRANSACTION, PREPARED, ROLLBACK = 0xC, 0x4, 0xC

Header = tuple[int, ...]
STORED = 5
"""The store timestamp among the fields of a header."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of the log that is no whole record. ``kept_as`` is the file that has its bytes now."""

    offset: int
    end: int
    reason: str
    kept_as: str = ""


class DamagedLog:
    """Looks behind damage and covers it. ``on_fault`` hears of what was found on the way."""

    def __init__(
        self,
        root: str,
        commit_log: CommitLog,
        queues: QueueTable,
        on_fault: Callable[[StoreError], object],
    ) -> None:
        self._root = root
        self._log = commit_log
        self._queues = queues
        self._storage = commit_log.storage
        self._on_fault = on_fault

    def header_at(self, offset: int) -> Header | None:
        """Header fields of the whole record at an offset that says it lies there, or None."""
        file = self._log.files.find_mapped_file_by_offset(offset)
        if file is None:
            return None
        head = self._storage.pread(file.path, offset - file.file_from_offset, 8)
        size = int.from_bytes(head[:4], "big")
        if len(head) < 8 or not HEADER <= size <= file.end_offset - offset or size > KEEP_LIMIT:
            return None
        header: Header | None = record_header(
            self._storage.pread(file.path, offset - file.file_from_offset, size)
        )
        return header if header is not None and header[3] == offset else None

    def goes_on_at(self, file: MappedFile, offset: int) -> bool:
        """Whether a record lies at an offset, or the blank that ends its file."""
        at = offset - file.file_from_offset
        left = file.file_size - at
        blank = left >= BLANK and self._storage.pread(file.path, at, BLANK) == encode_blank(left)[:BLANK]
        return blank or self.header_at(offset) is not None

    # -- behind it ---------------------------------------------------------------------------------

    def next_record(self, file: MappedFile, start: int, before: int) -> int | None:
        """Offset of the next whole record from ``start`` that is no leftover.

        In this file, before ``before``, or at the start of a later one.
        """
        at, end = start - file.file_from_offset, min(file.file_size, before - file.file_from_offset)
        while at < end:
            data = self._storage.pread(file.path, at, min(PIECE, file.file_size - at))
            found, size = find_record(data, 0, file.file_from_offset + at, 0)
            while found >= 0 and at + found < end:
                if self._continues(memoryview(data)[found : found + size]):
                    return file.file_from_offset + at + found
                found, size = find_record(data, found + 1, file.file_from_offset + at, 0)
            if at + len(data) >= file.file_size:
                break
            at += max(1, len(data) - OVERLAP)
        for later in self._log.files.files:
            begin = later.file_from_offset
            if begin >= file.end_offset and self.header_at(begin) is not None:
                return begin
        return None

    def _continues(self, record: memoryview) -> bool:
        """A record whose place in its queue belongs to another one is a leftover, not more of the log."""
        header = record_header(record)
        if header is None:
            return False
        queue = self._queue_of(bytes(record), header)
        if queue is None or header[4] & TRANSACTION in (PREPARED, ROLLBACK):
            return True
        if header[2] >= queue.native.staged_from // UNIT:
            return True
        return not self._belongs_to_other(queue, header[2], header[3])

    def _queue_of(self, record: bytes, header: Header) -> ConsumeQueue | None:
        topic = record[header[8] : header[8] + header[9]].decode("utf-8", "replace")
        queue = self._queues.find(topic, header[1])
        return queue if isinstance(queue, ConsumeQueue) else None

    def _belongs_to_other(self, queue: ConsumeQueue, queue_offset: int, physical_offset: int) -> bool:
        """Whether the unit of a queue offset points at a record that says so itself, and is another one."""
        unit = queue.unit_at(queue_offset * UNIT)
        if unit is None or unit.physical_offset == physical_offset:
            return False
        other = self.header_at(unit.physical_offset)
        return other is not None and other[1:3] == (queue.queue_id, queue_offset)

    def is_leftover(self, file: MappedFile, position: int, size: int) -> bool:
        """For a record whose place in its queue is taken: whether by another record.

        If not, the unit in that place is damaged. It is mended, and the record counts.
        """
        record = self._storage.pread(file.path, position - file.file_from_offset, size)
        header = record_header(record)
        queue = self._queue_of(record, header) if header is not None else None
        if header is None or queue is None or not queue.files:
            return True
        if header[2] >= queue.native.staged_from // UNIT:
            return True
        if header[2] * UNIT < queue.files[0]:
            queue.destroy()  # it has lost its first file: everything from this record on comes again
            return False
        if self._belongs_to_other(queue, header[2], position):
            return True
        unit = queue.unit_at(header[2] * UNIT)
        if unit is None or (unit.physical_offset, unit.size) != (position, size):
            writes = dispatch_run(record, position, delays=self._log.config.delay_levels_ms).units
            queue.replace_unit(header[2], writes[0].unit)
            self._on_fault(
                CorruptFile(
                    queue.path_of(header[2] * UNIT // queue.file_size * queue.file_size),
                    found=f"a unit that points at {unit.physical_offset if unit else 'nothing'}",
                    offset=header[2] * UNIT % queue.file_size,
                    hint="it was mended",
                )
            )
        queue.native.max_physical = max(queue.native.max_physical, position + size)
        return False

    def is_displaced(self, file: MappedFile, position: int, size: int) -> bool:
        """For a leftover as ``is_leftover`` sees it: whether it is more of the log all the same.

        Queue id, queue offset and topic have no CRC. One flipped bit in them makes a record claim a place
        that is another's; then its own place stays empty, one bit away. A leftover can look like that too,
        but it was stored before the record that has its place now. The clock only decides between two
        records of which one is wrong: what is not explained by a bit is a leftover whatever it says.
        """
        record = self._storage.pread(file.path, position - file.file_from_offset, size)
        header = record_header(record)
        queue = self._queue_of(record, header) if header is not None else None
        unit = queue.unit_at(header[2] * UNIT) if header is not None and queue is not None else None
        holder = self.header_at(unit.physical_offset) if unit is not None else None
        if header is None or holder is None or header[STORED] < holder[STORED]:
            return False
        return self._is_one_bit_from_empty(
            record[header[8] : header[8] + header[9]], queue_id=header[1], queue_offset=header[2]
        )

    def _is_one_bit_from_empty(self, topic: bytes, *, queue_id: int, queue_offset: int) -> bool:
        """Whether the record of a place that differs in one bit is missing."""
        name = topic.decode("utf-8", "replace")
        return (
            any(self._is_empty(name, queue_id, queue_offset ^ 1 << bit) for bit in range(63))
            or any(self._is_empty(name, queue_id ^ 1 << bit, queue_offset) for bit in range(31))
            or any(
                queue.queue_id == queue_id
                and _bits_apart(queue.topic.encode(), topic) == 1
                and self._is_empty(queue.topic, queue_id, queue_offset)
                for queue in self._queues
            )
        )

    def _is_empty(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return queue_offset == 0
        if not isinstance(queue, ConsumeQueue):
            return False
        unit = queue.unit(queue_offset)
        return queue_offset == queue.max_offset or (unit is not None and unit.is_blank)

    # -- over it -----------------------------------------------------------------------------------

    def contain(self, file: MappedFile, begin: int, end: int, reason: str) -> Damage:
        """Keep a copy of the damaged bytes and cover them, so that the log can be walked.

        Units of what was there become blanks: the cover must not be taken for the record that it replaces.
        """
        stop = min(end, file.end_offset)
        kept = self.keep(file, begin, stop)
        for queue in self._queues:
            if isinstance(queue, ConsumeQueue):
                queue.blank_between(begin, stop)
        if stop == file.end_offset and stop - begin >= BLANK:
            file.mapping.write(begin - file.file_from_offset, encode_blank(stop - begin)[:BLANK])
        else:
            self._cover(file, begin, stop, reason)
        file.mapping.sync()
        return Damage(begin, end, reason, kept)

    def _cover(self, file: MappedFile, begin: int, stop: int, reason: str) -> None:
        at = stop
        while at > begin:  # from the end: a crash in between leaves damage that is found again
            size = at - begin if at - begin < 2 * COVER else COVER
            filler = filler_record(at - size, size)
            if filler is None:
                hint = "too short to be covered"
                self._on_fault(
                    CorruptRecord(file.path, begin - file.file_from_offset, found=reason, hint=hint)
                )
                return
            file.mapping.write(at - size - file.file_from_offset, filler)
            at -= size

    def keep(self, file: MappedFile, begin: int, end: int) -> str:
        """Write the bytes of a place into a file beside the log; its path, empty if they are all zeros."""
        data = self._storage.pread(file.path, begin - file.file_from_offset, min(end - begin, KEEP_LIMIT))
        if first_nonzero(data) < 0:
            return ""
        folder = PurePath(self._root) / DAMAGED
        self._storage.makedirs(str(folder))
        kept = [entry for entry in self._storage.listdir(str(folder)) if entry.name.isdigit()]
        older = sorted(kept, key=lambda entry: entry.mtime_ms)
        for entry in older[: max(0, len(older) - KEEP_FILES + 1)]:
            self._storage.unlink(str(folder / entry.name))
        path = str(folder / f"{begin:020d}")
        self._storage.write_atomic(path, data)
        return path


def _bits_apart(one: bytes, other: bytes) -> int:
    """In how many bits two texts of one length differ; -1 if their lengths do."""
    if len(one) != len(other):
        return -1
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).bit_count()
