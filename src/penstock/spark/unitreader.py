"""Records one by one: those that units of a queue point to, and those at given places."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from types import TracebackType

from penstock._native.record import walk
from penstock._native.rows import Decoder, unit_spans
from penstock.spark.logreader import Bad
from penstock.spark.places import Place
from penstock.spark.queuefiles import QueueFiles, QueueFileSizes
from penstock.spark.ranges import QueueRange
from penstock.store.logwindow import LogWindow
from penstock.store.sizes import QueueFile

UNITS_AT_ONCE = 4096
GAP = 64 << 10
"""Records no further apart are read together."""
SPAN = 4 << 20
_RECORD_LIMIT = 256 << 20


class UnitReader:
    """Reads the log of a place by position. One thread; a view is valid until the next read."""

    def __init__(self, place: Place, queue_files: QueueFileSizes | None = None) -> None:
        self.place = place
        self._files = place.log_files
        self._begins = [file.begin for file in self._files]
        self._segment = place.segment_size or place.directory.segment_size
        self._window = LogWindow(place.storage, SPAN)
        self._queues = QueueFiles(place, queue_files or QueueFileSizes())

    def __enter__(self) -> UnitReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._window.close()
        self._queues.close()

    def feed(self, decoder: Decoder, part: QueueRange, *, check_crc: bool) -> Iterator[Bad | None]:
        """Give the records of a queue range to the decoder. None: it is full; else what is bad."""
        offset = part.start
        while offset < part.end:
            count = min(UNITS_AT_ONCE, part.end - offset)
            try:
                units, size = self._queues.units(part.topic, part.queue_id, offset, count)
            except FileNotFoundError:
                units, size = b"", 0
            if not units:
                yield self._gone(part, offset)
                kept = self._queues.first_offset(part.topic, part.queue_id)
                if kept <= offset:
                    return
                offset = kept
                continue
            for first, last, begin, end in unit_spans(units, size, GAP, SPAN, self._segment):
                view = self._load(begin, end)
                at = first
                while at < last:
                    at, stop = decoder.feed_units(
                        view, begin, units, at, last, size, *part[:2], offset, *part[2:], check_crc
                    )
                    if stop == "limit":
                        yield None
                        view = self._load(begin, end)
                    elif stop != "end":
                        yield self._bad_unit(units[at * size : (at + 1) * size], stop)
                        view = self._load(begin, end)
                        at += 1
            if size == 46:
                last_unit = units[len(units) - size :]
                offset = int.from_bytes(last_unit[28:36], "big") + int.from_bytes(last_unit[36:38], "big")
            else:
                offset += len(units) // size

    def record(self, offset: int, *, check_crc: bool) -> memoryview | Bad:
        """The record at a physical offset, checked, or what is wrong there."""
        head = self._load(offset, offset + 8)
        size = int.from_bytes(head[:4], "big") if len(head) == 8 else 0
        if not 0 < size <= _RECORD_LIMIT:
            return self._bad(offset, offset + 8, "no record begins here")
        view = self._load(offset, offset + size)
        result = walk(view, 0, len(view), offset, check_crc=check_crc, check_torn=True)
        if result.records != 1 or len(view) != size:
            return self._bad(offset, offset + size, f"record: {result.stop}")
        return view

    def raw(self, begin: int, end: int) -> bytes:
        """Bytes of the log as they are; fewer where there are none."""
        return bytes(self._load(begin, end))

    def _file(self, offset: int) -> QueueFile | None:
        number = bisect_right(self._begins, offset) - 1
        file = self._files[number] if number >= 0 else None
        return file if file is not None and file.holds(offset) else None

    def _load(self, begin: int, end: int) -> memoryview:
        file = self._file(begin)
        if file is None:
            return memoryview(b"")
        self._window.grow(end - begin)
        try:
            return self._window.load(file, begin - file.begin, end - begin)
        except OSError:
            return memoryview(b"")

    def _bad_unit(self, unit: bytes, stop: str) -> Bad:
        physical, size = int.from_bytes(unit[:8], "big"), int.from_bytes(unit[8:12], "big")
        return self._bad(physical, physical + size, f"the record that a queue points to: {stop}")

    def _bad(self, begin: int, end: int, reason: str) -> Bad:
        file = self._file(begin)
        if file is None or not self.place.storage.exists(file.path):
            return Bad(begin, end, reason, file.path if file else self.place.uri, 0, lost=True)
        return Bad(begin, end, reason, file.path, begin - file.begin)

    def _gone(self, part: QueueRange, offset: int) -> Bad:
        return Bad(0, 0, f"{part.topic}/{part.queue_id} has no unit {offset}", self.place.uri, 0, lost=True)
