"""One part of a log checked in a task, and how parts are joined to what one pass over all would have seen.

A part is checked as :mod:`penstock.store.verify` checks the whole, from a guess of where the pass stands
there: which record comes first, what each queue's next offset is, which index entry is next. When the part
before it turns out to have ended anywhere else, the guess was wrong and the part is checked again from the
right state. Joined parts have therefore seen exactly what one pass would have.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from penstock._native.checkedqueue import CheckedQueue
from penstock._native.units import record_header
from penstock.config import StoreConfig
from penstock.errors import StoreError
from penstock.files.storage import Storage
from penstock.format.batchunit import BATCH_UNIT_SIZE
from penstock.spark.places import Place
from penstock.store.directory import StoreDirectory
from penstock.store.fault import Fault
from penstock.store.indexfile import HEADER
from penstock.store.indexverifier import (
    ENTRY,
    PIECE,
    EntryPiece,
    IndexVerifier,
    believed_count,
    entry_layout,
)
from penstock.store.logwindow import LogWindow
from penstock.store.queueverifier import QueueFolders, QueueVerifier, UnitFiles
from penstock.store.scan import Damage, LogScanner, Run
from penstock.store.sizes import QueueFile
from penstock.store.verify import WINDOW, PassCounts, Verifier

NOWHERE = 1 << 62
_SMALLEST = 91
"""No record is shorter."""

Key = tuple[str, int]
EntryPlace = tuple[str, int] | None
"""Index file and number of the entry that comes next; None behind the last."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """Where the pass stands in one queue of 20-byte units. Counters are of one part only."""

    first: int
    next: int
    ended: bool
    checked: int = 0
    missing: int = 0
    first_missing: int = -1

    def then(self, later: QueueState) -> QueueState:
        """This part and the one behind it as one."""
        return QueueState(
            self.first if self.first >= 0 else later.first,
            later.next,
            later.ended,
            self.checked + later.checked,
            self.missing + later.missing,
            self.first_missing if self.missing else later.first_missing,
        )


@dataclass(frozen=True, slots=True)
class BatchState:
    """Where the pass stands in a queue of batches. Fresh: units before ``begin`` are older than the log."""

    begin: int
    next: int
    is_fresh: bool
    checked: int = 0
    missing: int = 0


@dataclass(slots=True)
class PassState:
    """Where a pass over the log stands between two parts."""

    position: int
    entry: EntryPlace
    last_offset: int = -1
    last_store_timestamp: int = 0
    damage: list[Damage] = field(default_factory=list)
    queues: dict[Key, QueueState] = field(default_factory=dict)
    batches: dict[Key, BatchState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownStore:
    """What the driver found out about the store: tasks need not look at all its files again."""

    config: StoreConfig
    is_closed: bool
    is_live: bool


class _KnownDirectory(StoreDirectory):
    """The directory as the driver saw it."""

    def __init__(self, place: Place, known: KnownStore) -> None:
        self.storage = place.storage
        self.root = place.root
        self.config = known.config
        self.size_faults = []
        self._known = known

    @cached_property
    def is_closed(self) -> bool:
        return self._known.is_closed

    @cached_property
    def is_live(self) -> bool:
        return self._known.is_live


@dataclass(frozen=True, slots=True)
class CheckedPart:
    """One task's work: a part of the log, or the chains of an index file.

    ``end`` is None for the part that goes on to the end of the log. Without ``state`` the task guesses.
    """

    place: Place
    begin: int = 0
    end: int | None = None
    live_end: int | None = None
    index_file: str = ""
    state: PassState | None = None
    limit: int = 1000
    known: KnownStore | None = None


@dataclass(slots=True)
class PartResult:
    """What a task saw. Bytes are by file of the log: of records, of blanks, and damaged ones."""

    begin: int = -1
    end: int = -1
    entry_begin: EntryPlace = None
    entry_end: EntryPlace = None
    log_ended: bool = False
    tail: str = ""
    last_offset: int = -1
    last_store_timestamp: int = 0
    trusted_timestamp: int = NOWHERE
    looked_back: bool = False
    damage: list[Damage] = field(default_factory=list)
    damage_count: int = 0
    lost_records: int = 0
    queues: dict[Key, QueueState] = field(default_factory=dict)
    batches: dict[Key, BatchState] = field(default_factory=dict)
    lights: dict[Key, int] = field(default_factory=dict)
    counts: PassCounts = field(default_factory=PassCounts)
    bytes: dict[str, list[int]] = field(default_factory=dict)
    index_files: int = 0
    faults: list[Fault] = field(default_factory=list)
    notes: list[Fault] = field(default_factory=list)
    fault_count: int = 0

    def follows(self, state: PassState) -> bool:
        """Whether the guess that this part was checked from is where the pass really stands."""
        return (
            self.begin == state.position
            and self.entry_begin == state.entry
            and not (self.looked_back and state.last_offset >= 0)
            and state.last_store_timestamp <= self.trusted_timestamp
            and all(
                known.next == queue.first and not (known.ended and (queue.checked or not queue.ended))
                for key, queue in self.queues.items()
                if (known := state.queues.get(key)) is not None
            )
            and all(
                batch.is_fresh if (before := state.batches.get(key)) is None else before.next == batch.begin
                for key, batch in self.batches.items()
            )
        )

    def advance(self, state: PassState) -> None:
        """Move a state behind this part."""
        state.position, state.entry = self.end, self.entry_end
        if self.last_offset >= 0:
            state.last_offset = self.last_offset
        state.last_store_timestamp = max(state.last_store_timestamp, self.last_store_timestamp)
        state.damage += self.damage
        for key, queue in self.queues.items():
            known = state.queues.get(key)
            state.queues[key] = queue if known is None else known.then(queue)
        for key, batch in self.batches.items():
            before = state.batches.get(key)
            state.batches[key] = (
                batch
                if before is None
                else BatchState(
                    before.begin,
                    batch.next,
                    before.is_fresh,
                    before.checked + batch.checked,
                    before.missing + batch.missing,
                )
            )


class _PartEnd(Exception):
    """The pass came to the end of its part."""


class _PartWindow(LogWindow):
    """Shows no record that begins behind the part's end; the last one is shown whole."""

    def __init__(self, storage: Storage, capacity: int, end: int) -> None:
        super().__init__(storage, capacity)
        self._end = end
        self._needed = 0

    def grow(self, capacity: int) -> None:
        super().grow(capacity)
        self._needed = capacity

    def load(self, file: QueueFile, position: int, count: int | None = None) -> memoryview:
        # Less than the smallest record would not tell a blank or a torn end from a record that goes on.
        room = max(self._end - file.begin - position, _SMALLEST, self._needed)
        self._needed = 0
        return super().load(file, position, min(self.capacity if count is None else count, room))


