"""Runs of whole records of a part of the log, and what lies between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from penstock._native.record import walk
from penstock._native.units import find_record
from penstock.spark.places import Place
from penstock.spark.planning import LogSplit
from penstock.spark.segments import SegmentDirectory
from penstock.store.directory import StoreDirectory
from penstock.store.fault import Fault
from penstock.store.logwindow import LogWindow
from penstock.store.scan import LogScanner, Run, StepResult
from penstock.store.sizes import QueueFile

WINDOW = 4 << 20
SLACK = 64 << 10
LOOK_BACK = 8 << 20
"""A split that begins inside of a record finds its first one from so far before it: walking from there passes
over whatever the body of a message holds, records of another log included."""


@dataclass(frozen=True)
class Bad:
    """Bytes [begin, end) of the log without whole records; ``lost``: their file is gone."""

    begin: int
    end: int
    reason: str
    file: str
    position: int
    lost: bool = False


class PartOfLog(SegmentDirectory):
    """The log of a place up to where it is known to reach. Costs one listing: a task needs no more."""

    def __init__(self, place: Place, limit: int) -> None:
        folder = place.root if place.kind == "segments" else f"{place.root}/commitlog"
        size = place.segment_size or place.directory.segment_size
        super().__init__(place.storage, folder, place.names, size)
        self._place = place
        self._limit = limit

    @cached_property
    def log_files(self) -> list[QueueFile]:
        return self._place.log_files

    def path(self, *names: str) -> str:
        return super().path(*(name for name in names if name != "commitlog"))

    @property
    def queued_end(self) -> int:
        """Everything before it belongs to the log."""
        return self._limit


class LogReader:
    """One pass over a split. What is bad between two runs is in ``bad`` when the second one comes."""

    def __init__(self, split: LogSplit, *, check_crc: bool = True, window: int = WINDOW) -> None:
        self.split = split
        self.bad: list[Bad] = []
        self._check_crc = check_crc
        self._window = window
        self._directory: StoreDirectory = (
            split.place.directory if split.limit is None else PartOfLog(split.place, split.limit)
        )

    def runs(self) -> Iterator[Run]:
        """Whole records that start inside of the split, in order. A run is valid until the next one comes."""
        split = self.split
        begin = self._start()
        if begin >= split.end:
            return
        scanner = LogScanner(
            self._directory,
            begin=begin,
            limit=split.limit,
            step=self._step,
            on_fault=self._note,
            # Little is asked for: behind a URI what is fetched for nothing is paid for.
            window=min(self._window, split.end - begin + SLACK),
        )
        for run in scanner.runs():
            first = boundary(run, split.begin) if run.base < split.begin else 0
            if run.base + first >= split.end:
                return
            last = run.end if run.base + run.end <= split.end else boundary(run, split.end)
            if first < last:
                yield Run(run.view[first:last], run.base + first, last - first, run.file)
            if last < run.end:
                return

    def take_bad(self) -> list[Bad]:
        """What was found bad since the last time, and begins inside of the split."""
        bad, self.bad = self.bad, []
        return [part for part in bad if self.split.begin <= part.begin < self.split.end]

    def _step(self, view: memoryview, base: int) -> StepResult:
        # Before the split only the way is looked for: another task checks what lies there.
        check = self._check_crc and base + len(view) > self.split.begin
        return walk(view, 0, len(view), base, check_crc=check, check_torn=True)

    def _note(self, fault: Fault) -> None:
        if fault.note or fault.physical_offset is None or fault.kind == "log-ends-early":
            return
        begin = fault.physical_offset
        limit = self.split.limit if self.split.limit is not None else self.split.end
        end = begin + fault.length if fault.length else max(begin, limit)
        if fault.kind == "missing-file":
            end = min(end, max(begin, self.split.end))  # each task tells of its own part of a hole
            if (cut := self._cut_file(begin)) is not None:
                self.bad.append(Bad(begin, end, fault.found, cut.path, begin - cut.begin))
                return
        lost = fault.kind == "missing-file" or (
            fault.kind == "record-read" and not self._directory.storage.exists(fault.file)
        )
        # What is missing behind a file that was cut is told by itself, and by the task it belongs to.
        stop = next((f.begin + f.size for f in self._directory.log_files if f.holds(begin)), end)
        self.bad.append(Bad(begin, min(end, stop), fault.found, fault.file, fault.offset or 0, lost))

    def _cut_file(self, offset: int) -> QueueFile | None:
        """The file that should hold an offset and was cut before it."""
        size = self._directory.segment_size
        return next((f for f in self._directory.log_files if f.begin <= offset < f.begin + size), None)

    def _start(self) -> int:
        """Where to begin to walk so that the first record of the split is met at its own place."""
        split = self.split
        file = next((f for f in self._directory.log_files if f.holds(split.begin)), None)
        if file is None or split.aligned or file.begin == split.begin:
            return split.begin
        if split.begin - LOOK_BACK <= file.begin:
            return file.begin
        window = LogWindow(self._directory.storage, LOOK_BACK)
        try:
            at = split.begin - LOOK_BACK
            view = window.load(file, at - file.begin, LOOK_BACK)
            found, _ = find_record(view, 0, at, 0)
        except OSError:
            return split.begin  # the scan meets the same error and says so
        finally:
            window.close()
        # No record lies whole in there: damage, or one that is longer. From the file's start all is sure.
        return at + int(found) if found >= 0 else file.begin


def boundary(run: Run, offset: int) -> int:
    """Position in a run of the first record that starts at a physical offset or behind it."""
    position = offset - run.base
    if position >= run.end:
        return run.end
    if position <= 0:
        return 0
    result = walk(run.view, 0, position, run.base, check_crc=False)
    at = int(result.end_position)
    return at if at >= position else at + int.from_bytes(run.view[at : at + 4], "big")
