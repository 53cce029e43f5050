"""Timer messages on their way into the wheel: their units, their slots, and the chains back (store format,
sections 15.4, 15.5 and 15.7)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from penstock.format.javahash import java_hash
from penstock.format.malformed import Buffer
from penstock.format.record import RecordFields, decode_record
from penstock.format.timerunit import (
    TIMER_MAGIC_DEFAULT,
    TIMER_MAGIC_DELETE,
    TIMER_MAGIC_ROLL,
    TIMER_UNIT_SIZE,
    WHEEL_SLOT_SIZE,
    TimerUnit,
    WheelSlot,
    decode_timer_unit,
    decode_wheel_slot,
    encode_timer_unit,
    encode_wheel_slot,
)
from penstock.message.properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_OUT_MS,
)

WHEEL_PAGE = 4096
"""The wheel is held and written in pieces of so many bytes."""
NO_TIME = -1
GOES_ON, BROKEN, FORWARDS = range(3)
"""How the part of a chain that lies in one file ended."""

Rules = tuple[int, int, int, int, int]
"""Write time, base of the roll window, window, precision, and the first time that can be joined."""


def count_late(records: Sequence[Buffer], begin: int, before: int) -> int:
    """How many records from ``begin`` on, without a gap, name a time before this one."""
    count = 0
    for record in records[begin:]:
        if not NO_TIME < _time(decode_record(record)) < before:
            break
        count += 1
    return count


def join_units(
    records: Sequence[Buffer],
    begin: int,
    pages: dict[int, bytearray],
    wheel_slots: int,
    position: int,
    room: int,
    rules: Rules,
    out: int = NO_TIME,
) -> tuple[int, bytes, bytes, dict[str, int]]:
    """Units for messages that join the wheel, from ``begin`` on: how many, the units, the slots that changed,
    and counts by real topic.

    Ends before the first message that has no plain time or an earlier one than can be joined, or after
    ``room`` units. The first unit is to lie at ``position`` of the timer log. ``out`` replaces the time of
    the first message. Nothing is changed: the slots are to be set when the units are written.
    """
    write_time, base, window, precision, joinable = rules
    units: list[bytes] = []
    slots: dict[int, WheelSlot] = {}
    counts: dict[str, int] = {}
    for data in records[begin : begin + max(room, 0)]:
        record = decode_record(data)
        time = out if out != NO_TIME and not units else _time(record)
        if time == NO_TIME or time < joinable:
            break
        properties = record.properties
        deletes = PROPERTY_TIMER_DEL_UNIQKEY in properties
        magic = TIMER_MAGIC_DEFAULT | (TIMER_MAGIC_DELETE if deletes else 0)
        excess = time - base - window
        if excess >= 0:
            magic |= TIMER_MAGIC_ROLL
            ticks = window // precision
            # Shortly before the window's end only half the way: the last roll must not be a hasty one.
            time = base + (ticks // 2 if excess < ticks // 3 * precision else ticks) * precision
        written = min(write_time, time)
        if time - written >= 1 << 31 or time < 0:
            break
        tick = time // precision
        slot = slots.get(tick) or _slot(pages, wheel_slots, tick)
        topic = properties.get(PROPERTY_REAL_TOPIC, "")
        place, size = record.physical_offset, record.total_size
        unit = TimerUnit(slot.last_position, magic, written, time - written, place, size, java_hash(topic))
        units.append(encode_timer_unit(unit))
        step = -1 if deletes else 1
        first = position if slot.first_position < 0 else slot.first_position
        slots[tick] = WheelSlot(tick, first, position, slot.message_count + step, slot.magic)
        position += TIMER_UNIT_SIZE
        if topic and _plain_number(properties.get(PROPERTY_REAL_QUEUE_ID, "")) != NO_TIME:
            counts[topic] = counts.get(topic, 0) + step
    return len(units), b"".join(units), b"".join(map(encode_wheel_slot, slots.values())), counts


def set_slots(pages: dict[int, bytearray], wheel_slots: int, slots: Buffer) -> set[int]:
    """Write slots where they belong; the pages that changed. A page that is not there is made."""
    changed = set()
    for at in range(0, len(slots), WHEEL_SLOT_SIZE):
        tick = decode_wheel_slot(slots, at).time
        page, place = divmod(tick % wheel_slots * WHEEL_SLOT_SIZE, WHEEL_PAGE)
        held = pages.setdefault(page, bytearray(WHEEL_PAGE))
        held[place : place + WHEEL_SLOT_SIZE] = slots[at : at + WHEEL_SLOT_SIZE]
        changed.add(page)
    return changed


def follow_chain(
    units: Buffer, base: int, end: int, position: int, tick: int, precision: int
) -> tuple[array[int], array[int], int, int]:
    """A slot's units that lie in one file, newest first: positions, those of units that delete, where to go
    on, and how it ended.

    ``units`` is the file that begins at ``base`` of the timer log, which ends at ``end``. A chain only ever
    leads back, and to units of the same tick. GOES_ON: the place to go on is in another file, or -1. BROKEN:
    there is no such unit. FORWARDS: that unit, which is among the positions, leads forwards.
    """
    positions, deletes = array("q"), array("q")
    while base <= position < base + len(units):
        at = position - base
        if at % TIMER_UNIT_SIZE or position + TIMER_UNIT_SIZE > min(end, base + len(units)):
            return positions, deletes, position, BROKEN
        unit = decode_timer_unit(units, at)
        if not unit.is_plausible or (unit.write_time + unit.delay) // precision != tick:
            return positions, deletes, position, BROKEN
        only_deletes = unit.magic & TIMER_MAGIC_DELETE and not unit.magic & TIMER_MAGIC_ROLL
        (deletes if only_deletes else positions).append(position)
        if unit.previous >= position:
            return positions, deletes, position, FORWARDS
        position = unit.previous
    return positions, deletes, position, GOES_ON


def _slot(pages: dict[int, bytearray], wheel_slots: int, tick: int) -> WheelSlot:
    """The slot of a tick, with positions of -1 when nothing fires then."""
    page, place = divmod(tick % wheel_slots * WHEEL_SLOT_SIZE, WHEEL_PAGE)
    held = pages.get(page)
    slot = None if held is None else decode_wheel_slot(held, place)
    return slot if slot and slot.time == tick and slot.last_position >= 0 else WheelSlot(tick, -1, -1, 0)


def _time(record: RecordFields) -> int:
    return _plain_number(record.properties.get(PROPERTY_TIMER_OUT_MS, ""))


def _plain_number(text: str) -> int:
    """Up to eighteen digits and nothing else; NO_TIME for whatever else there is."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else NO_TIME
