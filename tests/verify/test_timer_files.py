"""Damage to timer log, timer wheel and timer checkpoint is located: file, offset, what is wrong there."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from golden_store import GoldenStore, unpack
from penstock import Message, StoreConfig
from penstock.clock import ManualClock
from penstock.files.memory import MemoryStorage
from penstock.format.timerunit import WHEEL_SIZE, decode_wheel_slot
from penstock.store.fault import Fault
from penstock.store.opening import open_writable
from penstock.store.verify import VerifyReport, verify_store

from .damage import flip, overwrite

FIRST, SECOND = "timerlog/00000000000000000000", "timerlog/00000000000000001040"
UNIT, BLANK_AT = 52, 19 * 52


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> GoldenStore:
    """RocketMQ's own timer files: 35 units in two files. Each test leaves it as it was."""
    return unpack("broker", tmp_path_factory.mktemp("broker"))


@pytest.fixture
def path(broker: GoldenStore) -> Iterator[Path]:
    kept = {name: (broker.path / name).read_bytes() for name in (FIRST, SECOND, "config/timercheck")}
    yield broker.path
    for name, content in kept.items():
        (broker.path / name).write_bytes(content)


def only(path: Path) -> Fault:
    report = verify_store(str(path))
    (fault,) = report.faults
    return fault


def place(fault: Fault, path: Path) -> tuple[str, str, int | None]:
    return fault.kind, str(Path(fault.file).relative_to(path)), fault.offset


def slots_to_come(path: Path) -> list[int]:
    """Offsets in the wheel of the slots that have not fired, by their own bytes."""
    (read_time,) = struct.unpack(">q", (path / "config/timercheck").read_bytes()[:8])
    content = (path / "timerwheel").read_bytes()
    return [
        at
        for at in range(0, WHEEL_SIZE, 32)
        if content[at : at + 8] != bytes(8) and decode_wheel_slot(content, at).time * 1000 >= read_time
    ]


def test_timer_files_of_rocketmq_are_healthy(path: Path) -> None:
    report = verify_store(str(path))
    assert (report.faults, report.notes, report.timer_units) == ([], [], 35)


@pytest.mark.parametrize(
    ("field", "bit", "at"),
    [(3, 1, 0), (15, 0x10, 0), (28, 0x80, 0), (39, 1, 28), (34, 1, 28), (43, 1, 40), (51, 1, 0), (10, 4, 4)],
    ids=["size", "magic", "negative offset", "record size", "offset", "topic hash", "reserved", "previous"],
)
def test_flipped_bit_in_a_timer_unit_is_located(field: int, bit: int, at: int, path: Path) -> None:
    unit = 3 * UNIT
    flip(path / SECOND, unit + field, bit)
    report = verify_store(str(path))
    assert not report.healthy
    assert ("timer-unit", SECOND, unit + at) in [place(fault, path) for fault in report.faults]


def test_unit_that_fires_before_its_message_wants_to_is_located(path: Path) -> None:
    data = (path / SECOND).read_bytes()
    unit = next(u for u in range(0, 16 * UNIT, UNIT) if data[u + 15] == 1)
    overwrite(path / SECOND, unit + 24, struct.pack(">i", 0))
    report = verify_store(str(path))
    assert ("timer-unit", SECOND, unit + 16) in [place(fault, path) for fault in report.faults]


def test_units_that_were_cut_and_left_are_no_damage(path: Path) -> None:
    """RocketMQ sets the end of its timer log back and leaves the bytes."""
    leftover = struct.pack(">iqIqiqiiq", UNIT, -1, 1, 1_700_000_000_000, 1000, 1 << 40, 200, 0, 0)
    overwrite(path / SECOND, 16 * UNIT, leftover)
    report = verify_store(str(path))
    assert report.faults == []
    assert ("timer-unit", SECOND, 16 * UNIT + 28) in [place(note, path) for note in report.notes]


def test_blank_that_does_not_close_its_file_is_located(path: Path) -> None:
    flip(path / FIRST, BLANK_AT + 3)
    assert place(only(path), path) == ("timer-unit", FIRST, BLANK_AT)


def test_zeros_between_units_are_located(path: Path) -> None:
    overwrite(path / FIRST, 5 * UNIT, bytes(2 * UNIT))
    faults = [place(fault, path) for fault in verify_store(str(path)).faults]
    assert ("timer-unit", FIRST, 5 * UNIT) in faults


