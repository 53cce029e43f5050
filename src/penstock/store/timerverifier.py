"""Are the timer's files whole? Each unit of the timer log, each slot of the wheel to come, the checkpoint.

Sections 15.3 to 15.6 of the store format. The timer log is the truth: a unit must lead to a message of the
timer topic and to an earlier unit of its own tick, a slot to the newest unit of its tick. Reads with
``pread`` only, a window at a time.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from typing import NamedTuple

from penstock._native.units import first_nonzero
from penstock.format.javahash import java_hash
from penstock.format.malformed import Malformed
from penstock.format.record import RecordFields, decode_record
from penstock.format.timerunit import (
    TIMER_BLANK_SIZE,
    TIMER_CHECKPOINT_SIZE,
    TIMER_MAGIC_DELETE,
    TIMER_MAGIC_ROLL,
    TIMER_UNIT_SIZE,
    WHEEL_SIZE,
    WHEEL_SLOT_SIZE,
    WHEEL_SLOTS,
    TimerCheckpoint,
    WheelSlot,
    decode_timer_checkpoint,
    decode_wheel_slot,
    encode_timer_blank,
)
from penstock.message.properties import PROPERTY_REAL_TOPIC, PROPERTY_TIMER_OUT_MS
from penstock.message.topic import TIMER_TOPIC
from penstock.store import position as positions
from penstock.store.damagedpart import Damage, damage_at
from penstock.store.directory import StoreDirectory
from penstock.store.fault import Fault, FaultList
from penstock.store.sizes import QueueFile, files_of
from penstock.store.timersnapshot import WheelSnapshots

_RAW_UNIT = struct.Struct(">iqIqiqiiq")
_UNITS_PER_READ = 16_384
_SLOTS_PER_READ = 32_768
_NO_UNIT = bytes(TIMER_UNIT_SIZE)
_HINT = "opening the store makes the wheel again from the timer log"


class _Unit(NamedTuple):
    """The fields of a unit, and where it lies in the timer log."""

    position: int
    unit_size: int
    previous: int
    magic: int
    write_time: int
    delay: int
    physical_offset: int
    size: int
    topic_hash: int
    reserved: int

    @property
    def fires_at(self) -> int:
        return self.write_time + self.delay

    @property
    def is_good(self) -> bool:
        return (
            self.unit_size == TIMER_UNIT_SIZE
            and 0 < self.magic <= 0xF
            and self.size > 0
            and self.physical_offset >= 0
            and -1 <= self.previous < self.position
            and self.write_time >= 0
            and self.delay >= 0
            and self.reserved == 0
        )


class TimerVerifier:
    """One verification of the timer files of a directory whose log was looked at before."""

    def __init__(
        self,
        directory: StoreDirectory,
        report: FaultList,
        *,
        log_begin: int,
        log_end: int,
        damage: list[Damage],
    ) -> None:
        self._directory = directory
        self._storage = directory.storage
        self._report = report
        self._log_begin, self._log_end, self._damage = log_begin, log_end, damage
        self._precision = directory.config.timer_precision_ms
        self._file_size = directory.config.mapped_file_size_timer_log
        self._files: dict[int, QueueFile] = {}
        self._wheel_path = directory.path("timerwheel")
        self._checkpoint = TimerCheckpoint()
        self.units = 0
        """Units that were there and right."""

    def run(self) -> None:
        """Look at everything. A directory without timer files is fine."""
        self._check_checkpoint()
        self._open_log()
        self._open_wheel()
        end = self._check_units()
        flushed = self._checkpoint.last_timer_log_flush_position
        if flushed > end:
            self._tell_checkpoint(
                8, f"says that the timer log is on disk up to {flushed}, but it ends at {end}"
            )
        if not self._directory.is_live:  # of a wheel that turns, each look sees another moment
            self._check_wheel(end)

    # -- the checkpoint ----------------------------------------------------------------------------

    def _check_checkpoint(self) -> None:
        path = self._directory.path("config", "timercheck")
        if not self._storage.exists(path):
            return
        try:
            size = self._storage.stat(path).size
            self._checkpoint = decode_timer_checkpoint(self._storage.pread(path, 0, TIMER_CHECKPOINT_SIZE))
        except (OSError, Malformed) as error:
            self._tell_checkpoint(0, f"cannot be read: {error}")
            return
        if size != TIMER_CHECKPOINT_SIZE:
            self._tell_checkpoint(0, f"{size} bytes instead of {TIMER_CHECKPOINT_SIZE}")
        for number, (name, value) in enumerate(self._checkpoint._asdict().items()):
            if value < 0:
                self._tell_checkpoint(8 * number, f"{name} is {value}")
        flushed = self._checkpoint.last_timer_log_flush_position
        if flushed > 0 and flushed % self._file_size % TIMER_UNIT_SIZE:
            self._tell_checkpoint(8, f"the flushed position {flushed} lies inside a unit of the timer log")

    def _tell_checkpoint(self, offset: int, found: str) -> None:
        path = self._directory.path("config", "timercheck")
        hint = "opening the store reads the whole timer log instead"
        self._report(Fault("timer-checkpoint", path, found, offset, hint=hint, note=self._directory.is_live))

    # -- the timer log -----------------------------------------------------------------------------

    def _open_log(self) -> None:
        before: QueueFile | None = None
        for file in files_of(self._storage, self._directory.path("timerlog")):
            if file.size != self._file_size:
                continue  # told of with the sizes of all files
            if file.begin % self._file_size:
                self._tell_log(file.begin, "a name that is no offset of a timer log file", file, note=False)
                continue
            if before is not None and file.begin != before.begin + self._file_size:
                self._tell_log(file.begin, f"a gap behind the file of {before.begin}", file, note=False)
            self._files[file.begin] = before = file

    @property
    def _begin(self) -> int:
        return min(self._files, default=0)

    @property
    def _units_per_file(self) -> int:
        return (self._file_size - TIMER_BLANK_SIZE) // TIMER_UNIT_SIZE

    def _is_open(self, position: int) -> bool:
        """Whether nobody said that the timer log is on disk there: a kill leaves anything, and RocketMQ
        leaves what it cut.
        """
        flushed = self._checkpoint.last_timer_log_flush_position
        return position >= flushed and (flushed > 0 or not self._directory.is_closed)

    def _tell_log(
        self,
        position: int,
        found: str,
        file: QueueFile | None = None,
        *,
        note: bool | None = None,
        field: int = 0,
    ) -> None:
        note = self._is_open(position) if note is None else note
        file = file or self._files[position - position % self._file_size]
        hint = "" if note else "messages of this place may come late, twice or not at all"
        offset = position - file.begin + field
        self._report(Fault("timer-unit", file.path, found, offset, hint=hint, note=note))

    def _check_units(self) -> int:
        """Each place of each file; the end of the last unit."""
        directory = self._directory
        flushed = self._checkpoint.last_timer_log_flush_position
        end, empty_from = self._begin, -1
        for position, data in self._places():
            if directory.is_live and position >= flushed:
                break
            if data == _NO_UNIT:
                empty_from = position if empty_from < 0 else empty_from
                continue
            if empty_from >= 0:
                self._tell_log(empty_from, f"nothing from {empty_from} to {position}, but units behind it")
                empty_from = -1
            end = position + TIMER_UNIT_SIZE
            unit = _Unit(position, *_RAW_UNIT.unpack(data))
            if unit.is_good:
                self.units += 1
                self._check_unit(unit)
            else:
                self._tell_log(position, f"no timer unit: {data[:28].hex()}…")
        for begin in sorted(self._files)[:-1]:
            self._check_blank(begin)
        return end

    def _places(self) -> Iterator[tuple[int, bytes]]:
        """Position and bytes of every place for a unit, up to the last one that is not empty in its file."""
        for begin in sorted(self._files):
            path, room = self._files[begin].path, self._units_per_file
            for number in range(0, room, _UNITS_PER_READ):
                wanted = min(room - number, _UNITS_PER_READ) * TIMER_UNIT_SIZE
                data = self._storage.pread(path, number * TIMER_UNIT_SIZE, wanted)
                if first_nonzero(data) < 0:
                    yield begin + number * TIMER_UNIT_SIZE, _NO_UNIT
                    continue
                for at in range(0, len(data) - TIMER_UNIT_SIZE + 1, TIMER_UNIT_SIZE):
                    yield begin + number * TIMER_UNIT_SIZE + at, data[at : at + TIMER_UNIT_SIZE]

    def _check_blank(self, begin: int) -> None:
        at = self._units_per_file * TIMER_UNIT_SIZE
        found = self._storage.pread(self._files[begin].path, at, TIMER_BLANK_SIZE)
        if found != encode_timer_blank(self._file_size - at):
            live_or_killed = not self._directory.is_closed
            self._tell_log(begin + at, f"no blank closes the file: {found.hex()}", note=live_or_killed)

    def _check_unit(self, unit: _Unit) -> None:
        tick = unit.fires_at // self._precision
        if unit.previous >= self._begin:
            before = self._unit_at(unit.previous)
            if before is None or before.fires_at // self._precision != tick:
                wrong = f"leads to {unit.previous}, where no unit of tick {tick} is"
                self._tell_log(unit.position, wrong, field=4)
        self._check_message(unit)

    def _unit_at(self, position: int) -> _Unit | None:
        inside = position % self._file_size
        file = self._files.get(position - inside)
        if file is None or inside % TIMER_UNIT_SIZE or inside // TIMER_UNIT_SIZE >= self._units_per_file:
            return None
        data = self._storage.pread(file.path, inside, TIMER_UNIT_SIZE)
        unit = _Unit(position, *_RAW_UNIT.unpack(data)) if len(data) == TIMER_UNIT_SIZE else None
        return unit if unit is not None and unit.is_good else None

    def _check_message(self, unit: _Unit) -> None:
        """The message that a unit stands for; what cleaning removed or damage hit is none of the timer's."""
        place = unit.physical_offset
        if place < self._log_begin or damage_at(self._damage, place) is not None:
            return
        if place >= self._log_end:
            wrong = f"points at {place}, behind the end of the log at {self._log_end}"
            killed = not self._directory.is_closed
            self._tell_log(unit.position, wrong, note=killed or self._is_open(unit.position), field=28)
            return
        record = self._record(place, unit.size)
        if record is None or record.topic != TIMER_TOPIC:
            wrong = f"points at {place}, where no timer message of {unit.size} bytes is"
            self._tell_log(unit.position, wrong, field=28)
            return
        real_topic = record.properties.get(PROPERTY_REAL_TOPIC, "")
        if java_hash(real_topic) != unit.topic_hash:
            wrong = f"hash {unit.topic_hash} is not that of the topic {real_topic!r} of its message"
            self._tell_log(unit.position, wrong, field=40)
        out = record.properties.get(PROPERTY_TIMER_OUT_MS, "")
        plain = out.isascii() and out.isdigit() and not unit.magic & TIMER_MAGIC_ROLL
        if plain and unit.fires_at < int(out) // self._precision * self._precision:
            self._tell_log(unit.position, f"fires at {unit.fires_at}, its message at {out}", field=16)

    def _record(self, place: int, size: int) -> RecordFields | None:
        files = self._directory.log_files
        number = bisect.bisect_right(files, place, key=lambda file: file.begin)
        if not number or place >= files[number - 1].begin + files[number - 1].size:
            return None
        file = files[number - 1]
        at = place - file.begin
        if at + size > file.size or self._size_at(file.path, at) != size:
            return None
        try:
            return decode_record(self._storage.pread(file.path, at, size), 0)
        except Malformed:
            return None

    def _size_at(self, path: str, at: int) -> int:
        return int.from_bytes(self._storage.pread(path, at, 4), "big")

    # -- the wheel ---------------------------------------------------------------------------------

    def _open_wheel(self) -> None:
        """Which file counts: the newest whole copy where these are kept."""
        if self._directory.config.timer_wheel_snapshot_flush:
            newest = WheelSnapshots(self._storage, self._wheel_path).newest()
            if newest is not None:
                self._wheel_path += f".{newest}"

    def _check_wheel(self, end: int) -> None:
        if not self._storage.exists(self._wheel_path):
            if self.units:
                self._tell_wheel(0, "missing, and there are timers", note=True)
            return
        size = self._storage.stat(self._wheel_path).size
        if size != WHEEL_SIZE:
            if size:
                self._tell_wheel(0, f"{size} bytes instead of {WHEEL_SIZE}")
            return
        exact = self._storage.exists(self._directory.path(positions.NAME))
        for number, slot in self._slots():
            self._check_slot(number * WHEEL_SLOT_SIZE, number, slot, end, exact=exact)
        self._check_completeness()

    def _tell_wheel(self, offset: int, found: str, *, note: bool = False) -> None:
        self._report(Fault("timer-wheel", self._wheel_path, found, offset, hint=_HINT, note=note))

    def _slots(self) -> Iterator[tuple[int, WheelSlot]]:
        """Number and content of every slot that is not empty."""
        for first in range(0, WHEEL_SLOTS, _SLOTS_PER_READ):
            count = min(_SLOTS_PER_READ, WHEEL_SLOTS - first)
            data = memoryview(
                self._storage.pread(self._wheel_path, first * WHEEL_SLOT_SIZE, count * WHEEL_SLOT_SIZE)
            )
            at = first_nonzero(data)
            while at >= 0:
                at -= at % WHEEL_SLOT_SIZE
                yield first + at // WHEEL_SLOT_SIZE, decode_wheel_slot(data, at)
                behind = at + WHEEL_SLOT_SIZE
                following = first_nonzero(data[behind:])
                at = behind + following if following >= 0 else -1

    def _check_slot(self, offset: int, number: int, slot: WheelSlot, end: int, *, exact: bool) -> None:
        """One slot. Of those whose time is over nothing is needed any more."""
        if slot.time < 0 or slot.time % WHEEL_SLOTS != number:
            self._tell_wheel(offset, f"tick {slot.time} does not belong in slot {number}")
            return
        if slot.time * self._precision < self._checkpoint.last_read_time or slot.last_position < 0:
            return
        if slot.last_position >= end:
            wrong = f"ends at {slot.last_position}, behind the end of the timer log at {end}"
            self._tell_wheel(offset + 16, wrong, note=not self._directory.is_closed)
            return
        unit = self._unit_at(slot.last_position)
        count, first = 0, -1
        while unit is not None and unit.fires_at // self._precision == slot.time:
            count += -1 if unit.magic & TIMER_MAGIC_DELETE else 1
            first = unit.position
            unit = self._unit_at(unit.previous) if unit.previous >= self._begin else None
        if first < 0:
            self._tell_wheel(offset + 16, f"ends at {slot.last_position}, where no unit of its tick is")
        elif slot.first_position != first and slot.first_position >= self._begin:
            self._tell_wheel(offset + 8, f"begins at {slot.first_position}, its first unit is at {first}")
        elif slot.message_count != count and slot.first_position >= self._begin:
            # RocketMQ leaves it behind when it mends a slot after a crash; nothing but flow control reads it.
            wrong = f"counts {slot.message_count} messages, its units are {count}"
            self._tell_wheel(offset + 24, wrong, note=not exact)

    def _check_completeness(self) -> None:
        """Units to come that their slot does not lead to."""
        lost = first = 0
        for position, data in self._places():
            unit = _Unit(position, *_RAW_UNIT.unpack(data))
            if not unit.is_good or unit.fires_at < self._checkpoint.last_read_time:
                continue
            tick = unit.fires_at // self._precision
            offset = tick % WHEEL_SLOTS * WHEEL_SLOT_SIZE
            slot = decode_wheel_slot(self._storage.pread(self._wheel_path, offset, WHEEL_SLOT_SIZE), 0)
            if slot.time != tick:
                # A clock that was set back leaves such: what had fired does not fire again.
                first, lost = (first if lost else position), lost + 1
            elif slot.last_position < position:
                wrong = f"ends at {slot.last_position}, but the unit at {position} belongs to it"
                self._tell_wheel(offset + 16, wrong, note=self._is_open(position))
        if lost:
            wrong = f"no slot for {lost} units of the timer log from {first} on"
            self._tell_wheel(0, wrong, note=True)
