"""A walk keeps what is whole, stops at what is not, and says why."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from format.strategies import logs
from penstock.format.record import decode_record, encode_blank, encode_record
from penstock.format.walk import SECTOR, WalkResult
from penstock.format.walk import walk as walk_with


def walk(
    buffer: bytes | bytearray,
    start: int,
    end: int,
    base_offset: int,
    *,
    check_crc: bool = True,
    check_offset: bool = True,
) -> WalkResult:
    """A walk that also looks for torn sectors."""
    return walk_with(
        buffer, start, end, base_offset, check_crc=check_crc, check_offset=check_offset, check_torn=True
    )


def record_at(
    offset: int, body: bytes = b"body", properties: bytes = b"TAGS\x01a\x02", topic: str = "topic"
) -> bytes:
    return encode_record(
        topic, body, properties, queue_offset=0, physical_offset=offset, store_timestamp=1700000000000
    )


@given(logs(), st.booleans(), st.booleans())
def test_a_walk_finds_every_record(log: tuple[int, list[bytes]], check_crc: bool, check_offset: bool) -> None:
    base, records = log
    buffer = b"".join(records)
    result = walk(buffer, 0, len(buffer), base, check_crc=check_crc, check_offset=check_offset)
    assert result.records == [decode_record(record) for record in records]
    assert (result.end_position, result.stop) == (len(buffer), "end")


@given(logs(), st.integers(0, 20000))
def test_a_cut_log_loses_only_what_was_cut(log: tuple[int, list[bytes]], cut: int) -> None:
    base, records = log
    buffer = b"".join(records)[:cut]
    result = walk(buffer, 0, 1 << 40, base)
    whole = 0
    while records and whole + len(records[0]) <= len(buffer):
        whole += len(records.pop(0))
    assert result.end_position == whole
    assert result.stop == ("end" if whole == len(buffer) else "short")


@given(st.binary(max_size=300), logs(max_records=2))
def test_any_bytes_end_a_walk(noise: bytes, log: tuple[int, list[bytes]]) -> None:
    base, records = log
    buffer = b"".join(records) + noise
    result = walk(buffer, 0, len(buffer), base)
    assert result.records[: len(records)] == [decode_record(record) for record in records]
    assert result.end_position >= sum(map(len, records))


def test_a_blank_ends_a_file() -> None:
    record = record_at(0)
    buffer = record + encode_blank(100) + bytes(92)
    result = walk(buffer, 0, len(buffer), 0)
    assert (len(result.records), result.end_position, result.stop) == (1, len(record), "blank")


def test_s29_zeros_are_the_end_of_what_was_written() -> None:
    record = record_at(0)
    result = walk(record + bytes(4096), 0, len(record) + 4096, 0)
    assert (result.end_position, result.stop) == (len(record), "zero")


def test_s27_a_flipped_bit_stops_the_walk_at_its_record() -> None:
    first, second = record_at(0), record_at(len(record_at(0)), b"other body")
    broken = bytearray(first + second)
    broken[len(first) + 90] ^= 4
    result = walk(broken, 0, len(broken), 0)
    assert (result.end_position, result.stop) == (len(first), "crc")
    assert walk(broken, 0, len(broken), 0, check_crc=False).stop == "end"


def test_s03_a_record_of_another_place_is_not_kept() -> None:
    first = record_at(1000)
    stale = record_at(500)
    buffer = first + stale
    result = walk(buffer, 0, len(buffer), 1000)
    assert (len(result.records), result.end_position, result.stop) == (1, len(first), "offset")
    assert walk(buffer, 0, len(buffer), 1000, check_offset=False).stop == "end"


def test_half_a_message_stops_the_walk() -> None:
    record = record_at(0)
    half = struct.pack(">i", len(record) + 2) + record[4:] + bytes(2)
    assert walk(half, 0, len(half), 0).stop == "length"


def test_a_walk_starts_where_it_is_told() -> None:
    first = record_at(0)
    second = record_at(len(first))
    result = walk(first + second, len(first), len(first + second), 0)
    assert [record.physical_offset for record in result.records] == [len(first)]


def padded_log(position: int) -> tuple[bytes, int]:
    """A record that ends at ``position`` of the log, and the size of what it takes."""
    empty = len(record_at(0, b""))
    return record_at(0, b"b" * (position - empty)), position


@pytest.mark.parametrize("lost", [2, 3, 4])
def test_s02_a_lost_sector_of_properties_is_torn(lost: int) -> None:
    first, start = padded_log(400)
    record = record_at(start, b"b" * 50, b"name\x01" + b"v" * 1800 + b"\x02")
    buffer = bytearray(first + record)
    buffer[lost * SECTOR : (lost + 1) * SECTOR] = bytes(SECTOR)
    result = walk(buffer, 0, len(buffer), 0)
    assert (len(result.records), result.end_position, result.stop) == (1, start, "torn")


def test_s02_the_last_bytes_of_the_properties_can_be_a_sector_of_their_own() -> None:
    properties = b"TAGS\x01abc\x02"
    size = len(record_at(0, b"", properties))
    record = record_at(0, b"b" * (SECTOR + 1 - size), properties)
    assert len(record) == SECTOR + 1
    assert walk(record, 0, len(record), 0).stop == "end"
    assert walk(record[:SECTOR] + b"\0", 0, len(record), 0).stop == "torn"


def test_s02_a_lost_topic_is_torn() -> None:
    # The topic's length is the last byte of its sector, the topic and the properties' length open the next.
    topic = "t" * 127
    first, start = padded_log(SECTOR * 2)
    record = record_at(start, b"b" * (SECTOR - 88 - 1), b"", topic)
    whole = bytearray(first + record)
    assert walk(whole, 0, len(whole), 0).stop == "end"
    whole[start + SECTOR : start + SECTOR + 127] = bytes(127)
    assert walk(whole, 0, len(whole), 0).stop == "torn"


def test_a_properties_length_of_zero_alone_in_a_sector_is_not_torn() -> None:
    size = len(record_at(0, b"", b""))
    record = record_at(0, b"b" * (SECTOR + 2 - size), b"")
    assert len(record) == SECTOR + 2
    assert record[SECTOR:] == bytes(2)
    assert walk(record, 0, len(record), 0).stop == "end"


def test_sectors_are_counted_from_the_start_of_the_log() -> None:
    properties = b"name\x01" + b"v" * 600 + b"\x02"
    for base in (0, 100, 65536 + 300):
        record = bytearray(record_at(base, b"b", properties))
        start = -base % SECTOR
        while start < 110:
            start += SECTOR
        end = min(start + SECTOR, len(record))
        record[start:end] = bytes(end - start)
        assert walk(record, 0, len(record), base).stop == "torn"
        assert walk(record, 0, len(record), base + 1, check_offset=False).stop == "end"


@given(logs())
def test_a_body_of_zeros_is_never_torn(log: tuple[int, list[bytes]]) -> None:
    base, records = log
    offset = base + sum(map(len, records))
    buffer = b"".join(records) + record_at(offset, bytes(3000))
    assert walk(buffer, 0, len(buffer), base).stop == "end"
