"""Records copied to another place of a log."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.format.crc import crc32
from penstock.format.record import (
    CRC32_RESERVED_LENGTH,
    PHYSICAL_OFFSET_POSITION,
    check_record,
    decode_record,
    encode_crc_property,
)


def move_record(record: bytes, physical_offset: int) -> bytes:
    """The record as it is at another physical offset.

    A whole-record checksum is made again if it was right. Everything else keeps its bytes.
    """
    head, tail = record[:PHYSICAL_OFFSET_POSITION], record[PHYSICAL_OFFSET_POSITION + 8 :]
    moved = head + physical_offset.to_bytes(8, "big", signed=True) + tail
    if not check_record(record, 0, len(record), check_property_crc=True)[1]:
        return moved
    covered = moved[:-CRC32_RESERVED_LENGTH]
    return covered + encode_crc_property(crc32(covered))


def move_records(records: bytes, base_offset: int, kept: Iterable[int], target_offset: int) -> bytes:
    """The records at the physical offsets ``kept``, one behind the other from ``target_offset`` on."""
    moved = bytearray()
    for offset in kept:
        at = offset - base_offset
        size = decode_record(records, at).total_size
        moved += move_record(records[at : at + size], target_offset + len(moved))
    return bytes(moved)