class _PartScanner(LogScanner):
    """The scan of one part. What it decides with knowledge of earlier parts, it notes."""

    def __init__(
        self, directory: StoreDirectory, part: CheckedPart, begin: int, verifier: PartVerifier
    ) -> None:
        self._end = NOWHERE if part.end is None else part.end
        super().__init__(
            directory,
            begin=begin,
            step=verifier.step,
            on_fault=verifier.found,
            progress=self._stop_at_end,
            window=WINDOW,
        )
        self._window = _PartWindow(directory.storage, WINDOW, self._end)
        self._live_end = part.live_end
        self._guessed = part.state is None
        self._too_long = -1
        self.trusted_timestamp = NOWHERE
        self.looked_back = False
        if part.state is not None:
            self.last_offset = part.state.last_offset
            self.last_store_timestamp = part.state.last_store_timestamp
            self.damage.extend(part.state.damage)

    def _stop_at_end(self, done: int, whole: int) -> None:
        if self.end >= self._end:
            raise _PartEnd

    def _is_plausible(self, file: QueueFile, position: int, size: int) -> bool:
        plausible = super()._is_plausible(file, position, size)
        fits = position + size <= self._limit(file)
        self._too_long = -1 if plausible or fits else position
        return plausible

    def _resynchronise(self, file: QueueFile, position: int, reason: str) -> int | None:
        if reason == "length" and position == self._too_long and self._limit(file) <= position + WINDOW:
            reason = "short"  # a pass over all has the end of the file in view here, and says so
        return super()._resynchronise(file, position, reason)

    def first_record(self) -> int | None:
        """A place at or behind the begin where a record seems to begin."""
        file = self._file_at(self.begin)
        if file is None:
            return None
        at = max(self.begin, file.begin)
        head = self.directory.storage.pread(file.path, at - file.begin, 36)
        if head[4:7] == b"\xda\xa3\x20" and int.from_bytes(head[28:36], "big") == at:
            return at
        return self._search_file(file, at)

    def _belongs(self, record: memoryview, offset: int) -> bool:
        if self._guessed:
            header = record_header(record)
            if header is not None and header[5] >= self.last_store_timestamp:
                self.trusted_timestamp = min(self.trusted_timestamp, header[5])
        return super()._belongs(record, offset)

    def _is_recovered_end(self, position: int) -> bool:
        self.looked_back = self.looked_back or (self._guessed and self.last_offset < 0)
        return super()._is_recovered_end(position)


