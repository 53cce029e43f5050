"""The records of a log in order, whoever wrote it and whatever happened to it.

Every record is checked. Where one fails, the scan looks for the next whole record that says of itself that it
lies there, reports what is between, and goes on; where none follows, the log ends. The end is

* with an owner at work, the highest place that a queue points to (design: visible is what is queued);
* otherwise the first place from which on there are no whole records, leftovers of an older log aside.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Protocol

from penstock._native.record import walk
from penstock._native.stored import Slab, message_at
from penstock._native.units import find_record, first_nonzero, record_header
from penstock.store.damagedpart import Damage
from penstock.store.directory import StoreDirectory
from penstock.store.fault import Fault
from penstock.store.filler import TOPIC as FILLER_TOPIC
from penstock.store.logwindow import LogWindow
from penstock.store.position import load as load_position
from penstock.store.sizes import QueueFile

WINDOW = 4 << 20
# Behind damage a record must be found whole: pieces overlap by the longest record that is looked for.
SEARCH_OVERLAP = 8 << 20
SEARCH_FIRST = 256 << 10
_RECORD_LIMIT = 256 << 20
_HEADER = struct.Struct(">ii")

_WORDS = {
    "zero": "zeros where a record should be",
    "magic": "no record begins here: neither of the two magic codes",
    "length": "a record whose lengths contradict each other",
    "crc": "a record that does not have its CRC",
    "offset": "a record that says it lies elsewhere",
    "short": "a record that goes on behind the end of its file",
    "torn": "a record of which whole sectors are zeros",
    "blank": "a blank whose length does not reach the end of its file",
    "unfinished": "zeros, and bytes behind them",
    "read": "the system cannot read these bytes",
}


class StepResult(Protocol):
    """What stepping over records gives; ``penstock._native.record.WalkResult`` is one."""

    @property
    def end_position(self) -> int: ...
    @property
    def last_position(self) -> int: ...
    @property
    def last_store_timestamp(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def stop(self) -> str: ...


Step = Callable[[memoryview, int], StepResult]
"""Check records from the start of a view whose first byte has the given physical offset."""


@dataclass(frozen=True, slots=True)
class Run:
    """Whole records: ``view[:end]``, from physical offset ``base`` on. Valid until the next one comes."""

    view: memoryview
    base: int
    end: int
    file: QueueFile


def walk_step(view: memoryview, base: int) -> StepResult:
    """The plain step: lengths, CRC, physical offset, lost sectors."""
    result: StepResult = walk(view, 0, len(view), base, check_torn=True)
    return result


class LogScanner:
    """One pass over the log of a directory. ``end`` and ``damage`` are known when ``runs`` has ended."""

    def __init__(
        self,
        directory: StoreDirectory,
        *,
        begin: int | None = None,
        limit: int | None = None,
        resynchronise: bool = True,
        step: Step = walk_step,
        on_fault: Callable[[Fault], None] = lambda fault: None,
        progress: Callable[[int, int], None] = lambda done, whole: None,
        window: int = WINDOW,
    ) -> None:
        self.directory = directory
        self.files = directory.log_files
        self.begin = directory.min_physical_offset if begin is None else begin
        self.end = self.begin
        self.damage: list[Damage] = []
        self.damage_count = 0
        self.tail = ""
        self.last_offset = -1
        self.last_store_timestamp = 0
        # Without it the log ends at the first place that is no whole record, and nothing is reported.
        self._resynchronises = resynchronise
        self._step = step
        self._on_fault = on_fault
        self._progress = progress
        self._window = LogWindow(directory.storage, window)
        # Behind ``limit`` nothing is looked at: who gives it knows that the log reaches so far.
        self._live_end = limit if limit is not None or not directory.is_live else directory.queued_end
        position = load_position(directory.storage, directory.root) if directory.is_closed else None
        self._clean_end = position.clean_end if position is not None else -1

    # -- the pass ----------------------------------------------------------------------------------

    def runs(self) -> Iterator[Run]:
        """Whole records in order, in pieces."""
        position = self.begin
        try:
            while (file := self._file_at(position)) is not None:
                if position < file.begin:
                    self._report_missing_file(position, file.begin)
                    position = file.begin
                goes_on = yield from self._scan_file(file, position)
                position = self.end
                if not goes_on:
                    break
            self._check_end()
        finally:
            self._window.close()

    def messages(self) -> Iterator[Any]:
        """Stored messages in log order. Each may be kept, and keeps its piece of the log in memory."""
        for run in self.runs():
            slab = Slab(bytes(run.view[: run.end]))
            position = 0
            while position < run.end:
                message = message_at(slab, position)
                assert message is not None  # the run was walked
                position += message.size
                if message.topic != FILLER_TOPIC.decode():
                    yield message

    def _file_at(self, position: int) -> QueueFile | None:
        """The file that holds a position, else the next one."""
        if self._live_end is not None and position >= self._live_end:
            return None
        return next((file for file in self.files if file.begin + file.size > position), None)

    def _limit(self, file: QueueFile) -> int:
        end = file.begin + file.size
        return end if self._live_end is None else min(end, self._live_end)

    def _scan_file(self, file: QueueFile, position: int) -> Generator[Run, None, bool]:
        """Runs of one file; answers whether the log goes on in another."""
        limit = self._limit(file)
        while position < limit:
            self.end = position
            self._progress(position - self.begin, self._whole())
            try:
                view = self._window.load(file, position - file.begin)[: limit - position]
            except OSError:
                view = memoryview(b"")
            if not view:
                found = self._resynchronise(file, position, "read")
                if found is None:
                    return False
                position = self.end = found
                if found >= file.begin + file.size:
                    return True
                continue
            result = self._step(view, position)
            if result.end_position:
                if result.last_position >= 0:
                    self.last_offset = position + result.last_position
                    self.last_store_timestamp = max(self.last_store_timestamp, result.last_store_timestamp)
                yield Run(view, position, result.end_position, file)
                position += result.end_position
                self.end = position
            stop, at = result.stop, result.end_position
            if stop == "end":
                continue
            if stop == "short" and position + len(view) - at < limit:
                # The record goes on behind the window. Believe its length only if the rest of it agrees.
                if at:
                    self._window.shrink()
                    continue
                if self._is_plausible(file, position, result.length):
                    self._window.grow(result.length)
                    continue
                stop = "length"
            if stop == "blank" and self._is_whole_blank(file, position, result.length):
                if self._file_at(file.begin + file.size) is None:
                    return False
                self.end = file.begin + file.size
                return True
            found = self._resynchronise(file, position, stop)
            if found is None:
                return False
            position = self.end = found
            if found >= file.begin + file.size:
                return True
        self.end = position
        return position >= file.begin + file.size

    def _is_whole_blank(self, file: QueueFile, position: int, length: int) -> bool:
        """A blank reaches to the end of its file. (Of a file that was cut, nobody knows the end.)"""
        return length == file.begin + file.size - position or file.size != self.directory.segment_size

    def _whole(self) -> int:
        last = self.files[-1] if self.files else None
        return max(1, last.begin + last.size - self.begin) if last else 1

    def _is_plausible(self, file: QueueFile, position: int, size: int) -> bool:
        """Whether the lengths inside of a long record add up: only then is so much memory taken."""
        at = position - file.begin
        if not 91 <= size <= min(_RECORD_LIMIT, file.size - at):
            return False
        storage = self.directory.storage
        head = storage.pread(file.path, at, 160)
        flags = int.from_bytes(head[36:40], "big")
        fixed = 84 + (12 if flags & 0x10 else 0) + (12 if flags & 0x20 else 0)
        body = int.from_bytes(head[fixed : fixed + 4], "big", signed=True)
        width = 2 if head[4:8] == b"\xda\xa3\x20\xab" else 1
        if body < 0 or fixed + 4 + body + width + 2 > size:
            return False
        rest = storage.pread(
            file.path, at + fixed + 4 + body, size - fixed - 4 - body if size < 1 << 17 else 1 << 17
        )
        topic = int.from_bytes(rest[:width], "big", signed=True)
        if topic < 0 or width + topic + 2 > len(rest):
            return False
        properties = int.from_bytes(rest[width + topic : width + topic + 2], "big", signed=True)
        return fixed + 4 + body + width + topic + 2 + max(0, properties) == size

    # -- where a record fails ----------------------------------------------------------------------

    def _resynchronise(self, file: QueueFile, position: int, reason: str) -> int | None:
        """The place where the log goes on, with the damage reported; None where it ends."""
        if not self._resynchronises:
            return None
        directory = self.directory
        closed = directory.is_closed and not directory.is_live
        if closed and self._is_recovered_end(position):
            self._note_leftovers(file, position)
            return None
        if (
            reason == "zero"
            and self._live_end is None
            and not directory.is_closed
            and directory.queued_end <= position
        ):
            # Never finished, and nobody knew of it: opening the store ends the log here, whatever follows.
            if self._has_bytes(file, position):
                self._judge_tail(file, position, "unfinished")
            return None
        found = self._search(file, position, reason)
        if found is not None:
            self._report_damage(file, position, found, reason)
            return found
        self._judge_tail(file, position, reason)
        return None

    def _is_recovered_end(self, position: int) -> bool:
        """Whether the last owner said that the log ends here: what lies behind was cut off before."""
        if self._clean_end >= 0:
            return self._clean_end == position
        confirmed = self.directory.checkpoint.confirm_phy_offset
        return confirmed > 0 and confirmed == self.last_offset

    def _search(self, file: QueueFile, position: int, reason: str) -> int | None:
        """The next whole record behind a bad place that belongs to this log."""
        found = self._search_file(
            file, position + 1 if reason != "read" else self._behind_bad_sector(file, position)
        )
        if found is not None:
            return found
        for later in self.files:
            if (
                later.begin >= file.begin + file.size
                and (found := self._search_file(later, later.begin)) is not None
            ):
                return found
        return None

    def _behind_bad_sector(self, file: QueueFile, position: int) -> int:
        """Where reading works again: steps of a page, then of a megabyte."""
        at = (position // 4096 + 1) * 4096
        step = 4096
        while at < file.begin + file.size:
            try:
                if self._window.load(file, at - file.begin, 4096):
                    return at
            except OSError:
                pass
            at, step = at + step, min(step * 2, 1 << 20)
        return file.begin + file.size

    def _search_file(self, file: QueueFile, start: int) -> int | None:
        limit = self._limit(file)
        window = LogWindow(self.directory.storage, SEARCH_FIRST)
        try:
            at = start
            while at < limit:
                at = max(at, file.begin + window.next_data(file, at - file.begin) - 4)
                if at >= limit:
                    return None
                try:
                    view = window.load(file, at - file.begin)[: limit - at]
                except OSError:
                    at += 1 << 20
                    continue
                found, size = find_record(view, 0, at, 0)
                if found >= 0:
                    if self._belongs(view[found : found + size], at + found):
                        return at + int(found)
                    at += found + 1
                elif at + len(view) >= limit or not view:
                    return None
                elif window.capacity < 2 * SEARCH_OVERLAP:
                    # Most damage is short: look near first, then with room for the longest record.
                    window.grow(2 * SEARCH_OVERLAP)
                else:
                    at += max(1, len(view) - SEARCH_OVERLAP)
            return None
        except OSError:
            return None
        finally:
            window.close()

    def _belongs(self, record: memoryview, offset: int) -> bool:
        """Whether a whole record behind damage continues this log, and is no leftover of an older one."""
        header = record_header(record)
        if header is None:
            return False
        if int(header[5]) >= self.last_store_timestamp:
            return True
        # An older time: the clock was set back, or the record is a leftover. A queue that points there
        # decides, unless a recovery ran since, which leaves units behind as well.
        return not self.directory.is_closed and offset < self.directory.queued_end

    # -- what is said about it ---------------------------------------------------------------------

    def _fault(
        self, kind: str, file: QueueFile, position: int, found: str, hint: str = "", **more: Any
    ) -> None:
        self._on_fault(
            Fault(kind, file.path, found, position - file.begin, position, hint=hint, **more),
        )

    def _report_damage(self, file: QueueFile, begin: int, end: int, reason: str) -> None:
        self.damage_count += 1
        if len(self.damage) < 10_000:
            self.damage.append(Damage(begin, end, reason))
        self._fault(
            f"record-{reason}",
            file,
            begin,
            f"{_WORDS[reason]}; the log goes on at {end}, {end - begin} bytes further",
            "run `penstock store repair`: it keeps a copy of these bytes and makes the log whole around them",
            length=end - begin,
        )

    def _report_missing_file(self, begin: int, end: int) -> None:
        self.damage_count += 1
        self.damage.append(Damage(begin, end, "missing"))
        path = str(PurePath(self.directory.log_folder) / f"{begin:020d}")
        self._on_fault(
            Fault(
                "missing-file",
                path,
                f"the log has no bytes from {begin} to {end}",
                0,
                begin,
                length=end - begin,
                hint="restore the file from a backup",
            )
        )

    def _note_leftovers(self, file: QueueFile, position: int) -> None:
        if self._has_bytes(file, position):
            self.tail = "leftover"
            self._fault(
                "leftover",
                file,
                position,
                "bytes behind the end of the log, cut off by a recovery",
                note=True,
            )

    def _judge_tail(self, file: QueueFile, position: int, reason: str) -> None:
        """The log ends here. Nothing was lost by that, or the last record is damaged."""
        directory = self.directory
        queued = directory.queued_end
        if reason == "zero" and queued <= position:
            return
        self.tail = reason
        if queued > position and not (directory.is_closed and reason == "zero"):
            self._fault(
                f"record-{reason}",
                file,
                position,
                f"{_WORDS[reason]}; queues point up to {queued}, and no whole record follows",
                "run `penstock store repair`: it keeps a copy of these bytes and cuts the log here",
            )
        elif reason == "zero":
            # RocketMQ leaves units of a tail that it cut (format section 9.6).
            self._fault(
                "leftover-units",
                file,
                position,
                f"queues still point up to {queued}, behind the end",
                note=True,
            )
        elif directory.is_closed:
            self._fault(
                f"record-{reason}",
                file,
                position,
                f"{_WORDS[reason]}, and no whole record follows",
                "run `penstock store repair`: it keeps a copy of these bytes and cuts the log here",
            )
        else:
            self._fault(
                "torn-tail",
                file,
                position,
                f"{_WORDS[reason]}: a write that was under way when the owner was killed",
                "opening the store cuts it off; nobody was told that it is stored",
                note=True,
            )

    def _check_end(self) -> None:
        """A store that was closed by us said where its log ends."""
        if self.directory.is_live or self._clean_end <= self.end:
            return
        files = [file for file in self.files if file.begin <= self.end] or self.files[:1]
        path, begin = (files[-1].path, files[-1].begin) if files else (self.directory.log_folder, self.end)
        hint = "restore what is missing; if it lies elsewhere, name its folder in store_path_commit_log"
        found = f"the log ends here, but it was closed at {self._clean_end}"
        length = self._clean_end - self.end
        self._on_fault(
            Fault("log-ends-early", path, found, self.end - begin, self.end, length=length, hint=hint)
        )

    def _has_bytes(self, file: QueueFile, position: int) -> bool:
        try:
            view = self._window.load(file, position - file.begin)
        except OSError:
            return True
        return bool(first_nonzero(view) >= 0)


def record_boundary(directory: StoreDirectory, offset: int) -> int:
    """The first record at or behind a physical offset: the offset itself, if a record begins there."""
    file = next((f for f in directory.log_files if f.begin <= offset < f.begin + f.size), None)
    if file is None:
        return max(offset, directory.min_physical_offset)
    head = directory.storage.pread(file.path, offset - file.begin, 36)
    if head[4:7] == b"\xda\xa3\x20" and int.from_bytes(head[28:36], "big") == offset:
        return offset
    window = LogWindow(directory.storage, WINDOW)
    position = file.begin
    try:
        while position < offset:
            view = window.load(file, position - file.begin)
            limit = min(len(view), offset - position)
            result = walk(view, 0, len(view), position, check_crc=False)
            if position + result.end_position > offset:
                return _boundary_within(view, position, offset)
            position += result.end_position
            if limit and not result.end_position:
                return offset  # damage: the scan finds its own way from here
    finally:
        window.close()
    return position


def _boundary_within(view: memoryview, base: int, offset: int) -> int:
    at = 0
    while base + at < offset:
        at += _HEADER.unpack_from(view, at)[0]
    return base + at
