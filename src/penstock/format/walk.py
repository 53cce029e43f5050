"""Walking a stretch of the commit log, record by record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.format.malformed import Buffer
from penstock.format.record import RecordFields, RecordSpans, check_record, decode_record, find_spans

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
) -> WalkResult:
    """The records from ``start_position`` on, up to ``end_position`` or the first that fails a check.

    Position 0 of the buffer is ``base_offset`` in the log. ``check_crc`` also looks for torn sectors, as both
    ask whether everything that was written arrived; ``check_offset`` compares each record's own offset with
    its place.
    """
    end = min(end_position, len(buffer))
    records: list[RecordFields] = []
    position = start_position
    while position < end:
        size, ok, reason = check_record(
            buffer, position, end, check_crc=check_crc, check_property_crc=check_property_crc
        )
        if not ok or size == 0:
            return WalkResult(records, position, reason)  # type: ignore[arg-type]
        record = decode_record(buffer, position)
        if check_offset and record.physical_offset != base_offset + position:
            return WalkResult(records, position, "offset")
        spans = find_spans(buffer, position, position + size)
        if check_crc and spans is not None and is_torn(buffer, spans, base_offset):
            return WalkResult(records, position, "torn")
        records.append(record)
        position += size
    return WalkResult(records, position, "end")


def is_torn(buffer: Buffer, spans: RecordSpans, base_offset: int) -> bool:
    """Whether a sector's whole share of topic and properties is zero bytes.

    That is what a record looks like whose body reached the disk and whose tail did not: magic, lengths and
    body CRC are right and the message is poison. The length fields do not count: that of no properties is
    zero by right, and one that was lost makes the record's size wrong. Sectors are those of the log, whose
    files start on one.
    """
    shares: dict[int, bytes] = {}
    for span in (spans.topic, spans.properties):
        at = span.start
        while at < span.stop:
            sector = (base_offset + at) // SECTOR
            stop = min(span.stop, (sector + 1) * SECTOR - base_offset)
            shares[sector] = shares.get(sector, b"") + bytes(buffer[at:stop])
            at = stop
    return any(not share.strip(b"\0") for share in shares.values())
