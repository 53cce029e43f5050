"""Walking a stretch of the commit log, record by record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from penstock.format.malformed import Buffer, Malformed
from penstock.format.record import BLANK_MAGIC_CODE, RecordFields, check_record, decode_record, find_spans

SECTOR = 512
"""The unit in which a disk may or may not have written what a crash interrupted."""

Stop = Literal["end", "blank", "zero", "magic", "length", "crc", "offset", "short", "torn"]


@dataclass(frozen=True, slots=True)
class WalkResult:
    """The records found, the position behind the last of them, and why the walk ended there.

    * "end": every byte was used. "blank": the filler that closes a file stands at ``end_position``.
    * "zero": nothing was written there. "magic": something else was.
    * "length": half a message. "short": it does not fit in the bytes given.
    * "crc": the body, or the record, is not what was written.
    * "offset": a record of another place, left over from an older life of the file.
    * "torn": the body is whole, but a sector of topic and properties was never written.
    """

    records: list[RecordFields]
    end_position: int
    stop: Stop


def walk(
    buffer: Buffer,
    start_position: int,
    end_position: int,
    base_offset: int,
    *,
    check_crc: bool = True,
    check_offset: bool = True,
    check_property_crc: bool = False,
    check_torn: bool = False,
) -> WalkResult:
    """The records from ``start_position`` on, up to ``end_position`` or the first that fails a check.

    Position 0 of the buffer is ``base_offset`` in the log. A blank is known by its magic alone, wherever the
    bytes given end: whoever knows the file compares its length. ``check_property_crc`` replaces the body's
    CRC by the record's, as in ``check_record``; ``check_offset`` compares each record's own offset with its
    place; ``check_torn`` looks for sectors that were never written. Lengths are judged before CRCs, so a half
    message is "length" whatever its body holds.
    """
    end = min(end_position, len(buffer))
    records: list[RecordFields] = []
    position = start_position
    while position < end:
        stop = _judge(buffer, position, end, check_crc=check_crc, check_property_crc=check_property_crc)
        if stop is not None:
            return WalkResult(records, position, stop)
        record = decode_record(buffer, position)
        if check_offset and record.physical_offset != base_offset + position:
            return WalkResult(records, position, "offset")
        if check_torn and is_torn(buffer, position, base_offset):
            return WalkResult(records, position, "torn")
        records.append(record)
        position += record.total_size
    return WalkResult(records, position, "end")


def _judge(
    buffer: Buffer, position: int, end: int, *, check_crc: bool, check_property_crc: bool
) -> Stop | None:
    """Why the walk ends at ``position``.

    Or None when a record stands there whose lengths and CRC are right.
    """
    if position + 8 <= end and int.from_bytes(buffer[position + 4 : position + 8], "big") == BLANK_MAGIC_CODE:
        return "blank"
    _, ok, reason = check_record(buffer, position, end, check_crc=False)
    if ok and check_crc:
        _, ok, reason = check_record(buffer, position, end, check_property_crc=check_property_crc)
    return None if ok else cast(Stop, reason)


def is_torn(buffer: Buffer, position: int, base_offset: int) -> bool:
    """Whether a sector's whole share of the topic and what follows it is zero bytes.

    That is what a record looks like whose body reached the disk and whose tail did not: magic, lengths and
    body CRC are right and the message is poison. The length of no properties is zero by right and proves
    nothing by itself. Sectors are those of the log, whose files start on one. The record must be whole.
    """
    spans = find_spans(buffer, position, len(buffer))
    if spans is None:
        raise Malformed(f"no record at position {position}: length")
    topic, properties = spans.topic, spans.properties
    empty = properties.start == properties.stop
    if empty and topic.start == topic.stop:
        return False
    at = topic.start
    while at < spans.end:
        sector = (base_offset + at) // SECTOR
        stop = min(spans.end, (sector + 1) * SECTOR - base_offset)
        proves_nothing = empty and at >= properties.start - 2
        if not any(buffer[at:stop]) and not proves_nothing:
            return True
        at = stop
    return False
