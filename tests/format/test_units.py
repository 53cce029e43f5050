"""Round trips of the small fixed units, and what happens at the end of a buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from format.strategies import batch_blocks, ints, longs
from penstock.format.batch import decode_client_batch, encode_batch, encode_client_batch
from penstock.format.batchunit import BatchUnit, decode_batch_unit, encode_batch_unit
from penstock.format.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from penstock.format.extunit import (
    NOT_AN_ADDRESS,
    ExtOracle,
    ExtUnit,
    decode_ext_unit,
    decorate,
    encode_ext_unit,
    is_ext_address,
    undecorate,
)
from penstock.format.indexfile import decode_index_entry, decode_index_header
from penstock.format.javahash import java_hash
from penstock.format.malformed import Malformed
from penstock.format.queueunit import (
    QueueUnit,
    decode_queue_unit,
    encode_queue_unit,
    parse_delay_levels,
    tags_code,
)
from penstock.format.record import check_record, decode_record
from penstock.format.timerunit import (
    TimerCheckpoint,
    TimerUnit,
    WheelSlot,
    decode_timer_checkpoint,
    decode_timer_unit,
    decode_wheel_slot,
    encode_timer_blank,
    encode_timer_checkpoint,
    encode_timer_unit,
    encode_wheel_slot,
)

shorts = st.integers(-(1 << 15), (1 << 15) - 1)


@given(st.builds(QueueUnit, longs, ints, longs))
def test_queue_units_round_trip(unit: QueueUnit) -> None:
    assert decode_queue_unit(b"x" + encode_queue_unit(unit), 1) == unit


@given(st.builds(BatchUnit, longs, ints, longs, longs, longs, shorts, ints))
def test_batch_units_round_trip(unit: BatchUnit) -> None:
    assert decode_batch_unit(encode_batch_unit(unit)) == unit


@given(st.builds(ExtUnit, longs, longs, st.binary(max_size=100)))
def test_extension_units_round_trip(unit: ExtUnit) -> None:
    assert decode_ext_unit(encode_ext_unit(unit)) == unit


@given(st.builds(TimerUnit, longs, st.integers(0, 0xFFFFFFFF), longs, ints, longs, ints, ints, ints))
def test_timer_units_round_trip(unit: TimerUnit) -> None:
    assert decode_timer_unit(encode_timer_unit(unit)) == unit


@given(st.builds(WheelSlot, longs, longs, longs, ints, ints))
def test_wheel_slots_round_trip(slot: WheelSlot) -> None:
    assert decode_wheel_slot(encode_wheel_slot(slot), 0) == slot


@given(st.builds(Checkpoint, longs, longs, longs, longs, longs, longs))
def test_checkpoints_round_trip(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


@given(st.builds(TimerCheckpoint, longs, longs, longs, longs, longs, longs, longs))
def test_timer_checkpoints_round_trip(checkpoint: TimerCheckpoint) -> None:
    assert decode_timer_checkpoint(encode_timer_checkpoint(checkpoint)) == checkpoint


@pytest.mark.parametrize(
    ("decode", "size"),
    [
        (decode_queue_unit, 20),
        (decode_batch_unit, 46),
        (decode_timer_unit, 52),
        (lambda data: decode_wheel_slot(data, 0), 32),
        (decode_checkpoint, 48),
        (decode_timer_checkpoint, 56),
        (decode_index_header, 40),
        (lambda data: decode_index_entry(data, 0), 20),
    ],
)
def test_a_cut_unit_is_malformed(decode: Callable[[bytes], Any], size: int) -> None:
    assert decode(bytes(size)) is not None
    with pytest.raises(Malformed):
        decode(bytes(size - 1))


@pytest.mark.parametrize("head", ["00", "0013", "0040", "0016"])
def test_an_impossible_extension_unit_is_malformed(head: str) -> None:
    data = bytes.fromhex(head)
    with pytest.raises(Malformed):
        decode_ext_unit(data if len(data) == 1 else data + bytes(30))


def test_an_extension_file_ends_at_a_size_of_zero_or_below() -> None:
    assert decode_ext_unit(bytes(20)) is None
    assert decode_ext_unit(b"\xff\xff") is None


@given(st.lists(st.builds(ExtUnit, longs, longs, st.binary(max_size=60)), max_size=20))
def test_every_extension_unit_is_found_under_its_address(units: list[ExtUnit]) -> None:
    ext = ExtOracle(128)
    addresses = [ext.put(unit) for unit in units]
    assert all(map(is_ext_address, addresses))
    assert [ext.get(address) for address in addresses] == units


def test_an_extension_unit_that_no_file_can_hold_gets_no_address() -> None:
    ext = ExtOracle(64)
    assert ext.put(ExtUnit(1, 1, bytes(41))) == NOT_AN_ADDRESS
    assert not is_ext_address(NOT_AN_ADDRESS)
    assert ext.put(ExtUnit(1, 1, bytes(40))) == decorate(0)


@given(st.text())
def test_a_hash_is_never_an_extension_address(text: str) -> None:
    assert not is_ext_address(java_hash(text))
    assert undecorate(java_hash(text)) == java_hash(text)


def test_a_timer_blank_is_known_by_its_magic_even_when_52_bytes_were_left() -> None:
    blank = decode_timer_unit(encode_timer_blank(52).ljust(52, b"\0"))
    assert blank.is_blank
    assert not blank.is_plausible
    assert decode_timer_unit(encode_timer_blank(16)).is_blank


def test_a_scheduled_record_has_its_delivery_time_as_tags_code() -> None:
    delays = parse_delay_levels()
    assert (len(delays), delays[0], delays[4], delays[17]) == (18, 1000, 60_000, 7_200_000)
    properties = {"TAGS": "TagA", "DELAY": "3"}
    assert tags_code("SCHEDULE_TOPIC_XXXX", properties, 1000) == 11_000
    assert tags_code("SCHEDULE_TOPIC_XXXX", {"DELAY": "99"}, 0) == 7_200_000
    assert tags_code("SCHEDULE_TOPIC_XXXX", {"TAGS": "TagA", "DELAY": "0"}, 0) == 2598919
    assert tags_code("SCHEDULE_TOPIC_XXXX", {"TAGS": "TagA", "DELAY": "soon"}, 0) == 2598919
    assert tags_code("other", properties, 1000) == 2598919
    assert tags_code("other", {}, 1000) == 0


@pytest.mark.parametrize("text", ["1x", "s", "1s 2", "-1s"])
def test_a_delay_level_nobody_can_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="delay level"):
        parse_delay_levels(text)


@given(batch_blocks)
def test_client_batches_round_trip(blocks: Any) -> None:
    assert decode_client_batch(encode_client_batch(blocks)) == blocks


@given(batch_blocks, st.data())
def test_s25_a_broken_client_batch_is_refused_or_read_whole(blocks: Any, data: st.DataObject) -> None:
    encoded = bytearray(encode_client_batch(blocks))
    for _ in range(data.draw(st.integers(1, 3))):
        if encoded:
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(
                st.sampled_from([0, 1, 0x7F, 0xFF])
            )
    try:
        found = decode_client_batch(encoded)
    except Malformed:
        return
    assert sum(22 + len(block.body) + len(block.properties_bytes) for block in found) == len(encoded)


@given(batch_blocks, st.booleans())
def test_a_batch_becomes_records_end_to_end(blocks: Any, property_crc: bool) -> None:
    records = encode_batch(
        "topic",
        blocks,
        queue_id=2,
        born_host="[::1]:5",
        queue_offset=40,
        physical_offset=1000,
        store_timestamp=9,
        property_crc=property_crc,
    )
    offset = 1000
    for i, (record, block) in enumerate(zip(records, blocks, strict=True)):
        fields = decode_record(record)
        assert check_record(record, 0, len(record), check_property_crc=property_crc)[1]
        assert (fields.queue_offset, fields.physical_offset) == (40 + i, offset)
        assert (fields.body, fields.flag) == (block.body, block.flag)
        assert fields.properties_bytes[: len(block.properties_bytes)] == block.properties_bytes
        offset += len(record)
