"""Is this store directory whole? Every record, queue unit, index chain, timer and checkpoint; each fault by
place.

Reads with ``pread`` only, takes no lock, changes nothing, and never raises on bad content: what cannot be
believed is a :class:`Fault`. Memory is bounded by windows, not by what lengths in the files say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from penstock._native import checking
from penstock.config import StoreConfig
from penstock.files.storage import Storage
from penstock.format.checkpoint import CHECKPOINT_SIZE, decode_checkpoint
from penstock.format.dispatch import light_queues, queue_writes
from penstock.format.javajson import parse
from penstock.format.malformed import Malformed
from penstock.format.queueunit import QueueUnit, encode_queue_unit, tags_code
from penstock.format.record import RecordFields, decode_record
from penstock.store.damagedpart import damage_at
from penstock.store.directory import StoreDirectory
from penstock.store.fault import Fault, FaultList
from penstock.store.foreign import foreign_files
from penstock.store.indexverifier import EntryPiece, IndexVerifier
from penstock.store.jsonfile import MAX_FILE_SIZE
from penstock.store.queueverifier import QueueFolders, QueueVerifier
from penstock.store.scan import LogScanner, StepResult
from penstock.store.sizes import queue_folders
from penstock.store.timerverifier import TimerVerifier

WINDOW = 8 << 20


@dataclass(slots=True)
class VerifyReport:
    """What a verification saw. ``healthy`` is what the exit code of the command says."""

    path: str
    closed: bool = True
    live: bool = False
    log_begin: int = 0
    log_end: int = 0
    records: int = 0
    damaged_ranges: int = 0
    lost_records: int = 0
    queues: int = 0
    units: int = 0
    index_files: int = 0
    index_entries: int = 0
    timer_units: int = 0
    seconds: float = 0.0
    fault_count: int = 0
    faults: list[Fault] = field(default_factory=list)
    notes: list[Fault] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return self.fault_count == 0

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["faults"] = [fault.as_dict() for fault in self.faults]
        values["notes"] = [note.as_dict() for note in self.notes]
        return {"healthy": self.healthy, **values}


@dataclass(slots=True)
class PassCounts:
    """What the pass over the log counted."""

    records: int = 0
    fillers: int = 0
    entries: int = 0
    keys_missing: int = 0
    first_key_missing: int = -1
    last_key_missing: int = -1


@dataclass(frozen=True, slots=True)
class _Step:
    """What the scanner wants to know of a step."""

    end_position: int
    last_position: int
    last_store_timestamp: int
    length: int
    stop: str


class Verifier:
    """One verification of one directory."""

    def __init__(
        self,
        directory: StoreDirectory,
        progress: Callable[[int, int], None] = lambda done, whole: None,
        limit: int = 1000,
    ) -> None:
        self.directory = directory
        self.found = FaultList(limit)
        self._delays = list(directory.config.delay_levels_ms)
        folders = {
            kind: {
                (topic, queue): path
                for topic, queue, path in queue_folders(directory.storage, directory.path(kind))
            }
            for kind in ("consumequeue", "batchconsumequeue", "consumequeue_ext")
        }
        self._batch_topics = {topic for topic, _ in folders["batchconsumequeue"]}
        log_begin = directory.min_physical_offset
        self.queues = self.make_queues(folders, log_begin)
        config = directory.config
        layout = (config.max_hash_slot_num, config.max_index_num)
        self.index = IndexVerifier(
            directory.storage,
            directory.path("index"),
            layout,
            self.found,
            live=directory.is_live,
            closed=directory.is_closed,
        )
        self.checker = checking.Checker(self._delays, log_begin)
        self.scanner = self.make_scanner(progress)
        self.queues.damage = self.scanner.damage
        self.pieces: Iterator[EntryPiece] = self.index.pieces()
        self.piece: EntryPiece | None = None

    def run(self) -> VerifyReport:
        """Look at everything."""
        started = time.monotonic()
        self.check_files()
        self.next_piece()
        for _ in self.scanner.runs():
            pass
        return self.finish(self.counts, started)

    def make_scanner(self, progress: Callable[[int, int], None]) -> LogScanner:
        """What goes over the log; for those who check a part of it."""
        return LogScanner(
            self.directory, step=self.step, on_fault=self.found, progress=progress, window=WINDOW
        )

    def make_queues(self, folders: QueueFolders, log_begin: int) -> QueueVerifier:
        """What knows the queues; for those who check a part of the log."""
        return QueueVerifier(self.directory.storage, folders, log_begin, self.found)

    @property
    def counts(self) -> PassCounts:
        """What the pass has counted so far."""
        checker = self.checker
        return PassCounts(
            checker.records,
            checker.fillers,
            checker.entries_checked,
            checker.keys_missing,
            checker.first_key_missing,
            checker.last_key_missing,
        )

    def finish(self, counts: PassCounts, started: float) -> VerifyReport:
        """After the pass: look at what no record asked for, and say what there was."""
        directory, scanner = self.directory, self.scanner
        self._finish_index(counts)
        queues, units = self.queues.finish(scanner.end, lagging_is_fault=directory.is_closed)
        self._check_checkpoint()
        self._check_settings()
        timer = TimerVerifier(
            directory, self.found, log_begin=scanner.begin, log_end=scanner.end, damage=scanner.damage
        )
        timer.run()
        if counts.fillers:
            self.found(
                Fault(
                    "filler",
                    directory.log_folder,
                    f"{counts.fillers} places where an earlier repair contained damage",
                    note=True,
                )
            )
        return VerifyReport(
            path=directory.root,
            closed=directory.is_closed,
            live=directory.is_live,
            log_begin=scanner.begin,
            log_end=scanner.end,
            records=counts.records,
            damaged_ranges=scanner.damage_count,
            lost_records=self.queues.lost_records,
            queues=queues,
            units=units,
            index_files=self.index.files,
            index_entries=counts.entries,
            timer_units=timer.units,
            seconds=time.monotonic() - started,
            fault_count=self.found.fault_count,
            faults=self.found.faults,
            notes=self.found.notes,
        )

    # -- the pass over the log ---------------------------------------------------------------------

    def step(self, view: memoryview, base: int) -> StepResult:
        """Check records until one fails, doing for the compiled part what it asks for."""
        checker = self.checker
        checker.begin()
        while True:
            code = checker.run(view, base)
            if code in (checking.DONE, checking.STOP):
                stop = "end" if code == checking.DONE else checker.stop
                length = checker.stop_length if code == checking.STOP else 0
                return _Step(
                    checker.position, checker.last_position, checker.last_store_timestamp, length, stop
                )
            if code == checking.NEED_QUEUE:
                at, length, queue_id, _ = checker.record_queue
                start = checker.position + at
                encoded = bytes(view[start : start + length])
                checker.add_queue(self.queues.open(encoded.decode("utf-8", "replace"), encoded, queue_id))
            elif code == checking.NEED_UNITS:
                self.queues.load_units(checker.needed_queue)
            elif code == checking.NEED_ENTRIES:
                self.next_piece()
            elif code in (checking.ENTRY_DIFFERS, checking.ENTRY_LOST):
                self._judge_entry(code == checking.ENTRY_LOST, base + checker.position)
                checker.skip_entry()
            else:
                self._judge_unit(code, view, base)

    def _record(self, view: memoryview) -> RecordFields:
        start = self.checker.position
        return decode_record(bytes(view[start : start + self.checker.record_size]), 0)

    def _judge_unit(self, code: int, view: memoryview, base: int) -> None:
        checker = self.checker
        record = self._record(view)
        if code == checking.UNIT_DIFFERS:
            code_wanted = tags_code(record.topic, record.properties, record.store_timestamp, self._delays)
            self.queues.unit_differs(checker.needed_queue, record, code_wanted)
            checker.queue_part_done()
        elif code == checking.OUT_OF_ORDER:
            queue = checker.needed_queue
            answer = self.queues.out_of_order(queue, record.queue_offset, record.physical_offset)
            if answer == "jump":
                queue.next = record.queue_offset
            elif answer == "next":
                checker.queue_part_done()
            else:
                checker.skip_unit()
        else:
            for write in queue_writes(record, self._delays, self._batch_topics):
                if code == checking.SPECIAL:
                    self.queues.check_batch_unit(write.topic, write.queue_id, write.unit)
            wanted = tags_code(record.topic, record.properties, record.store_timestamp, self._delays)
            unit = encode_queue_unit(QueueUnit(record.physical_offset, record.total_size, wanted))
            for name, queue_id, number in light_queues(record):
                self.queues.check_light_unit(name, queue_id, number, unit)
            checker.skip_unit()

    # -- the index ---------------------------------------------------------------------------------

    def next_piece(self) -> None:
        """Give the pass the index entries that come next."""
        self.piece = next(self.pieces, None)
        if self.piece is None:
            self.checker.set_entries(None, 0, 0)
        else:
            piece = self.piece
            self.checker.set_entries(piece.entries, piece.first_number, piece.begin_timestamp)

    def _judge_entry(self, lost: bool, record: int) -> None:
        number, key_hash, place, seconds = self.checker.entry
        piece = self.piece
        if piece is None or (lost and damage_at(self.scanner.damage, place) is not None):
            return
        if lost:
            found = f"entry {number} points at {place}, where no record begins"
        else:
            found = (
                f"entry {number} (hash {key_hash}, {seconds} s) does not go with the keys and the time of"
                f" the record at {record}"
            )
        self.found(
            Fault(
                "index",
                piece.path,
                found,
                piece.position(number),
                place if lost else record,
                hint="run `penstock store repair`: the index is rebuilt from the log",
            )
        )

    def _finish_index(self, counts: PassCounts) -> None:
        """Entries behind the last record, and keys that are in no file."""
        checker, end = self.checker, self.scanner.end
        leftover = 0
        while self.piece is not None:
            while checker.rest_of_entries():
                place = checker.entry[2]
                if place >= end:
                    leftover += 1
                elif place >= self.scanner.begin or place < 0:
                    self._judge_entry(True, 0)
                checker.skip_entry()
            self.next_piece()
        directory = self.directory
        if leftover and not directory.is_live:
            self.found(
                Fault(
                    "leftover-entries",
                    directory.path("index"),
                    f"{leftover} index entries point behind the end of the log at {end}",
                    note=True,
                )
            )
        if counts.keys_missing and not directory.is_live:
            self.found(
                Fault(
                    "missing-entries",
                    directory.path("index"),
                    f"{counts.keys_missing} keys of records from {counts.first_key_missing} to"
                    f" {counts.last_key_missing} are in no index file",
                    physical_offset=counts.first_key_missing,
                    hint="a killed RocketMQ loses index entries; `penstock store repair` rebuilds the index",
                    note=True,
                )
            )

    # -- files beside the log ----------------------------------------------------------------------

    def check_files(self) -> None:
        """Sizes, strangers and the mark of an owner."""
        directory = self.directory
        for error in directory.size_faults:
            file = error.file or directory.root
            # With an owner at work it is a file in the making; one that was killed may have left one.
            note = directory.is_live or (
                not directory.is_closed and PurePath(file).parent == PurePath(directory.path("index"))
            )
            self.found(Fault("file-size", file, error.message, 0, hint=error.hint, note=note))
        for path, what in foreign_files(directory):
            self.found(
                Fault("foreign-file", path, what, hint="move it away: a file queue holds nothing else")
            )
        if not directory.is_closed:
            self.found(
                Fault(
                    "abort",
                    directory.path("abort"),
                    "a process is using the store"
                    if directory.is_live
                    else "the last owner did not close the store",
                    hint="" if directory.is_live else "opening it recovers",
                    note=True,
                )
            )

    def _check_settings(self) -> None:
        """The JSON files under ``config``: each must be readable, or have a backup that is."""
        directory = self.directory
        try:
            names = [e.name for e in directory.storage.listdir(directory.path("config")) if not e.is_dir]
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            if not name.endswith(".json") or (wrong := self._json_fault(name)) is None:
                continue
            spare = f"{name}.bak" in names and self._json_fault(f"{name}.bak") is None
            hint = "its backup serves" if spare else "restore it from a backup"
            path, live = directory.path("config", name), directory.is_live
            self.found(Fault("config", path, wrong, 0, hint=hint, note=spare or live))

    def _json_fault(self, name: str) -> str | None:
        path = self.directory.path("config", name)
        try:
            if self.directory.storage.stat(path).size > MAX_FILE_SIZE:
                return f"larger than {MAX_FILE_SIZE} bytes"
            parse(self.directory.storage.read_file(path).decode())
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        except ValueError as error:
            return f"no JSON: {error}"
        return None

    def _check_checkpoint(self) -> None:
        """Its fields are lower bounds: none may be behind what there is."""
        directory, scanner = self.directory, self.scanner
        path = directory.path("checkpoint")
        try:
            size = directory.storage.stat(path).size
            data = directory.storage.pread(path, 0, CHECKPOINT_SIZE)
        except FileNotFoundError:
            if scanner.last_offset >= 0 and directory.is_closed:
                self.found(Fault("checkpoint", path, "missing", hint="opening the store makes a new one"))
            return
        except OSError as error:
            self.found(Fault("unreadable", path, f"cannot be read: {error.strerror}", 0))
            return
        if size != CHECKPOINT_SIZE:
            self.found(Fault("checkpoint", path, f"{size} bytes instead of {CHECKPOINT_SIZE}", 0))
        try:
            checkpoint = decode_checkpoint(data)
        except Malformed:
            return
        last = scanner.last_store_timestamp
        for number, (name, value) in enumerate(checkpoint._asdict().items()):
            bound = last if name.endswith("timestamp") else scanner.end
            if value < 0 or (value > bound and scanner.last_offset >= 0 and not directory.is_live):
                wrong = (
                    f"{name} is {value}, behind the last record ({bound})"
                    if value >= 0
                    else f"{name} is {value}"
                )
                self.found(
                    Fault("checkpoint", path, wrong, 8 * number, hint="opening the store writes a new one")
                )


def verify_store(
    path: str,
    *,
    storage: Storage | None = None,
    config: StoreConfig | None = None,
    progress: Callable[[int, int], None] = lambda done, whole: None,
    limit: int = 1000,
) -> VerifyReport:
    """Verify a directory. Raises NotAStore if it is none; ``limit`` bounds the faults kept, not counted."""
    return Verifier(StoreDirectory(storage, path, config), progress, limit).run()
