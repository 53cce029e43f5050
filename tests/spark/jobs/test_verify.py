"""The job says what ``penstock store verify`` says, however the log is cut into parts."""

from __future__ import annotations

import random
import shutil
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_store import CASES, KILLED_CASES, unpack
from penstock import Message, StoreConfig
from penstock.errors import NotAStore, UsageError
from penstock.spark import jobs
from penstock.spark.jobs.verify import VerifyResult, even_split, index_groups, log_cuts
from penstock.store.fault import Fault
from penstock.store.opening import open_writable
from penstock.store.sizes import QueueFile
from penstock.store.verify import VerifyReport, verify_store

from .inprocess import without_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLITS = [None, 1 << 30, 70 << 10, 16 << 10, 5000]
DERIVED = ("consumequeue", "index", "batchconsumequeue", "consumequeue_ext")


def _told(faults: list[Fault]) -> list[str]:
    return sorted(repr(fault) for fault in faults)


def assert_same(result: VerifyResult, report: VerifyReport) -> None:
    """Everything but the time it took."""
    ours, theirs = result.report.as_dict(), report.as_dict()
    for values in (ours, theirs):
        for name in ("seconds", "faults", "notes"):
            values.pop(name)
    assert ours == theirs
    assert _told(result.report.faults) == _told(report.faults)
    assert _told(result.report.notes) == _told(report.notes)
    assert all(file.accounted == file.size for file in result.files)


def written(path: Path, count: int = 400) -> Path:
    """A closed store of several log files, queue files and index files."""
    config = StoreConfig(
        mapped_file_size_commit_log=32 << 10,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=100,
        max_index_num=300,
        flush_disk_type="async",
    )
    with open_writable(path, config=config) as store:
        store.put_many(
            [
                Message(f"t{n % 3}", b"%d" % n * 20, keys=f"k{n} all", tags="ab"[n % 2], queue_id=n % 2)
                for n in range(count)
            ]
        )
    return path


