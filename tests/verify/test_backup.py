"""A backup opens like the store it was taken from: closed, killed, or in the middle of being written."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from golden_store import CASES, unpack
from penstock import Message, StoreConfig
from penstock.errors import NotAStore, UsageError
from penstock.store.backup import backup_store
from penstock.store.opening import open_writable
from penstock.store.verify import verify_store

from .damage import snapshot

CONFIG = StoreConfig(
    mapped_file_size_commit_log=256 << 10,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=500,
    flush_disk_type="async",
)


@pytest.mark.parametrize("case", CASES)
def test_a_directory_nobody_writes_is_copied_byte_for_byte(case: str, tmp_path: Path) -> None:
    store = unpack(case, tmp_path)
    report = backup_store(str(store.path), str(tmp_path / "copy"))
    whole = snapshot(store.path)
    whole.pop("lock", None)
    assert snapshot(tmp_path / "copy") == whole
    assert report.files == len(whole)


def _messages(first: int, count: int) -> list[Message]:
    return [
        Message(f"t{n % 3}", b"%d" % n * 20, keys=f"k{n}", tags="a", queue_id=n % 2)
        for n in range(first, first + count)
    ]


def _numbers(path: Path) -> list[int]:
    with open_writable(path, config=CONFIG) as store:
        found = [
            int(m.body[: len(m.body) // 20]) for t in range(3) for m in store.follow(f"t{t}", wait=False)
        ]
        assert store.query("t0", f"k{found[0]}")
    return sorted(found)


@pytest.mark.parametrize("inside", [True, False], ids=["by-its-owner", "from-outside"])
def test_a_store_in_use_is_copied_at_one_place(inside: bool, tmp_path: Path) -> None:
    stop = threading.Event()
    with open_writable(tmp_path / "s", config=CONFIG) as store:
        store.put_many(_messages(0, 3000))
        store.flush()
        store.wait_visible()
        store.consumer_offsets.commit("g", "t0", 0, 100)
        store.consumer_offsets.persist()
        written = [3000]

        def write() -> None:
            while not stop.is_set():
                store.put_many(_messages(written[0], 50))
                written[0] += 50

        writer = threading.Thread(target=write)
        writer.start()
        try:
            if inside:
                report = store.backup(tmp_path / "copy")
            else:
                report = backup_store(str(tmp_path / "s"), str(tmp_path / "copy"))
        finally:
            stop.set()
            writer.join()
    check = verify_store(str(tmp_path / "copy"))
    assert check.faults == []
    assert check.log_end == report.end_offset
    assert not (tmp_path / "copy" / "abort").exists()
    numbers = _numbers(tmp_path / "copy")
    assert numbers == list(range(len(numbers)))
    assert 3000 <= len(numbers) <= written[0]
    assert "t0@g" in (tmp_path / "copy" / "config" / "consumerOffset.json").read_text()


def test_a_copy_is_sparse_where_the_store_is(tmp_path: Path) -> None:
    with open_writable(tmp_path / "s") as store:
        store.put(Message("t", b"x", keys="k"))
    backup_store(str(tmp_path / "s"), str(tmp_path / "copy"))
    used = sum(p.stat().st_blocks * 512 for p in (tmp_path / "copy").rglob("*") if p.is_file())
    assert used < 8 << 20


def test_a_target_with_something_in_it_is_refused(tmp_path: Path) -> None:
    store = unpack("basic", tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for target in (tmp_path / "full", store.path / "inside", store.path):
        with pytest.raises(UsageError):
            backup_store(str(store.path), str(target))
    with pytest.raises(NotAStore):
        backup_store(str(tmp_path / "full"), str(tmp_path / "copy"))


def test_a_copy_holds_what_was_acknowledged_before_a_queue_knew_of_it(tmp_path: Path) -> None:
    with open_writable(tmp_path / "s", config=CONFIG, background=False) as store:
        store.put_many(_messages(0, 1000))
        store.wait_visible()
        results = store.put_many(_messages(1000, 1500))  # into the next file of the log, and in no queue
        report = backup_store(str(tmp_path / "s"), str(tmp_path / "copy"))
    assert report.end_offset > results[-1].physical_offset
    assert verify_store(str(tmp_path / "copy")).faults == []
    assert _numbers(tmp_path / "copy") == list(range(2500))


def test_a_copy_ends_behind_a_record_when_the_log_has_just_gone_to_its_next_file(tmp_path: Path) -> None:
    store = open_writable(tmp_path / "s", config=CONFIG, background=False)
    size = CONFIG.mapped_file_size_commit_log
    end = 0
    while (result := store.put(_messages(0, 1)[0])).physical_offset < size:
        end = store.max_physical_offset
    assert result.physical_offset == size
    with (tmp_path / "s" / "commitlog" / f"{size:020d}").open("r+b") as file:
        file.write(bytes(1000))  # made, and nothing in it yet
    report = backup_store(str(tmp_path / "s"), str(tmp_path / "copy"))
    store.abandon()
    assert report.end_offset == end
    check = verify_store(str(tmp_path / "copy"))
    assert (check.faults, check.log_end) == ([], end)
