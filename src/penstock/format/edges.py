"""Queue units that no record of the log asks for: before its begin and behind its end."""

from __future__ import annotations

from penstock.format.malformed import Buffer
from penstock.format.queueunit import PRE_BLANK_UNIT, QUEUE_UNIT_SIZE, decode_queue_unit

EMPTY = bytes(QUEUE_UNIT_SIZE)


def bad_head_unit(units: Buffer, log_begin: int) -> int:
    """Number of the first unit that does not point before the log; -1 if all do.

    Units that fill the place before a queue's first are fine.
    """
    for number in range(len(units) // QUEUE_UNIT_SIZE):
        unit = decode_queue_unit(units, number * QUEUE_UNIT_SIZE)
        if (unit.physical_offset, unit.size) == (0, PRE_BLANK_UNIT.size):
            continue
        if unit.physical_offset < 0 or unit.size <= 0 or unit.physical_offset + unit.size > log_begin:
            return number
    return -1


def bad_tail_unit(units: Buffer, log_end: int, start: int = 0) -> int:
    """Number of the first unit from ``start`` on that is neither empty nor left over from behind the end of
    the log; -1 if none.
    """
    for number in range(start, len(units) // QUEUE_UNIT_SIZE):
        at = number * QUEUE_UNIT_SIZE
        if bytes(units[at : at + QUEUE_UNIT_SIZE]) == EMPTY:
            continue
        unit = decode_queue_unit(units, at)
        if unit.physical_offset < log_end or unit.size <= 0:
            return number
    return -1