@pytest.mark.parametrize("split_bytes", SPLITS)
@pytest.mark.parametrize("case", CASES)
def test_a_real_store_is_judged_as_by_one_pass(
    case: str, split_bytes: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = without_spark(monkeypatch, "verify")
    store = unpack(case, tmp_path)
    report = verify_store(str(store.path))
    result = job.verify(None, str(store.path), split_bytes=split_bytes)
    assert_same(result, report)
    assert case in KILLED_CASES or result.healthy


@pytest.mark.parametrize("seed", range(24))
def test_damage_anywhere_is_found_as_by_one_pass(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = without_spark(monkeypatch, "verify")
    chance = random.Random(seed)
    store = unpack(chance.choice(CASES), tmp_path).path if seed % 2 else written(tmp_path / "store")
    files = [file for kind in ("commitlog", *DERIVED) for file in sorted((store / kind).rglob("*"))]
    for _ in range(chance.choice([1, 2, 5])):
        hurt(chance.choice([file for file in files if file.is_file() and file.stat().st_size]), chance)
    if chance.random() < 0.2:
        (store / "abort").touch()
    report = verify_store(str(store))
    for split_bytes in SPLITS:
        assert_same(job.verify(None, str(store), split_bytes=split_bytes), report)


def hurt(file: Path, chance: random.Random) -> None:
    """Turn a bit, wipe or scramble a stretch, cut the file, or take it away."""
    data = bytearray(file.read_bytes())
    at = chance.randrange(len(bytes(data).rstrip(b"\0")) or 1)
    how = chance.random()
    end = min(len(data), at + chance.choice([20, 512, 4096]))
    if how < 0.6:
        data[at] ^= 1 << chance.randrange(8)
    elif how < 0.75:
        data[at:end] = bytes(end - at)
    elif how < 0.85:
        data[at:end] = chance.randbytes(end - at)
    elif how < 0.92:
        data = data[:at]
    else:
        file.unlink()
        return
    file.write_bytes(data)


def test_a_lost_file_of_the_log_is_found_between_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = without_spark(monkeypatch, "verify")
    store = written(tmp_path / "store")
    (sorted((store / "commitlog").iterdir())[1]).unlink()
    result = job.verify(None, str(store), split_bytes=16 << 10)
    assert "missing-file" in {fault.kind for fault in result.report.faults}
    assert_same(result, verify_store(str(store)))


def test_every_byte_of_the_log_has_an_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = without_spark(monkeypatch, "verify")
    store = written(tmp_path / "store")
    result = job.verify(None, str(store), split_bytes=5000)
    sizes = {str(file): file.stat().st_size for file in (store / "commitlog").iterdir()}
    assert {file.file: file.accounted for file in result.files} == sizes
    assert all(file.blank > 0 and file.damaged == 0 for file in result.files[:-1])
    assert sum(file.records for file in result.files) + sum(file.blank for file in result.files) == (
        result.report.log_end
    )


def test_spark_tasks_find_what_one_pass_finds(spark: SparkSession, tmp_path: Path) -> None:
    store = written(tmp_path / "store")
    seen: list[tuple[int, int]] = []
    result = jobs.verify(spark, str(store), split_bytes=32 << 10, progress=lambda *done: seen.append(done))
    assert result.healthy and result.parts > 4
    assert seen[0][0] == 0 and seen[-1][0] == seen[-1][1]
    damaged = tmp_path / "damaged"
    shutil.copytree(store, damaged)
    file = sorted((damaged / "commitlog").iterdir())[1]
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    file.write_bytes(data)
    report = verify_store(str(damaged))
    result = jobs.verify(spark, str(damaged), split_bytes=16 << 10)
    assert not result.healthy
    assert_same(result, report)
    rows = result.frame(spark).where("severity = 'fault'").collect()
    assert [(row["kind"], row["file"], row["offset"]) for row in rows] == [
        (fault.kind, fault.file, fault.offset) for fault in result.report.faults
    ]


def test_what_is_no_store_is_said_so(tmp_path: Path) -> None:
    nothing: Any = None
    with pytest.raises(NotAStore):
        jobs.verify(nothing, str(tmp_path / "nowhere"))
    store = unpack("basic", tmp_path)
    with pytest.raises(UsageError, match="not one store directory"):
        jobs.verify(nothing, str(store.files("commitlog")[0]))
    with pytest.raises(UsageError, match="at least 1"):
        jobs.verify(nothing, str(store.path), split_bytes=0)


@given(
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=20),
    begin=st.integers(0, 10**6),
    split=st.integers(8, 9000),
)
def test_parts_of_the_log_are_no_larger_than_asked_for_and_none_is_left_out(
    sizes: list[int], begin: int, split: int
) -> None:
    files = []
    end = begin
    for size in sizes:
        files.append(QueueFile(f"{end:020d}", end, size, True))
        end += size
    cuts = log_cuts(files, split)
    assert cuts[0] == begin
    assert all(here < there for here, there in pairwise([*cuts, end]))
    assert all(there - here <= split + split // 4 + 1 for here, there in pairwise([*cuts, end]))


def test_small_files_share_a_part_and_parts_begin_with_files_that_are_near() -> None:
    files = [QueueFile(str(n), n * 64, 64, True) for n in range(9)]
    assert log_cuts(files, even_split(9 * 64, 2, smallest=1)) == [0, 4 * 64]
    assert log_cuts(files, even_split(9 * 64, 4, smallest=1)) == [0, 128, 288, 448]
    assert log_cuts([], 64) == []
    assert index_groups({"a": 40, "b": 40, "c": 40, "d": 200}, 100) == [("a", "b"), ("c",), ("d",)]


def test_tasks_at_a_time_have_equal_parts_that_are_not_too_large() -> None:
    assert even_split(1000, 4, most=1 << 30, smallest=1) == 250
    assert even_split(1000, 4, most=100, smallest=1) == 84  # 12 tasks
    assert even_split(1000, 4, most=100, smallest=500) == 500
