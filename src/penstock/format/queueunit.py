"""One unit of a consume queue and the tags code in it (store format, sections 9.1 and 9.2)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.format.javahash import java_hash
from penstock.format.malformed import Buffer, Malformed
from penstock.message.properties import PROPERTY_DELAY_TIME_LEVEL, PROPERTY_TAGS, parse_number
from penstock.message.topic import SCHEDULE_TOPIC

QUEUE_UNIT_SIZE = 20
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_UNIT = struct.Struct(">qiq")
_UNITS_OF_TIME = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class QueueUnit(NamedTuple):
    """Where a record lies and its tags code (or the address of its extension unit)."""

    physical_offset: int
    size: int
    tags_code: int

    @property
    def is_valid(self) -> bool:
        """Whether this can be a unit.

        Unwritten bytes are not; the units that fill a queue's unused head are.
        """
        return self.physical_offset >= 0 and self.size > 0


PRE_BLANK_UNIT = QueueUnit(0, 0x7FFFFFFF, 0)
"""Fills the first file of a queue that does not start at queue offset 0."""


def encode_queue_unit(unit: QueueUnit) -> bytes:
    """The 20 bytes of a unit."""
    return _UNIT.pack(*unit)


def decode_queue_unit(buffer: Buffer, position: int = 0) -> QueueUnit:
    """The unit at ``position``; Malformed when the buffer ends inside it."""
    if position < 0 or position + QUEUE_UNIT_SIZE > len(buffer):
        raise Malformed(f"no queue unit at position {position} of {len(buffer)} bytes")
    return QueueUnit(*_UNIT.unpack_from(buffer, position))


def parse_delay_levels(text: str = DEFAULT_DELAY_LEVELS) -> list[int]:
    """Delays in milliseconds, level 1 first; ValueError for a unit of time other than s, m, h, d."""
    delays = []
    for part in text.split():
        if part[-1] not in _UNITS_OF_TIME or not part[:-1].isdigit():
            raise ValueError(f"delay level {part!r} is not a number with one of s, m, h, d")
        delays.append(int(part[:-1]) * _UNITS_OF_TIME[part[-1]])
    return delays


_DEFAULT_DELAYS = tuple(parse_delay_levels())


def tags_code(
    topic: str,
    properties: Mapping[str, str],
    store_timestamp: int,
    delays: Sequence[int] = _DEFAULT_DELAYS,
) -> int:
    """The tags code of a record.

    The hash of its tags, or its time of delivery if it waits in the schedule topic.
    """
    delay_text = properties.get(PROPERTY_DELAY_TIME_LEVEL)
    if topic == SCHEDULE_TOPIC and delay_text is not None:
        level = min(parse_number(delay_text) or 0, len(delays))
        if level > 0:
            due = store_timestamp + delays[level - 1]
            return (due + (1 << 63)) % (1 << 64) - (1 << 63)  # a hostile store time wraps, as in Java
    tags = properties.get(PROPERTY_TAGS)
    return java_hash(tags) if tags else 0