def test_missing_file_of_the_timer_log_is_named(path: Path) -> None:
    content = (path / SECOND).read_bytes()
    third = path / "timerlog/00000000000000002080"
    third.write_bytes(content)
    (path / SECOND).unlink()
    try:
        faults = [place(fault, path) for fault in verify_store(str(path)).faults]
    finally:
        third.unlink()
    assert ("timer-unit", str(third.relative_to(path)), 0) in faults


@pytest.mark.parametrize(
    ("field", "at"), [(7, 0), (23, 16), (15, 8), (27, 24)], ids=["time", "last", "first", "count"]
)
def test_flipped_bit_in_a_slot_to_come_is_located(field: int, at: int, path: Path) -> None:
    slot = slots_to_come(path)[0]
    flip(path / "timerwheel", slot + field)
    try:
        report = verify_store(str(path))
    finally:
        flip(path / "timerwheel", slot + field)
    found = [place(fault, path) for fault in [*report.faults, *report.notes]]
    assert ("timer-wheel", "timerwheel", slot + at) in found
    assert report.healthy == (at == 24), "RocketMQ itself leaves wrong counts, and nothing depends on them"


def test_units_without_a_slot_are_told(path: Path) -> None:
    slot = slots_to_come(path)[0]
    kept = (path / "timerwheel").read_bytes()[slot : slot + 32]
    overwrite(path / "timerwheel", slot, bytes(32))
    try:
        report = verify_store(str(path))
    finally:
        overwrite(path / "timerwheel", slot, kept)
    (note,) = report.notes
    assert note.kind == "timer-wheel" and "no slot" in note.found


def test_wheel_of_a_wrong_length_is_named(path: Path, tmp_path: Path) -> None:
    wheel = path / "timerwheel"
    wheel.rename(tmp_path / "kept")
    wheel.write_bytes(bytes(4096))
    try:
        assert place(only(path), path) == ("timer-wheel", "timerwheel", 0)
    finally:
        (tmp_path / "kept").rename(wheel)


@pytest.mark.parametrize(("at", "value"), [(8, 1 << 40), (8, 53), (16, -1), (0, -5)])
def test_timer_checkpoint_that_cannot_be_is_located(at: int, value: int, path: Path) -> None:
    overwrite(path / "config/timercheck", at, struct.pack(">q", value))
    faults = [place(fault, path) for fault in verify_store(str(path)).faults]
    assert ("timer-checkpoint", "config/timercheck", at) in faults


def test_cut_timer_checkpoint_is_named(path: Path) -> None:
    (path / "config/timercheck").write_bytes(bytes(8))
    faults = [place(fault, path) for fault in verify_store(str(path)).faults]
    assert ("timer-checkpoint", "config/timercheck", 0) in faults


SMALL = StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_timer_log=1040,
    max_hash_slot_num=50,
    max_index_num=500,
)


def own(*, end: str, snapshots: bool) -> VerifyReport:
    """A store of our own with timers, some of which have fired, verified after an end."""
    clock = ManualClock(1_700_000_000_000)
    storage = MemoryStorage(clock=clock)
    config = SMALL.replace(timer_wheel_snapshot_flush=snapshots)
    store = open_writable("/s", storage=storage, config=config, background=False, clock=clock)
    for number in range(60):
        delay = 5_000 + 1_000 * (number % 7) + 60_000 * (number % 3)
        store.put(Message("t", b"x", properties={"TIMER_DELAY_MS": str(delay)}))
    store.dispatch()
    timer = store.schedules.timer
    timer.run_once()
    timer.flush()
    clock.advance(20_000)
    timer.run_once()
    store.put(Message("t", b"x", properties={"TIMER_DELAY_MS": "90000"}))
    store.dispatch()
    timer.run_once()
    if end == "closed":
        store.close()
    else:
        store.abandon()
    return verify_store("/s", storage=storage, config=config)


@pytest.mark.parametrize("snapshots", [False, True], ids=["pages", "snapshots"])
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_timer_files_of_our_own_are_healthy(end: str, snapshots: bool) -> None:
    report = own(end=end, snapshots=snapshots)
    assert report.faults == []
    assert report.timer_units == 61
    assert end == "killed" or report.notes == []
