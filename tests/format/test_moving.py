"""Copying records to another place of a log: compiled and plain agree, and change nothing else."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._native.moving import move_records
from penstock._native.record import walk
from penstock.format import moving
from penstock.format.record import decode_record, encode_record

MESSAGES = st.lists(
    st.tuples(
        st.binary(max_size=80),
        st.sampled_from(["127.0.0.1:10911", "[fe80::1]:10911"]),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


def run_of(messages: list[tuple[bytes, str, bool, bool, bool]], base: int) -> tuple[bytes, list[int]]:
    """Records in a row from ``base`` on, and the places of those that are kept."""
    records, kept = b"", []
    for number, (body, host, checksum, stale, keep) in enumerate(messages):
        properties = b"KEYS\x01k\x02" + (b"__CRC32#\x010123456789\x02" if stale else b"")
        if keep:
            kept.append(base + len(records))
        records += encode_record(
            "topic",
            body,
            properties,
            born_host=host,
            store_host=host,
            queue_offset=number,
            physical_offset=base + len(records),
            store_timestamp=number,
            property_crc=checksum,
        )
    return records, kept


def moved(records: bytes, base: int, kept: list[int], target: int) -> bytes:
    room = bytearray(len(records))
    return bytes(room[: move_records(records, base, array("q", kept), room, target)])


@given(MESSAGES, st.integers(0, 2**40), st.integers(0, 2**40))
def test_compiled_copies_are_the_plain_ones(
    messages: list[tuple[bytes, str, bool, bool, bool]], base: int, target: int
) -> None:
    records, kept = run_of(messages, base)
    copies = moved(records, base, kept, target)
    assert copies == moving.move_records(records, base, kept, target)
    result = walk(copies, 0, len(copies), target)
    assert (result.records, result.end_position) == (len(kept), len(copies))


@given(MESSAGES, st.integers(0, 2**40))
def test_a_copy_has_its_records_bytes_but_for_the_place_and_the_checksum(
    messages: list[tuple[bytes, str, bool, bool, bool]], target: int
) -> None:
    records, _ = run_of(messages, 0)
    at = 0
    for _, _, checksum, _, _ in messages:
        record = records[at : at + decode_record(records, at).total_size]
        copy = moved(records, 0, [at], target)
        end = len(record) - (20 if checksum else 0)
        assert copy[:28] + copy[36:end] == record[:28] + record[36:end]
        assert int.from_bytes(copy[28:36], "big") == target
        if checksum:
            assert walk(copy, 0, len(copy), target, check_property_crc=True).records == 1
        at += len(record)


def test_a_place_where_no_record_begins_is_refused() -> None:
    records, _ = run_of([(b"body", "127.0.0.1:1", False, False, True)] * 2, 0)
    with pytest.raises(ValueError, match="no record begins at 5"):
        moved(records, 0, [5], 0)


def test_a_target_that_is_too_short_is_refused() -> None:
    records, kept = run_of([(b"body", "127.0.0.1:1", False, False, True)] * 2, 0)
    with pytest.raises(ValueError, match="do not fit"):
        move_records(records, 0, array("q", kept), bytearray(len(records) - 1), 0)