class _PartQueues(QueueVerifier):
    """Queues that begin where the pass stands, or at their first record of the part."""

    def __init__(
        self,
        storage: Storage,
        folders: QueueFolders,
        log_begin: int,
        report: Callable[[Fault], None],
        begin: int,
        state: PassState | None,
    ) -> None:
        super().__init__(storage, folders, log_begin, report)
        self._begin = begin
        self._known = state
        self._batch_begins: dict[Key, tuple[int, bool]] = {}

    def open(self, topic: str, encoded: bytes, queue_id: int) -> CheckedQueue:
        key = (topic, queue_id)
        checked = super().open(topic, encoded, queue_id)
        batch = self._batch.get(key)
        if batch is not None:
            fresh = batch.next
            if self._known is None:
                batch.next = first_batch_unit(batch.files, self._begin)
            elif (known := self._known.batches.get(key)) is not None:
                batch.next = known.next
            self._batch_begins[key] = (batch.next, batch.next == fresh)
        elif self._known is not None and (queue := self._known.queues.get(key)) is not None:
            checked.restore(queue.first, queue.next, 0, 0, -1, queue.ended)
        return checked

    def take_states(self, result: PartResult) -> None:
        for key, simple in self._simple.items():
            checked = simple.checked
            first = checked.first
            if self._known is not None and key in self._known.queues:
                first = self._known.queues[key].next
            result.queues[key] = QueueState(
                first, checked.next, checked.ended, checked.checked, checked.missing, checked.first_missing
            )
        for key, batch in self._batch.items():
            begin, is_fresh = self._batch_begins[key]
            result.batches[key] = BatchState(begin, batch.next, is_fresh, batch.checked, batch.missing)
        result.lights = {key: light.checked.next for key, light in self._light.items()}
        result.lost_records = self.lost_records


def first_batch_unit(files: UnitFiles, physical: int) -> int:
    """Number of the first unit of a batch queue that does not point before a place of the log."""
    low = files.begin
    high = (files.files[-1].begin + files.files[-1].size) // BATCH_UNIT_SIZE if files.files else low
    while low < high:
        middle = (low + high) // 2
        offset, size = struct.unpack_from(">qi", files.read(middle, 1).ljust(12, b"\0"))
        if size > 0 and offset < physical:
            low = middle + 1
        else:
            high = middle
    return low


