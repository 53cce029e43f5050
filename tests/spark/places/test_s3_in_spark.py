"""A query over an archive: the right rows, and every task asks the server for its own range only."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark.places.conftest import COUNT, SEGMENT
from spark.places.s3server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def archived(s3: S3Server, written: Path) -> str:
    shutil.copytree(written, s3.folder / "queried")
    return "queried"


def bodies(spark: SparkSession, path: str, **options: str) -> list[bytes]:
    rows = spark.read.format("rocketmq").options(**options).load(path).select("body").collect()
    return sorted(bytes(row["body"][:11]) for row in rows)


@pytest.mark.parametrize("split", ["200k", "1g"])
def test_archived_store_is_a_dataframe(spark: SparkSession, s3: S3Server, archived: str, split: str) -> None:
    expected = [b"body %06d" % number for number in range(COUNT)]
    assert bodies(spark, s3.uri(archived), splitBytes=split) == expected
    assert bodies(spark, s3.uri(f"{archived}/commitlog/*"), splitBytes=split) == expected


def test_query_fetches_ranges_of_the_log_and_no_object_whole(
    spark: SparkSession, s3: S3Server, archived: str
) -> None:
    frame = spark.read.format("rocketmq").options(splitBytes="256k").load(s3.uri(archived))
    assert frame.count() == COUNT
    s3.forget()
    assert frame.count() == COUNT  # planned before: only the tasks ask now
    for number in range(3):
        reads = s3.reads_of(f"commitlog/{number * SEGMENT:020d}")
        assert reads and all(request.last >= request.first >= 0 for request in reads)
    assert all("commitlog" in request.target for request in s3.requests)


def test_few_messages_of_an_archive_cost_few_bytes(spark: SparkSession, s3: S3Server, archived: str) -> None:
    s3.forget()
    options = {"assign": '{"Orders": [0]}', "startingOffsets": '{"Orders": {"0": 5000}}'}
    options["endingOffsets"] = '{"Orders": {"0": 5010}}'
    found = bodies(spark, s3.uri(archived), **options)
    assert found == [b"body %06d" % number for number in range(5000, 5010)]
    log_bytes = sum(r.last - r.first + 1 for r in s3.reads_of("") if "/commitlog/" in r.target)
    assert log_bytes < SEGMENT


def test_wrong_key_fails_the_query_with_what_was_looked_for(
    spark: SparkSession, s3: S3Server, archived: str
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        spark.read.format("rocketmq").load(s3.uri("nowhere")).count()
    assert "NotAStore" in str(caught.value) and "s3://archive/nowhere" in str(caught.value)
