"""Checkpoint, timer wheel, timer log and timer checkpoint of the golden directories."""

from __future__ import annotations

import pytest

from format.golden_log import GoldenLog
from golden_store import CASES
from penstock.format.checkpoint import CHECKPOINT_SIZE, decode_checkpoint, encode_checkpoint
from penstock.format.javahash import java_hash
from penstock.format.timerunit import (
    TIMER_UNIT_SIZE,
    WHEEL_SIZE,
    WHEEL_SLOT_SIZE,
    TimerUnit,
    decode_timer_checkpoint,
    decode_timer_unit,
    decode_wheel_slot,
    encode_timer_blank,
    encode_timer_checkpoint,
    encode_timer_unit,
    encode_wheel_slot,
    find_wheel_slot,
)

broker = pytest.mark.parametrize("golden_log", ["broker"], indirect=True)


def timer_units(log: GoldenLog) -> dict[int, TimerUnit]:
    """The units of the timer log by their offset."""
    units: dict[int, TimerUnit] = {}
    for file in log.store.files("timerlog"):
        data = file.read_bytes()
        for position in range(0, len(data) - TIMER_UNIT_SIZE + 1, TIMER_UNIT_SIZE):
            unit = decode_timer_unit(data, position)
            if not unit.is_plausible:
                break
            assert encode_timer_unit(unit) == data[position : position + TIMER_UNIT_SIZE]
            units[int(file.name) + position] = unit
    return units


@pytest.mark.parametrize("golden_log", CASES, indirect=True)
def test_the_checkpoint_is_never_behind_what_the_store_knew(golden_log: GoldenLog) -> None:
    data = (golden_log.store.path / "checkpoint").read_bytes()
    assert len(data) == CHECKPOINT_SIZE
    checkpoint = decode_checkpoint(data)
    assert encode_checkpoint(checkpoint) == data
    known = golden_log.manifest.get("atClose", {}).get("checkpoint", {})
    assert checkpoint.physic_msg_timestamp >= known.get("physicMsgTimestamp", 0)
    assert checkpoint.logics_msg_timestamp >= known.get("logicsMsgTimestamp", 0)
    assert checkpoint.index_msg_timestamp >= known.get("indexMsgTimestamp", 0)
    assert checkpoint.master_flushed_offset == known.get("masterFlushedOffset", 0)
    assert checkpoint.confirm_phy_offset == known.get("confirmPhyOffset", 0)
    assert checkpoint.logics_physical_offset >= known.get("logicsPhysicalOffset", 0)
    assert max(checkpoint[:3]) <= golden_log.records[-1].store_timestamp


@broker
def test_the_timer_checkpoint_holds_what_the_broker_said(golden_log: GoldenLog) -> None:
    data = (golden_log.store.path / "config" / "timercheck").read_bytes()
    checkpoint = decode_timer_checkpoint(data)
    said = golden_log.manifest["timerCheckpoint"]
    assert checkpoint == (
        said["lastReadTimeMs"],
        said["lastTimerLogFlushPos"],
        said["lastTimerQueueOffset"],
        said["masterTimerQueueOffset"],
        said["stateVersion"],
        said["timestamp"],
        said["counter"],
    )
    assert encode_timer_checkpoint(checkpoint) == data


@broker
def test_the_wheel_has_exactly_the_slots_the_broker_used(golden_log: GoldenLog) -> None:
    data = (golden_log.store.path / "timerwheel").read_bytes()
    assert len(data) == WHEEL_SIZE
    listed = golden_log.manifest["timerWheel"]["slots[timeMs,firstPos,lastPos,num,magic]"]
    blank = bytearray(data)
    for time_ms, first, last, number, magic in listed:
        slot = find_wheel_slot(data, time_ms)
        assert slot == (time_ms // 1000, first, last, number, magic)
        assert find_wheel_slot(data, time_ms + 86_400_000 * 14) is None
        position = data.index(encode_wheel_slot(slot))
        assert decode_wheel_slot(data, position) == slot
        blank[position : position + WHEEL_SLOT_SIZE] = bytes(WHEEL_SLOT_SIZE)
    assert not any(blank)


@broker
def test_the_timer_log_chains_every_message_of_a_slot(golden_log: GoldenLog) -> None:
    units = timer_units(golden_log)
    assert max(units) + TIMER_UNIT_SIZE == golden_log.manifest["timerWheel"]["timerLogMaxOffset"]
    by_offset = golden_log.by_offset
    for unit in units.values():
        record = by_offset[unit.physical_offset]
        assert (record.topic, record.total_size) == ("rmq_sys_wheel_timer", unit.size)
        assert unit.topic_hash == java_hash(record.properties["REAL_TOPIC"])
    for time_ms, first, last, number, _ in golden_log.manifest["timerWheel"][
        "slots[timeMs,firstPos,lastPos,num,magic]"
    ]:
        chain = []
        at = last
        while at != -1:
            chain.append(at)
            assert units[at].write_time + units[at].delay == time_ms
            at = units[at].previous
        assert (len(chain), chain[-1]) == (number, first)


@broker
def test_a_full_timer_log_file_ends_in_a_blank(golden_log: GoldenLog) -> None:
    first, second = (file.read_bytes() for file in golden_log.store.files("timerlog"))
    end = TIMER_UNIT_SIZE * ((len(first) - 16) // TIMER_UNIT_SIZE)
    assert decode_timer_unit(first, end).is_blank
    assert first[end : end + 16] == encode_timer_blank(len(first) - end)
    assert decode_timer_unit(second, 0).is_plausible
