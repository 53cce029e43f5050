"""Every queue unit against the log: the part of ``verify`` that knows consume queues.

The pass over the log asks for the unit of each record. What it never asks for lies before the first record of
a queue (the log's head was deleted) or behind the last one, and is looked at when the pass is over.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from penstock._native.checkedqueue import CheckedQueue
from penstock._native.edges import bad_head_unit, bad_tail_unit
from penstock.files.storage import Storage
from penstock.format.batchunit import BATCH_UNIT_SIZE, BatchUnit, decode_batch_unit
from penstock.format.extunit import ExtUnit, decode_ext_unit, is_ext_address, undecorate
from penstock.format.malformed import Malformed
from penstock.format.record import RecordFields
from penstock.store.damagedpart import Damage, damage_at
from penstock.store.fault import Fault
from penstock.store.logwindow import LogWindow
from penstock.store.sizes import QueueFile, files_of

UNIT = 20
WINDOW_UNITS = 800
PIECE = 64 << 10
_UNIT = struct.Struct(">qiq")

Report = Callable[[Fault], None]
QueueFolders = dict[str, dict[tuple[str, int], str]]
"""Folder of each queue, by kind of queue."""


class UnitFiles:
    """The files of one queue, read by unit number."""

    def __init__(self, storage: Storage, folder: str, unit: int = UNIT) -> None:
        self.storage = storage
        self.folder = folder
        self.unit = unit
        self.files = [file for file in files_of(storage, folder) if file.size]

    def read(self, number: int, count: int) -> bytes:
        """Units from a number on, fewer at the end of a file; none where there is no file."""
        place = number * self.unit
        file = self.file_at(place)
        if file is None:
            return b""
        at = place - file.begin
        try:
            data = self.storage.pread(file.path, at, min(count * self.unit, file.size - at))
        except OSError:
            return b""
        return data[: len(data) // self.unit * self.unit]

    def file_at(self, place: int) -> QueueFile | None:
        """The file that holds a byte of the queue."""
        return next((f for f in self.files if f.begin <= place < f.begin + f.size), None)

    def where(self, number: int) -> tuple[str, int]:
        """File and position of a unit; of the folder if no file holds it."""
        file = self.file_at(number * self.unit)
        return (
            (self.folder, number * self.unit)
            if file is None
            else (file.path, number * self.unit - file.begin)
        )

    @property
    def begin(self) -> int:
        """Number of the first unit."""
        return self.files[0].begin // self.unit if self.files else 0


@dataclass(slots=True)
class _Simple:
    """A queue of 20-byte units."""

    files: UnitFiles
    checked: CheckedQueue
    ext_units: int = 0


class _Batch:
    """A queue of 46-byte units: its units in order, against the records in order."""

    def __init__(self, files: UnitFiles, log_begin: int) -> None:
        self.files = files
        self.next = files.begin
        self.checked = 0
        self.missing = 0
        while (unit := self.unit(self.next)) is not None and unit.physical_offset < log_begin:
            self.next += 1

    def unit(self, number: int) -> BatchUnit | None:
        data = self.files.read(number, 1)
        unit = decode_batch_unit(data) if len(data) == BATCH_UNIT_SIZE else None
        return unit if unit is not None and unit.is_valid else None


class QueueVerifier:
    """Reads units for the pass, and judges what does not fit."""

    def __init__(
        self,
        storage: Storage,
        folders: QueueFolders,
        log_begin: int,
        report: Report,
    ) -> None:
        self.storage = storage
        self.folders = folders
        self.log_begin = log_begin
        self.damage: list[Damage] = []
        self.lost_records = 0
        self._report = report
        self._simple: dict[tuple[str, int], _Simple] = {}
        self._batch: dict[tuple[str, int], _Batch] = {}
        self._light: dict[tuple[str, int], _Simple] = {}
        self._ext: dict[tuple[str, int], UnitFiles] = {}

    # -- during the pass ---------------------------------------------------------------------------

    def open(self, topic: str, encoded: bytes, queue_id: int) -> CheckedQueue:
        """The queue of a record that the pass met for the first time."""
        key = (topic, queue_id)
        batch = self.folders["batchconsumequeue"].get(key)
        checked = CheckedQueue(topic, queue_id, encoded, batch is not None)
        if batch is not None:
            files = UnitFiles(self.storage, batch, BATCH_UNIT_SIZE)
            self._batch[key] = _Batch(files, self.log_begin)
        else:
            folder = self.folders["consumequeue"].get(key, "")
            self._simple[key] = _Simple(UnitFiles(self.storage, folder), checked)
        return checked

    def load_units(self, queue: CheckedQueue) -> None:
        """Give the pass the units from the one on that it needs."""
        simple = self._simple[queue.topic, queue.queue_id]
        queue.set_units(simple.files.read(queue.next, WINDOW_UNITS), queue.next)

    def unit_differs(self, queue: CheckedQueue, record: RecordFields, tags_code: int) -> None:
        """The unit of a record is not what it should be."""
        physical, size, store_timestamp = record.physical_offset, record.total_size, record.store_timestamp
        key = (queue.topic, queue.queue_id)
        simple = self._simple[key]
        number = queue.next
        found, found_size, tags = _UNIT.unpack(simple.files.read(number, 1))
        if (found, found_size) == (physical, size):
            if queue.topic == "SCHEDULE_TOPIC_XXXX" and tags >= store_timestamp:
                return  # a time of delivery by the writer's own table of delays
            if is_ext_address(tags):
                self._check_ext(key, number, tags, tags_code, store_timestamp)
                return
            what = f"tags code {tags}, which is not that of its record at {physical}"
        else:
            what = f"points at {found} (size {found_size}) instead of its record at {physical} (size {size})"
        self._tell(
            "unit", simple.files, number, f"unit {number} of {queue.topic}-{queue.queue_id}: {what}", physical
        )

    def out_of_order(self, queue: CheckedQueue, queue_offset: int, physical: int) -> str:
        """A record does not carry its queue's next offset.

        Answers what to do with it: ``"jump"`` (its offset is right, units in between are judged here),
        ``"next"`` (the queue goes on, the record's own number is wrong) or ``"skip"``.
        """
        simple = self._simple[queue.topic, queue.queue_id]
        if queue_offset > queue.next and self._points_at(simple.files, queue_offset, physical):
            self._judge_gap(simple, queue, queue_offset)
            return "jump"
        name = f"{queue.topic}-{queue.queue_id}"
        if self._points_at(simple.files, queue.next, physical):
            self._tell(
                "queue-offset",
                simple.files,
                queue.next,
                f"unit {queue.next} of {name} points at {physical}, whose record says it is {queue_offset}",
                physical,
            )
            return "next"
        self._tell(
            "queue-offset",
            simple.files,
            max(0, queue_offset),
            f"the record at {physical} says it is {queue_offset} of {name}, where {queue.next} was due",
            physical,
        )
        return "skip"

    def _points_at(self, files: UnitFiles, number: int, physical: int) -> bool:
        if number < 0 or number * UNIT >= 1 << 63:
            return False
        data = files.read(number, 1)
        return len(data) == UNIT and _UNIT.unpack(data)[0] == physical

    def _judge_gap(self, simple: _Simple, queue: CheckedQueue, until: int) -> None:
        """Units whose records the pass did not see: they lie in damage that was told of, or are wrong."""
        number = queue.next
        while number < until:
            data = simple.files.read(number, min(until - number, PIECE // UNIT))
            if not data:
                self._tell(
                    "queue-gap",
                    simple.files,
                    number,
                    f"no units from {number} to {until} of {queue.topic}-{queue.queue_id}, nor records",
                )
                return
            for place, size, _ in _UNIT.iter_unpack(data):
                if size == 0x7FFFFFFF and place == 0:
                    pass  # its record is known to be gone
                elif self._is_damaged(place):
                    self.lost_records += 1
                else:
                    self._tell(
                        "unit",
                        simple.files,
                        number,
                        f"unit {number} of {queue.topic}-{queue.queue_id} points at {place},"
                        " where no record of this queue is",
                    )
                number += 1

    def _is_damaged(self, place: int) -> bool:
        return damage_at(self.damage, place) is not None

    def check_batch_unit(self, topic: str, queue_id: int, expected: bytes) -> None:
        """The unit of a record in a batch queue."""
        batch = self._batch[topic, queue_id]
        wanted = decode_batch_unit(expected)
        while True:
            unit = batch.unit(batch.next)
            if unit is None or unit.physical_offset > wanted.physical_offset:
                batch.missing += 1
                return
            data = batch.files.read(batch.next, 1)
            number = batch.next
            batch.next += 1
            if data == expected:
                batch.checked += 1
                return
            if unit.physical_offset < wanted.physical_offset and self._is_damaged(unit.physical_offset):
                self.lost_records += 1
                continue
            self._tell(
                "unit",
                batch.files,
                number,
                f"batch unit {number} of {topic}-{queue_id} is {tuple(unit)} instead of {tuple(wanted)}",
            )
            if unit.physical_offset == wanted.physical_offset:
                return

    def check_light_unit(self, topic: str, queue_id: int, number: int, expected: bytes) -> None:
        """The unit of a record in a light queue, if such queues were kept."""
        light = self._light_queue(topic, queue_id)
        if light is None:
            return
        data = light.files.read(number, 1)
        light.checked.next = max(light.checked.next, number + 1)
        if data and any(data) and data != expected:
            self._tell(
                "unit",
                light.files,
                number,
                f"unit {number} of light queue {topic}-{queue_id} is not that of its record at"
                f" {_UNIT.unpack(expected)[0]}",
            )

    def _light_queue(self, topic: str, queue_id: int) -> _Simple | None:
        key = (topic, queue_id)
        folder = self.folders["consumequeue"].get(key)
        if folder is not None and key not in self._light:
            checked = CheckedQueue(topic, queue_id, topic.encode(), True)
            self._light[key] = _Simple(UnitFiles(self.storage, folder), checked)
        return self._light.get(key)

    def _check_ext(
        self, key: tuple[str, int], number: int, address: int, tags_code: int, store_timestamp: int
    ) -> None:
        """A unit that names an extension unit: it must be there and have the record's tags and time."""
        simple = self._simple[key]
        files = self._ext.get(key)
        if files is None:
            files = self._ext[key] = UnitFiles(self.storage, self.folders["consumequeue_ext"].get(key, ""), 1)
        place = undecorate(address)
        found: ExtUnit | None = None
        data = files.read(place, 32767)
        try:
            found = decode_ext_unit(data) if data else None
        except Malformed as error:
            self._tell("ext-unit", files, place, str(error))
            return
        if found is None:
            self._tell(
                "unit",
                simple.files,
                number,
                f"unit {number} names extension unit {place}, which is not there",
            )
        elif (found.tags_code, found.store_timestamp) != (tags_code, store_timestamp):
            self._tell(
                "ext-unit",
                files,
                place,
                f"extension unit {place} has tags code {found.tags_code} and time {found.store_timestamp},"
                f" its record {tags_code} and {store_timestamp}",
            )
        else:
            simple.ext_units += 1

    # -- after the pass ----------------------------------------------------------------------------

    def finish(self, log_end: int, *, lagging_is_fault: bool) -> tuple[int, int]:
        """Look at the units that no record asked for. Gives numbers of queues and of units that are right."""
        queues = units = 0
        for topic, queue_id in self.folders["consumequeue"]:
            self._finish_simple(topic, queue_id, log_end, lagging_is_fault)
            queues += 1
        for key, folder in self.folders["batchconsumequeue"].items():
            if key not in self._batch:
                self._batch[key] = _Batch(UnitFiles(self.storage, folder, BATCH_UNIT_SIZE), self.log_begin)
            self._finish_batch(key, log_end, lagging_is_fault)
            queues += 1
        for key, simple in self._simple.items():
            units += simple.checked.checked
            if key not in self.folders["consumequeue"]:
                self._tell_missing(simple, simple.checked.missing, simple.checked.first, lagging_is_fault)
        return queues, units + sum(batch.checked for batch in self._batch.values())

    def _finish_simple(self, topic: str, queue_id: int, log_end: int, lagging_is_fault: bool) -> None:
        key = (topic, queue_id)
        simple = self._simple.get(key) or self._light.get(key)
        if simple is None:
            files = UnitFiles(self.storage, self.folders["consumequeue"][key])
            simple = _Simple(files, CheckedQueue(topic, queue_id, b"", True))
        checked = simple.checked
        if checked.missing:
            self._tell_missing(simple, checked.missing, checked.first_missing, lagging_is_fault)
        name = f"{topic}-{queue_id}"
        self._check_continuity(simple.files)
        first = checked.first
        if first < 0 and checked.next < 0:
            # No record of it is in the log: its units are older, or left over from behind the end.
            first = self._count_old(simple.files)
        if first > simple.files.begin:
            self._check_head(simple.files, first, name)
        self._check_tail(simple.files, max(checked.next, first, simple.files.begin), log_end, name)

    def _count_old(self, files: UnitFiles) -> int:
        """Number of the first unit that does not point before the log."""
        number = files.begin
        while data := files.read(number, PIECE // UNIT):
            bad = bad_head_unit(data, self.log_begin)
            if bad >= 0:
                return number + int(bad)
            number += len(data) // UNIT
        return number

    def _check_head(self, files: UnitFiles, until: int, name: str) -> None:
        number = files.begin
        while number < until and (data := files.read(number, min(until - number, PIECE // UNIT))):
            at = 0
            while (bad := bad_head_unit(data[at * UNIT :], self.log_begin)) >= 0:
                at += bad
                place, _, _ = _UNIT.unpack_from(data, at * UNIT)
                if self._is_damaged(place):
                    self.lost_records += 1
                else:
                    self._tell(
                        "unit",
                        files,
                        number + at,
                        f"unit {number + at} of {name} points at {place}, where no record of it is",
                    )
                at += 1
            number += len(data) // UNIT

    def _check_tail(self, files: UnitFiles, number: int, log_end: int, name: str) -> None:
        """Behind the last record a queue is empty, or holds what a recovery left (format section 9.6)."""
        window = LogWindow(self.storage, PIECE // UNIT * UNIT)
        try:
            for file in files.files:
                at = max(0, number * UNIT - file.begin)
                while at < file.size:
                    at = max(at, window.next_data(file, at) // UNIT * UNIT)
                    if at >= file.size:
                        break
                    data = window.load(file, at)
                    start = 0
                    while (bad := bad_tail_unit(data, log_end, start)) >= 0:
                        self._tell_tail(
                            files, file, at + bad * UNIT, bytes(data[bad * UNIT : bad * UNIT + UNIT]), name
                        )
                        start = bad + 1
                    at += max(UNIT, len(data) // UNIT * UNIT)
        except OSError as error:
            self._tell("unreadable", files, number, f"cannot be read: {error.strerror}")
        finally:
            window.close()

    def _tell_tail(self, files: UnitFiles, file: QueueFile, at: int, data: bytes, name: str) -> None:
        place, size, _ = _UNIT.unpack(data)
        number = (file.begin + at) // UNIT
        if self._is_damaged(place):
            self.lost_records += 1
            return
        self._tell(
            "unit",
            files,
            number,
            f"unit {number} of {name} points at {place} (size {size}), where no record of it is",
        )

    def _finish_batch(self, key: tuple[str, int], log_end: int, lagging_is_fault: bool) -> None:
        batch = self._batch[key]
        self._check_continuity(batch.files)
        if batch.missing:
            self._tell_lag(batch.files, batch.next, batch.missing, f"{key[0]}-{key[1]}", lagging_is_fault)
        while (unit := batch.unit(batch.next)) is not None:
            if unit.physical_offset < log_end:
                if self._is_damaged(unit.physical_offset):
                    self.lost_records += 1
                else:
                    self._tell(
                        "unit",
                        batch.files,
                        batch.next,
                        f"batch unit {batch.next} of {key[0]}-{key[1]} points at {unit.physical_offset},"
                        " where no record of it is",
                    )
            batch.next += 1

    def _check_continuity(self, files: UnitFiles) -> None:
        """Files of a queue follow each other."""
        for before, after in zip(files.files, files.files[1:], strict=False):
            if before.begin + before.size != after.begin:
                self._report(
                    Fault(
                        "missing-file",
                        after.path,
                        f"begins at {after.begin}, the file before it ends at {before.begin + before.size}",
                        0,
                        hint="run `penstock store repair`: queues are rebuilt from the log",
                    )
                )

    def _tell_missing(self, simple: _Simple, count: int, first: int, lagging_is_fault: bool) -> None:
        name = f"{simple.checked.topic}-{simple.checked.queue_id}"
        self._tell_lag(simple.files, first, count, name, lagging_is_fault)

    def _tell_lag(self, files: UnitFiles, number: int, count: int, name: str, is_fault: bool) -> None:
        path, at = files.where(number)
        self._report(
            Fault(
                "missing-units",
                path or name,
                f"{count} records of {name} have no unit, from {number} on",
                at,
                hint="run `penstock store repair`: queues are rebuilt from the log"
                if is_fault
                else "opening the store adds them",
                note=not is_fault,
            )
        )

    def _tell(
        self, kind: str, files: UnitFiles, number: int, found: str, physical: int | None = None
    ) -> None:
        path, at = files.where(number)
        self._report(
            Fault(
                kind,
                path,
                found,
                at,
                physical,
                hint="run `penstock store repair`: queues are rebuilt from the log",
            )
        )
