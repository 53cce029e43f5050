"""What RocketMQ wrote and closed is healthy; what it left when it was killed is told apart from damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden_store import CASES, KILLED_CASES, unpack
from penstock import Message, StoreConfig
from penstock.files.memory import MemoryStorage
from penstock.store.opening import open_writable
from penstock.store.verify import verify_store

from .damage import snapshot

CLOSED = [case for case in CASES if case not in KILLED_CASES]


@pytest.mark.parametrize("case", CLOSED)
def test_a_closed_directory_of_rocketmq_is_healthy(case: str, tmp_path: Path) -> None:
    store = unpack(case, tmp_path)
    before = snapshot(store.path)
    report = verify_store(str(store.path))
    assert report.faults == []
    assert report.healthy and report.closed
    assert report.log_end == store.answers["maxPhysicalOffset"]
    assert report.units > 0 and report.index_entries > 0
    assert snapshot(store.path) == before


@pytest.mark.parametrize("case", KILLED_CASES)
def test_a_directory_that_rocketmq_recovered_is_healthy(case: str, tmp_path: Path) -> None:
    store = unpack(case, tmp_path, recovered=True)
    report = verify_store(str(store.path))
    assert report.faults == []
    assert report.log_end == store.answers["maxPhysicalOffset"]


@pytest.mark.parametrize("case", ["killed-lagging", "v4-killed"])
def test_queues_that_lag_behind_a_killed_log_are_no_damage(case: str, tmp_path: Path) -> None:
    store = unpack(case, tmp_path)
    report = verify_store(str(store.path))
    assert report.healthy
    assert {"abort", "missing-units"} <= {note.kind for note in report.notes}
    assert report.log_end == store.answers["maxPhysicalOffset"]


def test_a_record_that_queues_know_and_the_log_lost_is_damage(tmp_path: Path) -> None:
    store = unpack("killed-torn", tmp_path)
    report = verify_store(str(store.path))
    (fault,) = report.faults
    assert fault.physical_offset == store.answers["maxPhysicalOffset"]
    assert fault.file == str(store.path / "commitlog" / "00000000000000065536")
    assert fault.offset == fault.physical_offset - 65536


@pytest.mark.parametrize("case", KILLED_CASES)
def test_a_directory_that_we_recovered_is_healthy(case: str, tmp_path: Path) -> None:
    store = unpack(case, tmp_path)
    open_writable(store.path).close()
    report = verify_store(str(store.path))
    assert report.faults == []


def test_a_store_of_our_own_is_healthy_while_it_is_written(tmp_path: Path) -> None:
    config = StoreConfig(
        mapped_file_size_commit_log=64 << 10,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=50,
        max_index_num=300,
    )
    with open_writable(tmp_path / "s", config=config) as store:
        for n in range(0, 2000, 50):
            store.put_many(
                [
                    Message(f"t{i % 3}", b"x" * i, keys=f"k{i}", tags="a", queue_id=i % 2)
                    for i in range(n, n + 50)
                ]
            )
            store.wait_visible()
            if n % 500 == 0:
                report = verify_store(str(tmp_path / "s"))
                assert report.faults == []
                assert report.live
                assert report.records == n + 50
    report = verify_store(str(tmp_path / "s"))
    assert report.faults == [] and report.notes == []
    assert (report.records, report.units) == (2000, 2000)


def test_a_store_in_memory_can_be_verified() -> None:
    storage = MemoryStorage()
    config = StoreConfig(mapped_file_size_commit_log=64 << 10, max_hash_slot_num=50, max_index_num=300)
    with open_writable("/s", storage=storage, config=config, background=False) as store:
        store.put_many([Message("t", b"x" * 300, keys=f"k{n}") for n in range(400)])
    report = verify_store("/s", storage=storage, config=config)
    assert report.faults == []
    assert report.records == 400


def test_progress_goes_up_to_the_whole(tmp_path: Path) -> None:
    store = unpack("basic", tmp_path)
    seen: list[tuple[int, int]] = []
    verify_store(str(store.path), progress=lambda done, whole: seen.append((done, whole)))
    assert seen == sorted(seen)
    assert len({whole for _, whole in seen}) == 1
