"""Bytes in the log that are not what a writer meant."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import pytest

from faults.place import SMALL, Place, body_of
from penstock.format.batch import decode_client_batch
from penstock.format.malformed import Malformed
from penstock.format.record import encode_blank, encode_record

SECTOR = 512


def plain_record(number: int, *, queue_offset: int, physical_offset: int) -> bytes:
    """A whole record as the store itself would write it, made without a store."""
    return encode_record(
        topic="T",
        body=body_of(number),
        properties=b"KEYS\x01k%d\x02" % number,
        queue_id=0,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        store_timestamp=1_700_000_000_000,
        born_timestamp=1_700_000_000_000,
    )


@pytest.mark.parametrize("size", range(300, 900, 60))
def test_s02_record_whose_properties_never_reached_the_disk_is_no_record(size: int) -> None:
    """The body has its CRC, the properties have none: a sector of zeros in them betrays the tear."""
    place = Place()
    place.open()
    place.put(0)
    torn = place.put(1, size)
    place.kill()
    end = torn.physical_offset + torn.size
    properties = end - 80
    first_lost = -(-properties // SECTOR) * SECTOR
    if first_lost >= end:
        first_lost = end // SECTOR * SECTOR
    place.overwrite_log(first_lost, bytes(end - first_lost))
    store = place.open()
    assert place.numbers() == [0], f"lost from {first_lost} of {torn.physical_offset}..{end}"
    assert store.report.cut_bytes and store.report.cut_reason
    assert place.put(2).queue_offset == 1
    place.store.dispatch()
    assert place.numbers() == [0, 2] and place.found(1) == []


def test_s03_stale_bytes_are_not_resurrected() -> None:
    """A valid record of an earlier life of the file says another offset than the one it lies at."""
    place = Place()
    place.open()
    results = [place.put(number) for number in range(3)]
    place.kill()
    path, at = place.log_file(results[0].physical_offset)
    record = place.storage.pread(path, at, results[0].size)
    end = results[2].physical_offset + results[2].size
    place.overwrite_log(end, record + record)
    store = place.open()
    assert place.numbers() == [0, 1, 2]
    assert store.report.end_offset == end
    assert store.report.cut_bytes == 2 * results[0].size and store.report.cut_reason
    assert place.put(3).physical_offset == end
    place.reopen_after_kill()
    assert place.numbers() == [0, 1, 2, 3]


def test_s03_stale_record_at_its_own_offset_is_not_resurrected() -> None:
    """A leftover of a log that was cut here: everything fits but its place in the queue, which is taken."""
    place = Place()
    place.open()
    results = [place.put(number) for number in range(3)]
    place.kill()
    end = results[2].physical_offset + results[2].size
    place.overwrite_log(end, plain_record(99, queue_offset=1, physical_offset=end))
    store = place.open()
    assert place.numbers() == [0, 1, 2]
    assert store.report.end_offset == end and store.report.cut_bytes


@pytest.mark.parametrize("length", ["right", "wrong"])
def test_s03_stale_blank_does_not_end_the_file(length: str) -> None:
    place = Place()
    place.open()
    last = place.put(0)
    place.kill()
    end = last.physical_offset + last.size
    left = SMALL.mapped_file_size_commit_log - end
    place.overwrite_log(end, encode_blank(left if length == "right" else left - 200))
    store = place.open()
    assert store.report.end_offset == end
    assert place.put(1).physical_offset == end, "the next record goes where the last one ended"
    place.store.dispatch()
    assert place.numbers() == [0, 1]


ZERO_CRC = b"\x9d\x0a\xd9\x6d"


@pytest.mark.parametrize("body", [ZERO_CRC, b""], ids=["crc 0", "empty"])
def test_s04_record_whose_crc_is_zero_is_whole(body: bytes) -> None:
    assert zlib.crc32(body) == 0
    place = Place()
    place.open()
    place.put(0)
    message = place.message(1)
    result = place.store.put(type(message)("T", body, keys="zero"))
    assert result.ok
    place.put(2)
    store = place.reopen_after_kill()
    assert [m.body for m in store.get("T", 0, 0)] == [body_of(0), body, body_of(2)]
    assert not store.report.damage and not store.report.cut_bytes
    assert [m.body for m in store.query("T", "zero")] == [body]


def test_s17_illegal_magic_in_the_log_does_not_stop_the_dispatcher() -> None:
    place = Place()
    place.open()
    results = [place.put(number) for number in range(6)]
    place.overwrite_log(results[2].physical_offset + 4, b"\xde\xad\xbe\xef")
    place.store.dispatch()
    assert place.store.reput_from_offset == results[-1].physical_offset + results[-1].size
    numbers = place.numbers()
    assert [n for n in numbers if n != 2] == numbers
    assert numbers[:2] == [0, 1] and numbers[-1] == 5, "damage must not widen"
    place.put(6)
    place.store.dispatch()
    assert place.numbers()[-1] == 6


def test_s17_illegal_magic_is_contained_by_recovery() -> None:
    place = Place()
    place.open()
    results = [place.put(number) for number in range(6)]
    place.kill()
    place.overwrite_log(results[2].physical_offset + 4, b"\xde\xad\xbe\xef")
    store = place.open()
    assert place.numbers() == [0, 1, 3, 4, 5]
    (damage,) = store.report.damage
    assert damage.offset == results[2].physical_offset and damage.end == results[3].physical_offset
    assert place.storage.exists(damage.kept_as), "the bytes are kept for whoever wants to look"
    assert all(place.found(number) == [number] for number in (0, 1, 3, 4, 5))
    again = place.reopen_after_kill()
    assert place.numbers() == [0, 1, 3, 4, 5] and not again.report.damage


HOSTILE = [0x7FFFFFFF, 0x7FFFFF00, 1 << 24, 92, 91, 90, 8, 4, 1, 0, -1, -(1 << 31)]


@pytest.mark.parametrize("length", HOSTILE)
@pytest.mark.parametrize("where", ["record", "body"])
def test_s25_hostile_lengths_in_the_log_are_not_believed(length: int, where: str) -> None:
    place = Place()
    place.open()
    results = [place.put(number, 100) for number in range(4)]
    place.kill()
    at = results[1].physical_offset + (0 if where == "record" else 84)
    place.overwrite_log(at, struct.pack(">i", length))
    tracemalloc.start()
    try:
        store = place.open()
        found = store.lookup(results[1].physical_offset)
        assert found is None or found.topic == "PENSTOCK_FILLER"
        numbers = place.numbers()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20
    assert numbers == [0, 2, 3]
    assert len(store.report.damage) == 1


@pytest.mark.parametrize("size", [0x7FFFFFFE, -1, 0, 50])
@pytest.mark.parametrize("physical", [0, 10_000, 1 << 40, -1, (1 << 63) - 1])
def test_s25_hostile_queue_units_are_not_believed(size: int, physical: int) -> None:
    place = Place()
    place.open()
    for number in range(6):
        place.put(number)
    place.store.dispatch()
    (path,) = place.files("consumequeue/T/0")
    place.storage.overwrite(path, 2 * 20, struct.pack(">qi", physical, size))
    first = place.store.get("T", 0, 0)
    assert all(m.body in [body_of(n) for n in range(6)] for m in first)
    rest = place.store.get("T", 0, 3)
    assert [m.body for m in rest] == [body_of(3), body_of(4), body_of(5)]


@pytest.mark.parametrize("length", [0x7FFFFFFF, -1, 1 << 30, 0])
def test_s25_hostile_lengths_in_a_client_batch_allocate_nothing(length: int) -> None:
    data = struct.pack(">iiiii", length, 0, 0, 0, length) + bytes(100)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            list(decode_client_batch(data))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("count", [0x7FFFFFFF, -1, -(1 << 31), 1000])
def test_s25_hostile_counts_in_an_index_header_are_not_believed(count: int) -> None:
    place = Place()
    place.open()
    for number in range(5):
        place.put(number)
    place.store.close()
    (path,) = place.files("index")
    place.storage.overwrite(path, 36, struct.pack(">i", count))
    place.open()
    assert place.numbers() == [0, 1, 2, 3, 4]
    for number in range(5):
        assert place.found(number) in ([number], [])
    place.put(5)
    place.store.dispatch()
    assert place.numbers()[-1] == 5


def test_s29_end_of_the_log_is_the_end_of_the_last_record_and_nothing_rounder() -> None:
    place = Place()
    place.open()
    expected = []
    for number in range(12):
        result = place.put(number, number * 37)
        end = result.physical_offset + result.size
        store = place.reopen_after_kill()
        assert store.max_physical_offset == end and store.report.end_offset == end
        expected.append(number)
        assert place.numbers() == expected
    assert place.store.report.cut_bytes == 0


@pytest.mark.parametrize("knows", ["queues", "position"])
def test_s29_zeros_of_a_prepared_tail_hide_no_later_record(knows: str) -> None:
    """A hole of zeros before records that the queues know, or that were recorded as synced: they stay."""
    place = Place()
    place.open()
    results = [place.put(number, 1000) for number in range(8)]
    if knows == "queues":
        place.store.dispatch()
    place.store.sync_positions()
    place.kill()
    if knows == "queues":
        place.storage.unlink(place.path("penstock.position"))
    begin, end = results[3].physical_offset, results[4].physical_offset
    place.overwrite_log(begin, bytes(end - begin))
    store = place.open()
    assert place.numbers() == [0, 1, 2, 4, 5, 6, 7]
    assert store.report.damage[0].offset == begin and store.report.damage[0].end == end
