"""Timer log units, timer wheel slots and the timer checkpoint (store format, sections 15.4 to 15.6)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.format.malformed import Buffer, Malformed
from penstock.format.record import BLANK_MAGIC_CODE

TIMER_UNIT_SIZE = 52
TIMER_BLANK_SIZE = 16
TIMER_MAGIC_DEFAULT = 1
TIMER_MAGIC_ROLL = 2
TIMER_MAGIC_DELETE = 4
WHEEL_SLOTS_TOTAL = 7 * 86400
WHEEL_SLOTS = WHEEL_SLOTS_TOTAL * 2
WHEEL_SLOT_SIZE = 32
WHEEL_SIZE = WHEEL_SLOTS * WHEEL_SLOT_SIZE
TIMER_CHECKPOINT_SIZE = 4096

_UNIT = struct.Struct(">iqIqiqiiq")
_BLANK = struct.Struct(">iqI")
_SLOT = struct.Struct(">qqqii")
_CHECKPOINT = struct.Struct(">7q")
TIMER_CHECKPOINT_USED = _CHECKPOINT.size
"""Bytes of the checkpoint that hold anything."""


class TimerUnit(NamedTuple):
    """One message waiting in the wheel.

    ``previous`` chains the units of a slot, newest first, -1 at its end.
    """

    previous: int
    magic: int
    write_time: int
    delay: int
    physical_offset: int
    size: int
    topic_hash: int
    unit_size: int = TIMER_UNIT_SIZE

    @property
    def is_plausible(self) -> bool:
        """Whether these bytes can be a unit: the blank at a file's end and unwritten bytes are not."""
        return self.unit_size == TIMER_UNIT_SIZE and self.magic | 0xF == 0xF

    @property
    def is_blank(self) -> bool:
        """Whether this closes a file.

        Its first number may happen to be a unit's size, so the magic decides.
        """
        return self.magic == BLANK_MAGIC_CODE


class WheelSlot(NamedTuple):
    """One slot: ``time`` counts ticks of the wheel's precision, positions are offsets in the timer log."""

    time: int
    first_position: int
    last_position: int
    message_count: int
    magic: int = 0


class TimerCheckpoint(NamedTuple):
    """What ``config/timercheck`` keeps."""

    last_read_time: int = 0
    last_timer_log_flush_position: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    version_timestamp: int = 0
    version_counter: int = 0


def encode_timer_unit(unit: TimerUnit) -> bytes:
    """The 52 bytes of a unit."""
    return _UNIT.pack(
        unit.unit_size,
        unit.previous,
        unit.magic,
        unit.write_time,
        unit.delay,
        unit.physical_offset,
        unit.size,
        unit.topic_hash,
        0,
    )


def decode_timer_unit(buffer: Buffer, position: int = 0) -> TimerUnit:
    """What stands at ``position``, unit or blank; Malformed when the buffer ends inside it."""
    if position >= 0 and position + TIMER_UNIT_SIZE <= len(buffer):
        fields = _UNIT.unpack_from(buffer, position)
        return TimerUnit(*fields[1:8])._replace(unit_size=fields[0])
    if position >= 0 and position + TIMER_BLANK_SIZE <= len(buffer):
        size, previous, magic = _BLANK.unpack_from(buffer, position)
        if magic == BLANK_MAGIC_CODE:
            return TimerUnit(previous, magic, 0, 0, 0, 0, 0, unit_size=size)
    raise Malformed(f"no timer unit at position {position} of {len(buffer)} bytes")


def encode_timer_blank(space_left: int) -> bytes:
    """The 16 bytes that close a timer log file."""
    return _BLANK.pack(space_left, 0, BLANK_MAGIC_CODE)


def encode_wheel_slot(slot: WheelSlot) -> bytes:
    """The 32 bytes of a slot."""
    return _SLOT.pack(*slot)


def decode_wheel_slot(buffer: Buffer, position: int) -> WheelSlot:
    """The slot at a byte position; Malformed when the buffer ends inside it."""
    if position < 0 or position + WHEEL_SLOT_SIZE > len(buffer):
        raise Malformed(f"no wheel slot at position {position} of {len(buffer)} bytes")
    return WheelSlot(*_SLOT.unpack_from(buffer, position))


def wheel_position(time_ms: int, precision_ms: int = 1000) -> int:
    """Byte position of the slot for a time."""
    return time_ms // precision_ms % WHEEL_SLOTS * WHEEL_SLOT_SIZE


def find_wheel_slot(buffer: Buffer, time_ms: int, precision_ms: int = 1000) -> WheelSlot | None:
    """The slot of a time, or None when its place holds another time's."""
    slot = decode_wheel_slot(buffer, wheel_position(time_ms, precision_ms))
    return slot if slot.time == time_ms // precision_ms else None


def encode_timer_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """The whole file of 4096 bytes."""
    return _CHECKPOINT.pack(*checkpoint).ljust(TIMER_CHECKPOINT_SIZE, b"\0")


def decode_timer_checkpoint(data: Buffer) -> TimerCheckpoint:
    """The fields of ``config/timercheck``; Malformed when cut short."""
    if len(data) < _CHECKPOINT.size:
        raise Malformed(f"a timer checkpoint has at least {_CHECKPOINT.size} bytes, not {len(data)}")
    return TimerCheckpoint(*_CHECKPOINT.unpack_from(data, 0))
