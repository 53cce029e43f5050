"""An export into an object store is what an export into a folder is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import StoreError
from penstock.spark import jobs
from penstock.spark.places import open_places
from spark.places.s3server import BUCKET, SECRET, S3Server, serve_uploads

from .inprocess import without_spark
from .test_export import put, source_rows, without_day

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    pytest.importorskip("pyarrow")
    pytest.importorskip("moto")
    with serve_uploads() as server:
        yield server


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Any:
    return without_spark(monkeypatch, "export")


def bucket(server: S3Server) -> Any:
    from pyarrow import fs

    return fs.FileSystem.from_uri(server.write_uri(""))[0]


def upload(server: S3Server, folder: Path, key: str) -> None:
    """Log and queues of a store. Its index is of RocketMQ's size: 420 MB that nobody asks for here."""
    from pyarrow import fs

    for part in ("commitlog", "consumequeue"):
        fs.copy_files(str(folder / part), f"{BUCKET}/{key}/{part}", destination_filesystem=bucket(server))


def keys(server: S3Server, key: str) -> list[str]:
    from pyarrow import fs

    found = bucket(server).get_file_info(fs.FileSelector(f"{BUCKET}/{key}", recursive=True))
    return sorted(info.path.removeprefix(f"{BUCKET}/{key}/") for info in found if info.is_file)


def rows(server: S3Server, key: str) -> list[dict[str, Any]]:
    """Everything that a reader of the folder sees, in order."""
    import pyarrow as pa
    from pyarrow import dataset

    files = dataset.partitioning(pa.schema([("topic", pa.string()), ("dt", pa.string())]), flavor="hive")
    found = dataset.dataset(
        f"{BUCKET}/{key}", format="parquet", partitioning=files, filesystem=bucket(server)
    )
    return sorted(
        found.to_table().to_pylist(), key=lambda row: (row["topic"], row["queueId"], row["queueOffset"])
    )


def assert_same_rows(server: S3Server, key: str, store: Path) -> None:
    exported, source = without_day(rows(server, key)), source_rows(store)
    assert [dict(sorted(row.items())) for row in exported] == [dict(sorted(row.items())) for row in source]


def test_a_bucket_gets_every_message_once_and_only_what_came_since(
    s3: S3Server, tmp_path: Path, job: Any
) -> None:
    store, target = tmp_path / "store", s3.write_uri("grown")
    put(store, 0, 90)
    assert job.export(None, str(store), target).rows == 90
    before = keys(s3, "grown")
    put(store, 90, 31)
    second = job.export(None, str(store), target)
    assert second.rows == 31
    assert_same_rows(s3, "grown", store)
    after = keys(s3, "grown")
    assert set(before) < set(after)
    assert [key for key in after if not key.endswith(".parquet")] == ["_penstock/manifest.json"]
    assert SECRET not in json.dumps(second.as_dict())


def test_a_rerun_of_a_range_replaces_it_in_a_bucket(s3: S3Server, tmp_path: Path, job: Any) -> None:
    store, target = tmp_path / "store", s3.write_uri("replaced")
    put(store, 0, 120)
    job.export(None, str(store), target)
    again = job.export(
        None,
        str(store),
        target,
        topics=["t1"],
        startingOffsets=json.dumps({"t1": {"0": 5, "1": 7}}),
        endingOffsets=json.dumps({"t1": {"0": 9, "1": 20}}),
    )
    assert again.rows == 4 + 13 and again.replaced_files
    assert_same_rows(s3, "replaced", store)


def test_a_run_that_stopped_while_it_published_is_finished_in_a_bucket(
    s3: S3Server, tmp_path: Path, job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, target = tmp_path / "store", s3.write_uri("stopped")
    put(store, 0, 90)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):

        def die(*given: Any) -> None:
            raise KeyboardInterrupt

        patched.setattr("penstock.spark.jobs.exportstate.ExportState._apply", die)
        job.export(None, str(store), target)
    assert not [key for key in keys(s3, "stopped") if key.startswith("topic=")]
    assert job.export(None, str(store), target).resumed
    assert_same_rows(s3, "stopped", store)


def test_a_bucket_that_is_not_there_is_said_so(s3: S3Server, tmp_path: Path, job: Any) -> None:
    put(tmp_path / "store", 0, 6)
    with pytest.raises(StoreError, match=r"s3://nowhere/out.*credentials") as caught:
        job.export(None, str(tmp_path / "store"), s3.write_uri("out", bucket="nowhere"))
    assert SECRET not in str(caught.value)


def test_a_store_uploaded_there_is_read_by_range(s3: S3Server, tmp_path: Path) -> None:
    put(tmp_path / "store", 0, 300)
    upload(s3, tmp_path / "store", "uploaded")
    [place] = open_places(s3.uri("uploaded"))
    file = place.log_files[0]
    s3.forget()
    assert (
        place.storage.pread(file.path, 5_000, 1_000)
        == Path(tmp_path / "store" / "commitlog" / f"{0:020d}").read_bytes()[5_000:6_000]
    )
    [request] = s3.reads_of(f"{0:020d}")
    assert (request.first, request.last) == (5_000, 5_999)
    assert s3.bytes_out < 4_000


def test_spark_exports_from_a_bucket_into_a_bucket(spark: SparkSession, s3: S3Server, tmp_path: Path) -> None:
    put(tmp_path / "store", 0, 600)
    upload(s3, tmp_path / "store", "both")
    result = jobs.export(spark, s3.uri("both"), s3.write_uri("parquet"), split_bytes=32 << 10)
    assert result.rows == 600 and result.target == f"s3://{BUCKET}/parquet"
    assert_same_rows(s3, "parquet", tmp_path / "store")
