"""Repair makes a damaged directory healthy, loses nothing that was whole, and keeps what it takes out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from golden_store import CASES, unpack
from penstock.store.directory import StoreDirectory
from penstock.store.opening import open_writable
from penstock.store.repair import repair_store
from penstock.store.scan import LogScanner
from penstock.store.verify import verify_store

from .damage import flip, overwrite, snapshot


def bodies(path: Path) -> dict[int, bytes]:
    return {m.physical_offset: m.body for m in LogScanner(StoreDirectory(None, str(path))).messages()}


def test_a_healthy_store_is_left_alone(tmp_path: Path) -> None:
    store = unpack("basic", tmp_path)
    before = snapshot(store.path)
    report = repair_store(str(store.path))
    assert report.healthy and report.actions == []
    assert snapshot(store.path) == before


@pytest.mark.parametrize("case", [case for case in CASES if case != "killed-torn"])
def test_one_damaged_record_costs_one_message(case: str, tmp_path: Path) -> None:
    store = unpack(case, tmp_path)
    before = bodies(store.path)
    hurt = next(offset for offset, body in list(before.items())[5:] if len(body) > 2)
    file = next(f for f in StoreDirectory(None, str(store.path)).log_files if f.holds(hurt))
    place = Path(file.path).read_bytes().index(before[hurt], hurt - file.begin)
    flip(Path(file.path), place + 1)
    report = repair_store(str(store.path))
    assert report.after is not None and report.after.faults == []
    after = bodies(store.path)
    assert set(before) - set(after) == {hurt}
    assert all(before[offset] == body for offset, body in after.items())
    kept = (store.path / "penstock.damaged" / f"{hurt:020d}").read_bytes()
    assert before[hurt][2:] in kept


def test_every_other_message_can_still_be_got_after_a_repair(tmp_path: Path) -> None:
    store = unpack("basic", tmp_path)
    before = bodies(store.path)
    offsets = sorted(before)
    overwrite(
        store.path / "commitlog" / "00000000000000000000", offsets[10], b"\xaa" * (offsets[13] - offsets[10])
    )
    repair_store(str(store.path))
    with open_writable(store.path) as opened:
        got = {
            message.physical_offset
            for topic, queue in opened.queues()
            for message in opened.follow(topic, queue, wait=False)
        }
    assert got == set(offsets) - set(offsets[10:13])


@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_queues_and_index_are_rebuilt(folder: str, tmp_path: Path) -> None:
    store = unpack("basic", tmp_path)
    for file in (store.path / folder).rglob("*"):
        if file.is_file():
            flip(file, 47)
    assert not verify_store(str(store.path)).healthy
    assert repair_store(str(store.path)).healthy


def _cut_log(store: Path) -> None:
    with (store / "commitlog" / "00000000000000196608").open("r+b") as opened:
        opened.truncate(30_000)


def _lengthen_log(store: Path) -> None:
    with (store / "commitlog" / "00000000000000131072").open("ab") as opened:
        opened.write(b"surplus")


def _remove_middle(store: Path) -> None:
    (store / "commitlog" / "00000000000000065536").unlink()


def _cut_queue(store: Path) -> None:
    with (store / "consumequeue" / "x" / "1" / "00000000000000000000").open("r+b") as opened:
        opened.truncate(30)


def _add_foreign(store: Path) -> None:
    (store / "commitlog" / "core.1234").write_text("oops")


@pytest.mark.parametrize("hurt", [_cut_log, _lengthen_log, _remove_middle, _cut_queue, _add_foreign])
def test_files_of_wrong_size_or_place_are_mended(hurt: Callable[[Path], None], tmp_path: Path) -> None:
    store = unpack("basic", tmp_path)
    hurt(store.path)
    before = bodies(store.path)
    dry = repair_store(str(store.path), dry_run=True)
    assert dry.actions and not dry.healthy
    report = repair_store(str(store.path))
    assert report.after is not None and report.after.faults == []
    assert bodies(store.path).items() >= before.items()


def test_a_damaged_tail_is_cut_and_kept(tmp_path: Path) -> None:
    store = unpack("killed-torn", tmp_path)
    before = bodies(store.path)
    report = repair_store(str(store.path))
    assert report.healthy
    assert bodies(store.path) == before
    assert list((store.path / "penstock.damaged").iterdir())


def test_a_repaired_store_can_be_written(tmp_path: Path) -> None:
    from penstock import Message

    store = unpack("basic", tmp_path)
    shutil.rmtree(store.path / "index")
    flip(store.path / "commitlog" / "00000000000000000000", 95)
    repair_store(str(store.path))
    with open_writable(store.path) as opened:
        result = opened.put(Message("TopicTest", b"new", keys="fresh"))
        opened.wait_visible()
        assert result.status == "PUT_OK"
        assert [m.body for m in opened.query("TopicTest", "fresh")] == [b"new"]
    assert verify_store(str(store.path)).healthy
