"""Is this store whole? The check of ``penstock store verify`` as a Spark job: same faults, many tasks.

Parts of the log are checked natively where they are read (CRC, lengths, self-offset, torn sectors, queue
units, index entries), index files in tasks of their own; only what was found comes back. The driver joins the
parts, has those checked again that were begun from a wrong guess, and looks at what no record asked for.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.spark.jobs.checkedsplit import check_part, seeded
from penstock.spark.jobs.indexentries import EntryReader
from penstock.spark.jobs.job import Progress, parallelism, run_each
from penstock.spark.jobs.partqueues import JoinedQueues
from penstock.spark.jobs.passstate import CheckedPart, KnownStore, PartResult, PassState
from penstock.spark.places import Place, open_places
from penstock.store.fault import Fault
from penstock.store.queueverifier import QueueFolders, QueueVerifier
from penstock.store.sizes import QueueFile
from penstock.store.verify import PassCounts, Verifier, VerifyReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLIT_BYTES = 512 << 20
SMALLEST_SPLIT = 16 << 20
_FAULTS = (
    "severity string, kind string, file string, offset long, physicalOffset long, text string, hint string"
)


@dataclass(frozen=True, slots=True)
class FileBytes:
    """What the bytes of one log file are. Together they are its size, or there is a fault that says so."""

    file: str
    size: int
    records: int
    blank: int
    damaged: int
    behind_end: int

    @property
    def accounted(self) -> int:
        return self.records + self.blank + self.damaged + self.behind_end


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What a verification saw: ``report`` is what ``penstock store verify`` reports of the same directory."""

    report: VerifyReport
    files: list[FileBytes] = field(default_factory=list)
    parts: int = 0
    checked_again: int = 0

    @property
    def healthy(self) -> bool:
        return self.report.healthy

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        files = [{name: getattr(file, name) for name in file.__dataclass_fields__} for file in self.files]
        return {
            **self.report.as_dict(),
            "log_files": files,
            "parts": self.parts,
            "checked_again": self.checked_again,
        }

    def frame(self, spark: SparkSession) -> DataFrame:
        """A row for each fault and note: severity, kind, file, offset, physicalOffset, text, hint."""
        rows = [
            (
                "note" if fault.note else "fault",
                fault.kind,
                fault.file,
                fault.offset,
                fault.physical_offset,
                fault.found,
                fault.hint,
            )
            for fault in (*self.report.faults, *self.report.notes)
        ]
        return spark.createDataFrame(rows, _FAULTS)


