"""Records survive the round trip, and bytes that are no record are told apart."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from format.strategies import record_arguments
from penstock.format.malformed import Malformed
from penstock.format.record import (
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    check_record,
    decode_record,
    encode_blank,
    encode_record,
)
from penstock.message.host import pack_host
from penstock.message.properties import encode_properties, parse_properties

AT_ZERO: dict[str, Any] = {"queue_offset": 0, "physical_offset": 0, "store_timestamp": 0}


def some_record(**changes: Any) -> bytes:
    plain: dict[str, Any] = {"topic": "T", "body": b"hello", "properties": b"TAGS\x01a\x02"}
    return encode_record(**plain | AT_ZERO | changes)


@given(record_arguments(), st.binary(max_size=9), st.binary(max_size=9))
def test_a_record_round_trips_anywhere_in_a_buffer(
    arguments: dict[str, Any], before: bytes, after: bytes
) -> None:
    record = encode_record(**arguments)
    buffer = memoryview(before + record + after)
    assert check_record(buffer, len(before), len(buffer)) == (len(record), True, "")
    if arguments["property_crc"]:
        assert check_record(buffer, len(before), len(buffer), check_property_crc=True)[1]
    fields = decode_record(buffer, len(before))
    assert (fields.topic, fields.body) == (arguments["topic"], arguments["body"])
    for name in (
        "queue_id",
        "flag",
        "born_timestamp",
        "reconsume_times",
        "prepared_transaction_offset",
        "physical_offset",
        "store_timestamp",
    ):
        assert getattr(fields, name) == arguments[name]
    assert pack_host(fields.born_host) == pack_host(arguments["born_host"])
    assert pack_host(fields.store_host) == pack_host(arguments["store_host"])
    assert fields.sys_flag & ~0x30 == arguments["sys_flag"] & ~0x30
    assert fields.sys_flag & 0x30 == (0x10 if "[" in arguments["born_host"] else 0) | (
        0x20 if "[" in arguments["store_host"] else 0
    )
    assert fields.queue_offset == (0 if arguments["sys_flag"] & 4 else arguments["queue_offset"])
    stored = fields.properties
    stored.pop("__CRC32#", None)
    assert stored == parse_properties(arguments["properties"])


@given(record_arguments(), st.data())
def test_any_bytes_are_judged_without_an_error(arguments: dict[str, Any], data: st.DataObject) -> None:
    record = bytearray(encode_record(**arguments))
    for _ in range(data.draw(st.integers(0, 4))):
        position = data.draw(st.integers(4, min(len(record) - 1, 120)))
        record[position] = data.draw(st.integers(0, 255))
    limit = data.draw(st.integers(0, len(record) + 10))
    size, ok, reason = check_record(record, 0, limit)
    assert ok == (reason in ("", "blank"))
    assert size <= limit
    assert reason in ("", "blank", "short", "zero", "magic", "length", "crc")


@given(record_arguments(), st.data())
def test_a_flipped_bit_in_the_body_is_found(arguments: dict[str, Any], data: st.DataObject) -> None:
    arguments["body"] += b"x"
    record = bytearray(encode_record(**arguments))
    start = 88 + 12 * (arguments["born_host"] + arguments["store_host"]).count("[")
    position = start + data.draw(st.integers(0, len(arguments["body"]) - 1))
    record[position] ^= 1 << data.draw(st.integers(0, 7))
    assert check_record(record, 0, len(record)) == (-1, False, "crc")
    assert check_record(record, 0, len(record), check_crc=False) == (len(record), True, "")


@given(record_arguments(), st.data())
def test_a_record_crc_finds_a_flipped_bit_outside_the_body(
    arguments: dict[str, Any], data: st.DataObject
) -> None:
    arguments["property_crc"] = True
    record = bytearray(encode_record(**arguments))
    position = data.draw(st.one_of(st.integers(8, 35), st.integers(40, 47)))
    record[position] ^= 1 << data.draw(st.integers(0, 7))
    assert check_record(record, 0, len(record), check_property_crc=True) == (-1, False, "crc")


def test_a_record_without_its_crc_property_fails_when_it_is_asked_for() -> None:
    record = some_record()
    assert check_record(record, 0, len(record), check_property_crc=True) == (-1, False, "crc")


def test_s04_a_body_whose_crc_is_zero_is_a_valid_record() -> None:
    body = b"\x9d\x0a\xd9\x6d"  # CRC-32 of these four bytes is 0
    record = some_record(body=body)
    assert record[8:12] == bytes(4)
    assert check_record(record, 0, len(record)) == (len(record), True, "")


def test_s04_a_record_crc_of_zero_is_a_crc_like_any_other() -> None:
    base = some_record(property_crc=True, body=bytes(4))
    covered = bytearray(base[:-20])
    # CRC-32 is linear: solve for the four body bytes that make the covered bytes hash to zero.
    columns = []
    zero = zlib.crc32(covered)
    for bit in range(32):
        changed = bytearray(covered)
        changed[88 + bit // 8] ^= 1 << bit % 8
        columns.append(zlib.crc32(changed) ^ zero)
    bits = _solve(columns, zero)
    for bit in bits:
        covered[88 + bit // 8] ^= 1 << bit % 8
    assert zlib.crc32(covered) == 0
    record = bytes(covered) + b"__CRC32#\x010000000000\x02"
    assert check_record(record, 0, len(record), check_property_crc=True) == (len(record), True, "")


def _solve(columns: list[int], target: int) -> list[int]:
    """Which columns add up (xor) to the target."""
    basis: dict[int, tuple[int, int]] = {}
    for i, column in enumerate(columns):
        value, used = column, 1 << i
        while value:
            top = value.bit_length()
            if top not in basis:
                basis[top] = (value, used)
                break
            value, used = value ^ basis[top][0], used ^ basis[top][1]
    used = 0
    while target:
        value, part = basis[target.bit_length()]
        target, used = target ^ value, used ^ part
    return [i for i in range(len(columns)) if used >> i & 1]


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (b"", (-1, False, "short")),
        (bytes(7), (-1, False, "short")),
        (bytes(100), (-1, False, "zero")),
        (b"\0\0\0\x10garbage and more", (-1, False, "magic")),
        (encode_blank(100), (-1, False, "short")),
        (encode_blank(100) + bytes(92), (0, True, "blank")),
        (struct.pack(">iI", -5, MESSAGE_MAGIC_CODE) + bytes(200), (-1, False, "length")),
        (struct.pack(">iI", 0x7FFFFFFF, MESSAGE_MAGIC_CODE) + bytes(200), (-1, False, "length")),
        (struct.pack(">iI", 300, MESSAGE_MAGIC_CODE) + bytes(200), (-1, False, "short")),
        (struct.pack(">iI", 60, MESSAGE_MAGIC_CODE_V2) + bytes(52), (-1, False, "length")),
    ],
)
def test_bytes_that_are_no_record(data: bytes, verdict: tuple[int, bool, str]) -> None:
    assert check_record(data, 0, len(data)) == verdict
    if verdict[0] != 0:
        with pytest.raises(Malformed):
            decode_record(data)


def test_half_a_message_is_told_by_its_size() -> None:
    record = some_record()
    longer = struct.pack(">i", len(record) + 3) + record[4:] + b"abc"
    assert check_record(longer, 0, len(longer)) == (len(record) + 3, False, "length")
    with pytest.raises(Malformed):
        decode_record(longer)


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0x7FFFFFFF, 1 << 20])
def test_s25_a_hostile_body_length_is_not_believed(length: int) -> None:
    record = bytearray(some_record())
    struct.pack_into(">i", record, 84, length)
    assert check_record(record, 0, len(record)) == (-1, False, "length")


def test_a_topic_of_few_but_wide_characters_is_stored_as_v2() -> None:
    topic = "%RETRY%" + "组" * 60
    record = some_record(topic=topic)
    assert decode_record(record).magic == MESSAGE_MAGIC_CODE_V2
    assert decode_record(record).topic == topic
    assert decode_record(some_record(topic="a" * 127)).magic == MESSAGE_MAGIC_CODE
    assert decode_record(some_record(topic="a" * 128)).magic == MESSAGE_MAGIC_CODE_V2


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="properties"):
        some_record(properties=bytes(32768))
    with pytest.raises(ValueError, match="properties"):
        some_record(properties=b"a\x01" + b"b" * 32760, property_crc=True)
    with pytest.raises(ValueError, match="topic"):
        some_record(topic="t" * 32768)
    assert decode_record(some_record(properties=b"p" * 32767)).properties_bytes == b"p" * 32767


def test_a_stale_record_crc_is_replaced() -> None:
    properties = encode_properties({"A": "b", "__CRC32#": "1234567890", "C": "d"})
    record = some_record(properties=properties, property_crc=True)
    assert decode_record(record).properties_bytes[:-20] == b"A\x01b\x02C\x01d\x02"
    assert check_record(record, 0, len(record), check_property_crc=True)[1]
