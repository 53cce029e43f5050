"""One part of a log checked in a task, and how parts are joined to what one pass over all would have seen.

A part is checked as :mod:`penstock.store.verify` checks the whole, from a guess of where the pass stands
there: which record comes first, what each queue's next offset is, which index entry is next. When the part
before it turns out to have ended anywhere else, the guess was wrong and the part is checked again from the
right state. Joined parts have therefore seen exactly what one pass would have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from penstock.spark.jobs.indexentries import EntryReader
from penstock.spark.jobs.partqueues import PartQueues
from penstock.spark.jobs.partscanner import PartEnd, PartScanner
from penstock.spark.jobs.passstate import CheckedPart, EntryPlace, KnownStore, PartResult, PassState
from penstock.spark.places import Place
from penstock.store.damagedpart import Damage
from penstock.store.directory import StoreDirectory
from penstock.store.indexverifier import ENTRY
from penstock.store.queueverifier import QueueFolders, QueueVerifier
from penstock.store.scan import LogScanner, Run
from penstock.store.sizes import QueueFile
from penstock.store.verify import Verifier


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
        self.part_scanner = PartScanner(
            self.directory, self.part, self._queue_begin, step=self.step, on_fault=self.found
        )
        return self.part_scanner

    def make_queues(self, folders: QueueFolders, log_begin: int) -> QueueVerifier:
        self.part_queues = PartQueues(
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
        except PartEnd:
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

    def check_index_files(self) -> PartResult:
        """Check the chains of some index files."""
        for path in self.part.index_files:
            for _ in self.index.file_pieces(path):
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


def check_part(part: CheckedPart) -> PartResult:
    """The work of one task."""
    verifier = PartVerifier(part)
    return verifier.check_index_files() if part.index_files else verifier.check()


def seeded(part: CheckedPart, state: PassState) -> CheckedPart:
    """The part again, from where the pass really stands."""
    return replace(part, state=state)
