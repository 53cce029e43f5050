"""An export has every message of its ranges once, whatever was exported, stopped or repeated before."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from golden_store import CASES, unpack
from penstock import Message, StoreConfig
from penstock.errors import DataLost, StoreError, UsageError
from penstock.spark import jobs
from penstock.spark.batches import record_batches
from penstock.spark.jobs.exportstate import ExportState
from penstock.spark.location import parse_location
from penstock.spark.options import ReadOptions
from penstock.spark.places import open_places
from penstock.spark.planning import plan_places
from penstock.store.opening import open_writable

from .inprocess import without_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = StoreConfig(
    mapped_file_size_commit_log=64 << 10, mapped_file_size_consume_queue=2000, flush_disk_type="async"
)
NOTHING: Any = None
# A folder name of 255 bytes does not hold its topic: the error is tested for itself.
EXPORTED_CASES = [case for case in CASES if case != "long-topics"]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Any:
    return without_spark(monkeypatch, "export")


def put(path: Path, first: int, count: int) -> None:
    with open_writable(path, config=CONFIG) as store:
        store.put_many(
            [
                Message(f"t{n % 3}", b"%d" % n * 20, keys=f"k{n}", tags="ab"[n % 2], queue_id=n % 2)
                for n in range(first, first + count)
            ]
        )


def rows(target: Path) -> list[dict[str, Any]]:
    """Everything that a reader of the folder sees, in order."""
    import pyarrow as pa
    from pyarrow import dataset

    files = dataset.partitioning(pa.schema([("topic", pa.string()), ("dt", pa.string())]), flavor="hive")
    table = dataset.dataset(str(target), format="parquet", partitioning=files).to_table()
    return sorted(table.to_pylist(), key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def source_rows(path: Path) -> list[dict[str, Any]]:
    options = ReadOptions.parse({"path": str(path)})
    from penstock.spark.schema import NAMES

    found = [
        row
        for split in plan_places(options)
        for batch in record_batches(split, NAMES, options)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def without_day(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "dt"} for row in found]


def assert_same_rows(target: Path, path: Path) -> None:
    exported = rows(target)
    assert all(row["dt"] == f"{row['storeTimestamp']:%Y-%m-%d}" for row in exported)
    source = source_rows(path)
    assert [dict(sorted(row.items())) for row in without_day(exported)] == [
        dict(sorted(row.items())) for row in source
    ]


@pytest.mark.parametrize("case", EXPORTED_CASES)
def test_reading_back_gives_the_messages_of_the_store(case: str, tmp_path: Path, job: Any) -> None:
    store = unpack(case, tmp_path).path
    result = job.export(None, str(store), str(tmp_path / "out"), split_bytes=16 << 10)
    assert_same_rows(tmp_path / "out", store)
    found = Counter((row["topic"], row["queueId"]) for row in rows(tmp_path / "out"))
    assert sum(found.values()) == result.rows
    assert {(part.topic, part.queue_id) for part in result.ranges} >= set(found)
    assert job.export(None, str(store), str(tmp_path / "out")).rows == 0


def test_a_second_run_adds_only_what_came_since(tmp_path: Path, job: Any) -> None:
    store, target = tmp_path / "store", tmp_path / "out"
    put(store, 0, 90)
    first = job.export(None, str(store), str(target))
    put(store, 90, 31)
    files = {path: path.stat().st_mtime_ns for path in target.rglob("*.parquet")}
    second = job.export(None, str(store), str(target))
    assert (first.rows, second.rows) == (90, 31)
    assert all(path.stat().st_mtime_ns == when for path, when in files.items())
    assert_same_rows(target, store)


def test_a_rerun_of_a_range_replaces_it(tmp_path: Path, job: Any) -> None:
    store, target = tmp_path / "store", tmp_path / "out"
    put(store, 0, 120)
    job.export(None, str(store), str(target))
    again = job.export(
        None,
        str(store),
        str(target),
        topics=["t1"],
        startingOffsets=json.dumps({"t1": {"0": 5, "1": 7}}),
        endingOffsets=json.dumps({"t1": {"0": 9, "1": 20}}),
    )
    assert again.rows == 4 + 13
    assert again.replaced_files
    assert_same_rows(target, store)
    assert job.export(None, str(store), str(target), full=True).rows == 120
    assert_same_rows(target, store)


def test_a_target_of_a_range_goes_on_behind_it(tmp_path: Path, job: Any) -> None:
    store, target = tmp_path / "store", tmp_path / "out"
    put(store, 0, 60)
    job.export(None, str(store), str(target), endingOffsets=json.dumps({"t0": {"0": 3}}), topics=["t0"])
    job.export(None, str(store), str(target))
    assert_same_rows(target, store)


@pytest.mark.parametrize("step", range(9))
def test_a_stopped_run_is_finished_by_the_next(
    step: int, tmp_path: Path, job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, target = tmp_path / "store", tmp_path / "out"
    put(store, 0, 60)
    job.export(None, str(store), str(target))
    before = rows(target)
    put(store, 60, 60)
    left = step

    class Stopped(BaseException):
        pass

    class Stopping:
        """The file system of a driver that dies after some changes of the target."""

        def __init__(self, real: Any) -> None:
            self.real = real

        def __getattr__(self, name: str) -> Any:
            nonlocal left
            if name in ("move", "delete_file", "open_output_stream"):
                left -= 1
                if left < 0:
                    raise Stopped
            return getattr(self.real, name)

    made = ExportState.__init__

    def stopping(self: ExportState, where: Any) -> None:
        made(self, where)
        self.filesystem = Stopping(self.filesystem)

    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(ExportState, "__init__", stopping)
        job.export(None, str(store), str(target), full=True)
    journal = (target / "_penstock" / "journal.json").exists()
    if not journal:
        assert rows(target) == before
    result = job.export(None, str(store), str(target))
    assert result.resumed == journal
    assert_same_rows(target, store)
    assert not (target / "_penstock" / "journal.json").exists()


def test_files_of_attempts_that_do_not_count_are_swept(tmp_path: Path, job: Any) -> None:
    store, target = tmp_path / "store", tmp_path / "out"
    put(store, 0, 60)
    ran = job.run_splits

    def twice(spark: Any, splits: Any, *more: Any, **named: Any) -> Any:
        ran(spark, splits, *more, **named)
        return ran(spark, splits, *more, **named)

    job.run_splits = twice
    job.export(None, str(store), str(target))
    job.run_splits = ran
    assert_same_rows(target, store)
    assert sorted(path.name for path in (target / "_penstock").iterdir()) in (
        ["manifest.json"],
        ["manifest.json", "staging"],
    )
    assert not list((target / "_penstock").rglob("*.parquet"))


def test_a_failed_run_leaves_the_target_as_it_was(tmp_path: Path, job: Any) -> None:
    store, target = tmp_path / "store", tmp_path / "out"
    put(store, 0, 90)
    log = sorted((store / "commitlog").iterdir())[0]
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    with pytest.raises(StoreError):
        job.export(None, str(store), str(target))
    with pytest.raises(StoreError, match="were read"):
        job.export(None, str(store), str(target), badRecords="skip")
    assert not list(target.rglob("*.parquet"))


def test_a_dry_run_counts_and_writes_nothing(tmp_path: Path, job: Any) -> None:
    store, target = tmp_path / "store", tmp_path / "out"
    put(store, 0, 90)
    result = job.export(None, str(store), str(target), dry_run=True)
    assert (result.rows, result.dry_run) == (90, True)
    assert not target.exists()


def test_messages_removed_before_they_were_exported_are_told(tmp_path: Path, job: Any) -> None:
    store, target = tmp_path / "store", tmp_path / "out"
    put(store, 0, 60)
    job.export(None, str(store), str(target))
    state = ExportState(parse_location(str(target)))
    manifest = state.load()
    put(store, 60, 900)
    for file in sorted((store / "commitlog").iterdir())[:2]:
        file.unlink()
    with pytest.raises(DataLost) as caught:
        job.export(None, str(store), str(target))
    assert caught.value.ranges
    assert state.load() == manifest
    result = job.export(None, str(store), str(target), fail_on_data_loss=False)
    assert result.lost and result.rows < 900


def test_wrong_targets_and_options_are_refused(tmp_path: Path, job: Any) -> None:
    store, target = tmp_path / "store", tmp_path / "out"
    put(store, 0, 6)
    job.export(None, str(store), str(target))
    put(tmp_path / "other", 0, 6)
    with pytest.raises(UsageError, match="has an export of"):
        job.export(None, str(tmp_path / "other"), str(target))
    with pytest.raises(UsageError, match="is not empty"):
        job.export(None, str(store), str(store))
    with pytest.raises(UsageError, match="no column"):
        job.export(None, str(store), str(tmp_path / "new"), columns=["text"])
    with pytest.raises(UsageError, match="whole ranges"):
        job.export(None, str(store), str(tmp_path / "new"), tags="a")
    with pytest.raises(UsageError, match="no compression"):
        job.export(None, str(store), str(tmp_path / "new"), compression="brotli5")


def test_a_topic_that_is_no_folder_name_is_said_so(tmp_path: Path, job: Any) -> None:
    store = unpack("long-topics", tmp_path).path
    with pytest.raises(StoreError, match="folder of a topic"):
        job.export(None, str(store), str(tmp_path / "out"))


def test_spark_tasks_write_what_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    store, target = tmp_path / "store", tmp_path / "out"
    put(store, 0, 1200)
    result = jobs.export(spark, str(store), str(target), split_bytes=64 << 10, columns=["body", "keys"])
    assert result.rows == 1200
    frame = spark.read.parquet(str(target))
    assert set(frame.columns) == {"queueId", "queueOffset", "keys", "body", "storeTimestamp", "topic", "dt"}
    found = frame.groupBy("topic", "queueId").agg({"*": "count", "queueOffset": "max"}).collect()
    assert sorted(
        (row["topic"], row["queueId"], row["count(1)"], row["max(queueOffset)"]) for row in found
    ) == [(part.topic, part.queue_id, part.end - part.start, part.end - 1) for part in result.ranges]
    assert len(open_places(str(store))) == 1