class EntryReader:
    """Index entries from any place on, unchecked: the files themselves are checked by tasks of their own."""

    def __init__(self, index: IndexVerifier) -> None:
        self.storage = index.storage
        self.layout = index.layout
        self.paths = index.paths
        self._shapes: dict[str, tuple[int, int, int]] = {}

    def pieces(self, place: EntryPlace) -> Iterator[EntryPiece]:
        """Entries from a place on. A piece is valid until the next one is asked for."""
        place = self.settled(place)
        while place is not None:
            path, number = place
            slots, count, begin_timestamp = self._shape(path)
            many = min(count - number, PIECE // ENTRY)
            try:
                data = self.storage.pread(path, HEADER + 4 * slots + ENTRY * number, many * ENTRY)
            except OSError:
                data = b""  # told by the task that checks the file
            got = len(data) // ENTRY
            if not got:
                place = self.settled((path, count))
                continue
            yield EntryPiece(path, memoryview(data)[: got * ENTRY], number, begin_timestamp, slots)
            place = self.settled((path, number + got))

    def first(self) -> EntryPlace:
        """The first entry of all."""
        return self.settled((self.paths[0], 1)) if self.paths else None

    def settled(self, place: EntryPlace) -> EntryPlace:
        """The place itself, or the first entry of the next file that has one."""
        if place is None:
            return None
        path, number = place
        for at in range(self.paths.index(path), len(self.paths)):
            if number < self._shape(self.paths[at])[1]:
                return self.paths[at], number
            number = 1
        return None

    def find(self, physical: int) -> EntryPlace:
        """The first entry that does not point before a place of the log, if offsets only grow."""
        for path in self.paths:
            count = self._shape(path)[1]
            if count > 1 and self._offset(path, count - 1) >= physical:
                low, high = 1, count - 1
                while low < high:
                    middle = (low + high) // 2
                    if self._offset(path, middle) < physical:
                        low = middle + 1
                    else:
                        high = middle
                return path, low
        return None

    def _offset(self, path: str, number: int) -> int:
        data = self.storage.pread(path, HEADER + 4 * self._shape(path)[0] + ENTRY * number + 4, 8)
        return int.from_bytes(data, "big", signed=True)

    def _shape(self, path: str) -> tuple[int, int, int]:
        """Slots, the number behind the last entry, and the time that entries count from."""
        if path not in self._shapes:
            try:
                size = self.storage.stat(path).size
                slots, capacity = entry_layout(self.storage, path, size, self.layout)
                head = self.storage.pread(path, 0, HEADER)
                count = believed_count(struct.unpack_from(">i", head, 36)[0], capacity)
                self._shapes[path] = (slots, count, struct.unpack_from(">q", head)[0])
            except (OSError, ValueError, StoreError, struct.error):
                self._shapes[path] = (0, 1, 0)  # told by the task that checks the file: it has no entries
        return self._shapes[path]


class PartVerifier(Verifier):
    """The pass of one task."""

    def __init__(self, part: CheckedPart) -> None:
        self.part = part
        self._queue_begin = part.state.position if part.state is not None else part.begin
        known = part.known
        directory = part.place.directory if known is None else _KnownDirectory(part.place, known)
        super().__init__(directory, limit=part.limit)
        self.entries = EntryReader(self.index)

    def make_scanner(self, progress: Callable[[int, int], None]) -> LogScanner:
        self.part_scanner = _PartScanner(self.directory, self.part, self._queue_begin, self)
        return self.part_scanner

    def make_queues(self, folders: QueueFolders, log_begin: int) -> QueueVerifier:
        self.part_queues = _PartQueues(
            self.directory.storage, folders, log_begin, self.found, self._queue_begin, self.part.state
        )
        return self.part_queues

    def check(self) -> PartResult:
        """Check the part."""
        part, scanner = self.part, self.part_scanner
        result = PartResult()
        if part.state is None:
            begin = scanner.first_record()
            if begin is None or (part.end is not None and begin >= part.end):
                return result  # nothing begins here: the part before says why
            scanner.begin = scanner.end = result.begin = begin
            result.entry_begin = self.entries.find(begin)
        else:
            result.begin, result.entry_begin = part.state.position, part.state.entry
        before = len(scanner.damage)
        if self.entries.first() is not None:
            self.checker.set_entries(memoryview(b""), 1, 0)  # there is an index, though perhaps not this far
        self.pieces = self.entries.pieces(result.entry_begin)
        self.next_piece()
        account = _Account(self.directory.log_files, scanner.damage, result.begin)
        try:
            for run in scanner.runs():
                account.add(run)
            result.log_ended = True
        except _PartEnd:
            result.log_ended = False
        account.skip_to(scanner.end)
        result.end = scanner.end
        result.bytes = account.bytes
        result.tail = scanner.tail
        result.entry_end = self._entry_place()
        result.last_offset, result.last_store_timestamp = scanner.last_offset, scanner.last_store_timestamp
        result.trusted_timestamp, result.looked_back = scanner.trusted_timestamp, scanner.looked_back
        result.damage, result.damage_count = scanner.damage[before:], scanner.damage_count
        result.counts = self.counts
        self.part_queues.take_states(result)
        self._take_faults(result)
        return result

    def check_index_file(self) -> PartResult:
        """Check the chains of one index file."""
        for _ in self.index.file_pieces(self.part.index_file):
            pass
        result = PartResult(index_files=self.index.files)
        self._take_faults(result)
        return result

    def _entry_place(self) -> EntryPlace:
        piece = self.piece
        if piece is None:
            return None
        number = piece.first_number + len(piece.entries) // ENTRY - self.checker.rest_of_entries()
        return self.entries.settled((piece.path, number))

    def _take_faults(self, result: PartResult) -> None:
        result.faults, result.notes = self.found.faults, self.found.notes
        result.fault_count = self.found.fault_count


class _Account:
    """What every byte of the log's files belongs to."""

    def __init__(self, files: list[QueueFile], damage: list[Damage], begin: int) -> None:
        self.bytes: dict[str, list[int]] = {}
        self._files = files
        self._damage = damage
        self._seen = len(damage)
        self._end = begin

    def add(self, run: Run) -> None:
        """Whole records."""
        self.skip_to(run.base)
        self._count(run.file.path, 0, run.end)
        self._end = run.base + run.end

    def skip_to(self, position: int) -> None:
        """Between records there is damage that was told of, or a blank that closes a file."""
        at = self._end
        for damage in self._damage[self._seen :]:
            self._spread(at, damage.begin, 1)
            self._spread(max(at, damage.begin), damage.end, 2)
            at = max(at, damage.end)
        self._seen = len(self._damage)
        self._spread(at, position, 1)
        self._end = position

    def _spread(self, begin: int, end: int, kind: int) -> None:
        if begin < end:
            for file in self._files:
                shared = min(end, file.begin + file.size) - max(begin, file.begin)
                if shared > 0:
                    self._count(file.path, kind, shared)

    def _count(self, path: str, kind: int, many: int) -> None:
        self.bytes.setdefault(path, [0, 0, 0])[kind] += many


class JoinedQueues(QueueVerifier):
    """Queues as a pass over all parts left them."""

    def restore(self, state: PassState, lights: dict[Key, int], lost_records: int) -> None:
        """Be behind the pass."""
        for (topic, queue_id), queue in state.queues.items():
            checked = self.open(topic, topic.encode(), queue_id)
            checked.restore(
                queue.first, queue.next, queue.checked, queue.missing, queue.first_missing, queue.ended
            )
        for (topic, queue_id), known in state.batches.items():
            self.open(topic, topic.encode(), queue_id)
            batch = self._batch[topic, queue_id]
            batch.next, batch.checked, batch.missing = known.next, known.checked, known.missing
        for (topic, queue_id), number in lights.items():
            light = self._light_queue(topic, queue_id)
            if light is not None:
                light.checked.next = number
        self.lost_records = lost_records


def check_part(part: CheckedPart) -> PartResult:
    """The work of one task."""
    verifier = PartVerifier(part)
    return verifier.check_index_file() if part.index_file else verifier.check()


def seeded(part: CheckedPart, state: PassState) -> CheckedPart:
    """The part again, from where the pass really stands."""
    return replace(part, state=state)