def verify(
    spark: SparkSession,
    path: str,
    *,
    split_bytes: int | None = None,
    limit: int = 1000,
    progress: Progress | None = None,
) -> VerifyResult:
    """Verify a store directory, local or behind a URI that every worker can read. Changes nothing.

    Without ``split_bytes`` the tasks are as many as fit the session. ``limit`` bounds the faults that are
    kept, not those that are counted. ``progress`` is told bytes.
    """
    if (split_bytes is not None and split_bytes < 1) or limit < 1:
        raise UsageError("split_bytes and limit must be at least 1")
    started = time.monotonic()
    place = single_place(path)
    verifier = _JoinedVerifier(place, limit)
    verifier.check_files()
    whole = max(1, sum(file.size for file in verifier.directory.log_files))
    tasks = parallelism(spark)
    # The files of the index come last, and two rounds of them: short tasks at the end keep cores from waiting
    # for one another, and a byte of these costs less than half of what one of the log does.
    parts = verifier.plan(
        split_bytes or even_split(whole, tasks),
        split_bytes or even_split(verifier.index_bytes, 2 * tasks),
    )
    results = _check(
        spark,
        parts,
        None if progress is None else lambda done, count: progress(whole * done // max(1, count), whole),
    )
    again = 0
    for part, result in zip(parts, results, strict=True):
        if part.index_files:
            verifier.take(result)
            continue
        if verifier.ended:
            continue
        if part.state is None and not result.follows(verifier.state):
            again += 1
            result = _check(spark, [seeded(part, verifier.state)])[0]
        verifier.take(result)
        verifier.join(result)
    report = verifier.finish_joined(started)
    return VerifyResult(report, list(verifier.accounts()), len(parts), again)


def even_split(whole: int, tasks: int, most: int = SPLIT_BYTES, smallest: int = SMALLEST_SPLIT) -> int:
    """Bytes of a part so that ``tasks`` at a time end together, none larger than ``most`` unless all are
    smaller than ``smallest`` then.
    """
    rounds = max(1, -(-whole // (most * tasks)))
    return max(smallest, -(-whole // (rounds * tasks)))


def log_cuts(files: Sequence[QueueFile], split_bytes: int) -> list[int]:
    """Where parts of the log begin: evenly, and at a file's begin where one is near.

    A part is larger than ``split_bytes`` by a quarter at most.
    """
    if not files:
        return []
    begin, slack = files[0].begin, split_bytes // 8
    whole = files[-1].begin + files[-1].size - begin
    count = -(-whole // split_bytes)
    begins = [file.begin for file in files]
    cuts = [begin]
    for number in range(1, count):
        even = begin + whole * number // count
        after = bisect_left(begins, even)
        near = min(begins[max(0, after - 1) : after + 1], key=lambda place: abs(place - even))
        cut = near if abs(near - even) <= slack else even
        if cut > cuts[-1]:
            cuts.append(cut)
    return cuts


def index_groups(sizes: Mapping[str, int], split_bytes: int) -> list[tuple[str, ...]]:
    """Index files that one task checks."""
    groups: list[list[str]] = []
    room = 0
    for path, size in sizes.items():
        if size > room or not groups:
            groups.append([])
            room = split_bytes
        groups[-1].append(path)
        room -= size
    return [tuple(group) for group in groups]


def single_place(path: str) -> Place:
    """The one store that a path names."""
    places = open_places(path)
    if len(places) != 1 or places[0].kind != "store":
        raise UsageError(f"{path} is not one store directory", hint="name the directory that holds commitlog")
    return places[0]


def _check(
    spark: SparkSession, parts: list[CheckedPart], progress: Progress | None = None
) -> list[PartResult]:
    return run_each(spark, parts, check_part, name="verify", progress=progress)


class _JoinedVerifier(Verifier):
    """The driver's side: plans parts, joins what they saw, finishes as a pass over the whole log would."""

    def __init__(self, place: Place, limit: int) -> None:
        self.place = place
        super().__init__(place.directory, limit=limit)
        self.entries = EntryReader(self.index)
        self.state = PassState(self.scanner.begin, self.entries.first())
        self.joined = PassCounts()
        self.ended = False
        self._limit = limit
        self._lights: dict[tuple[str, int], int] = {}
        self._lost = 0
        self._bytes: dict[str, list[int]] = {}

    def make_queues(self, folders: QueueFolders, log_begin: int) -> QueueVerifier:
        self.joined_queues = JoinedQueues(self.directory.storage, folders, log_begin, self.found)
        return self.joined_queues

    @cached_property
    def _index_sizes(self) -> dict[str, int]:
        return {path: self.directory.storage.stat(path).size for path in self.index.paths}

    @property
    def index_bytes(self) -> int:
        return sum(self._index_sizes.values())

    def plan(self, split_bytes: int, index_split: int) -> list[CheckedPart]:
        """Parts of the log in order, then the index files."""
        directory = self.directory
        live_end = directory.queued_end if directory.is_live else None
        known = KnownStore(directory.config, directory.is_closed, directory.is_live)
        cuts = log_cuts(directory.log_files, split_bytes)
        parts = []
        for number, begin in enumerate(cuts or [self.scanner.begin]):
            parts.append(
                CheckedPart(
                    self.place,
                    begin,
                    cuts[number + 1] if number + 1 < len(cuts) else None,
                    live_end,
                    state=self.state if number == 0 else None,
                    limit=self._limit,
                    known=known,
                )
            )
        return parts + [
            CheckedPart(self.place, index_files=paths, limit=self._limit, known=known)
            for paths in index_groups(self._index_sizes, index_split)
        ]

    def take(self, result: PartResult) -> None:
        """The findings of a task."""
        for fault in (*result.faults, *result.notes):
            self.found(fault)
        self.found.fault_count += result.fault_count - len(result.faults)
        self.index.files += result.index_files

    def join(self, result: PartResult) -> None:
        """Go behind a part."""
        result.advance(self.state)
        counts, joined = result.counts, self.joined
        joined.records += counts.records
        joined.fillers += counts.fillers
        joined.entries += counts.entries
        joined.keys_missing += counts.keys_missing
        if counts.keys_missing:
            if joined.first_key_missing < 0:
                joined.first_key_missing = counts.first_key_missing
            joined.last_key_missing = counts.last_key_missing
        self.scanner.damage_count += result.damage_count
        self._lost += result.lost_records
        for key, number in result.lights.items():
            self._lights[key] = max(number, self._lights.get(key, -1))
        for path, counted in result.bytes.items():
            known = self._bytes.setdefault(path, [0, 0, 0])
            for kind, many in enumerate(counted):
                known[kind] += many
        self.ended = result.log_ended

    def finish_joined(self, started: float) -> VerifyReport:
        """Look at what no record asked for."""
        state, scanner = self.state, self.scanner
        scanner.end = state.position
        scanner.last_offset, scanner.last_store_timestamp = state.last_offset, state.last_store_timestamp
        scanner.damage.extend(state.damage)
        self.joined_queues.restore(state, self._lights, self._lost)
        self.pieces = self.entries.pieces(state.entry)
        self.next_piece()
        for account in self.accounts():
            if account.accounted != account.size:
                self.found(
                    Fault(
                        "unaccounted",
                        account.file,
                        f"{account.size - account.accounted} of {account.size} bytes are neither records, nor"
                        " blank, nor damage, nor behind the end of the log",
                        0,
                        hint="the file changed while it was read, or this is a defect of penstock",
                        note=self.directory.is_live,
                    )
                )
        return self.finish(self.joined, started)

    def accounts(self) -> Iterator[FileBytes]:
        """What the bytes of each file of the log are."""
        for file in self.directory.log_files:
            records, blank, damaged = self._bytes.get(file.path, [0, 0, 0])
            yield FileBytes(file.path, file.size, records, blank, damaged, self._behind_end(file))

    def _behind_end(self, file: QueueFile) -> int:
        return max(0, file.begin + file.size - max(file.begin, self.state.position))
