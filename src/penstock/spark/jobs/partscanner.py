"""The scan of one part of a log."""

from __future__ import annotations

from collections.abc import Callable

from penstock._native.units import record_header
from penstock.files.storage import Storage
from penstock.spark.jobs.passstate import NOWHERE, CheckedPart
from penstock.store.directory import StoreDirectory
from penstock.store.fault import Fault
from penstock.store.logwindow import LogWindow
from penstock.store.scan import LogScanner, StepResult
from penstock.store.sizes import QueueFile
from penstock.store.verify import WINDOW

_SMALLEST = 91
"""No record is shorter."""


class PartEnd(Exception):
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


class PartScanner(LogScanner):
    """The scan of one part. What it decides with knowledge of earlier parts, it notes."""

    def __init__(
        self,
        directory: StoreDirectory,
        part: CheckedPart,
        begin: int,
        *,
        step: Callable[[memoryview, int], StepResult],
        on_fault: Callable[[Fault], None],
    ) -> None:
        self._end = NOWHERE if part.end is None else part.end
        super().__init__(
            directory,
            begin=begin,
            step=step,
            on_fault=on_fault,
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
            raise PartEnd

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
