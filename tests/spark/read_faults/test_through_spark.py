"""The same faults as a query meets them: what Spark gives or says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark.read_faults.reading import SEGMENT, file_of, segments, size_at, stored
from spark.read_faults.test_damage import victim
from verify.damage import flip

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: SparkSession, path: Path | str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(**options).load(str(path))


def offsets(frame: DataFrame) -> list[tuple[str, int, int]]:
    rows = frame.select("topic", "queueId", "queueOffset").collect()
    return sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in rows)


def failure(frame: DataFrame) -> str:
    """What a query says when it fails."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        frame.count()
    return str(caught.value)


def test_corrupt_record_by_each_policy(spark: SparkSession, store: Path) -> None:
    expected, lost = stored(store), victim(store)
    size = size_at(store, lost.place)
    file, position = file_of(store, lost.place)
    flip(file, position + 100)

    said = failure(load(spark, store))
    assert str(file) in said and f"offset {position}" in said and "badRecords=skip" in said

    kept = sorted((row.topic, row.queue, row.offset) for row in expected if row != lost)
    assert offsets(load(spark, store, badRecords="skip", splitBytes="64k")) == kept

    quarantined = load(spark, store, badRecords="quarantine", splitBytes="64k")
    assert offsets(quarantined.where("badRecord is null")) == kept
    [bad] = quarantined.where("badRecord is not null").collect()
    assert (bad["physicalOffset"], bad["size"], bad["topic"]) == (lost.place, size, None)
    assert bytes(bad["body"]) == file.read_bytes()[position : position + size]


def test_segment_cut_short_fails_the_query_or_is_read_as_far_as_it_goes(
    spark: SparkSession, store: Path
) -> None:
    file = segments(store)[1]
    with file.open("r+b") as opened:
        opened.truncate(100_000)
    assert file.name in failure(load(spark, store))
    count = load(spark, store, badRecords="skip").count()
    assert count == len(stored(store)) and 1_000 < count < 2_000


def test_file_deleted_under_a_planned_query_names_the_lost_range(spark: SparkSession, store: Path) -> None:
    """A DataFrame keeps the plan of its first action; retention passes before the next."""
    expected = stored(store)
    strict = load(spark, store, splitBytes="64k")
    lenient = load(spark, store, splitBytes="64k", failOnDataLoss="false")
    assert strict.count() == lenient.count() == len(expected)
    segments(store)[0].unlink()
    said = failure(strict)
    assert "DataLost" in said and "failOnDataLoss=false" in said
    assert "T0/0 [0, " in said
    assert offsets(lenient) == sorted(
        (row.topic, row.queue, row.offset) for row in expected if row.place >= SEGMENT
    )


def test_wrong_path_says_what_was_looked_for(spark: SparkSession, tmp_path: Path) -> None:
    said = failure(load(spark, tmp_path / "nowhere"))
    assert "NotAStore" in said and str(tmp_path / "nowhere") in said and "store directory" in said


def test_unknown_option_names_the_nearest(spark: SparkSession, store: Path) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="startingOffsets"):
        load(spark, store, startingOfsets="earliest")


def test_unknown_column_lists_what_there_is(spark: SparkSession, store: Path) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        spark.read.format("rocketmq").schema("topic string, qeueOffset bigint").load(str(store)).count()
    assert "queueOffset" in str(caught.value) and "columns are topic string" in str(caught.value)


def test_column_of_another_type_says_which_it_is(spark: SparkSession, store: Path) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="queueId is int, not bigint"):
        spark.read.format("rocketmq").schema("queueId bigint").load(str(store)).count()
