"""The source inside of Spark: found by name, right for every use of a DataFrame."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.frames import read
from spark.read.rows import dumped
from spark.read.stores import START, STEP, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(**options).load(str(path))


def test_rows_are_the_messages(spark: SparkSession, store: Path) -> None:
    found = [row.asDict() for row in load(spark, store, splitBytes="20k").orderBy("physicalOffset").collect()]
    for row in found:
        row["body"] = bytes(row["body"])
        for name in ("bornTimestamp", "storeTimestamp"):
            row[name] = round(row[name].timestamp() * 1000)
    assert found == dumped(store)


@pytest.mark.parametrize("push", ["false", "true"])
def test_two_filters_and_a_self_join_on_one_frame_are_right(
    spark: SparkSession, store: Path, push: str
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", push)
    try:
        frame = load(spark, store, pushFilters=push).select("topic", "queueId", "queueOffset")
        assert frame.count() == 600
        assert frame.filter("topic = 'orders'").count() == 200
        assert frame.filter("topic = 'audit' and queueId = 1").count() == 100
        assert frame.count() == 600
        left, right = frame.filter("topic = 'orders'"), frame.filter("topic = 'audit'")
        joined = left.alias("l").join(right.alias("r"), ["queueId", "queueOffset"])
        assert joined.select("l.topic", "r.topic").distinct().collect() == [("orders", "audit")]
        assert joined.count() == 200
        assert left.union(frame).count() == 800
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_a_users_schema_is_a_projection(spark: SparkSession, store: Path) -> None:
    frame = spark.read.format("rocketmq").schema("size int, topic string").load(str(store))
    assert frame.columns == ["size", "topic"]
    expected = sorted((row["size"], row["topic"]) for row in dumped(store))
    assert sorted((row.size, row.topic) for row in frame.collect()) == expected


def test_the_helper_takes_bounds_as_arguments(spark: SparkSession, store: Path) -> None:
    frame = read(
        spark,
        store,
        topic=["orders", "audit"],
        since=START + 100 * STEP,
        until=START + 200 * STEP,
        tags=["red"],
        columns=["topic", "properties"],
        minPartitions=3,
    )
    numbers = sorted(int(row.properties["number"]) for row in frame.collect())
    assert numbers == [n for n in range(100, 200) if n % 3 != 1 and n // 3 % 3 == 0]
    assert read(spark, store, keys="k5").select("keys").collect() == [("k5 ten5",)]


def test_sql_reads_views_and_tables_that_say_their_path(spark: SparkSession, store: Path) -> None:
    options = f"OPTIONS (path '{store}', subscribe 'orders')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING rocketmq {options}")
    try:
        assert spark.sql("SELECT count(*), max(queueOffset) FROM messages").collect() == [(200, 99)]
        pairs = spark.sql(
            "SELECT count(*) FROM messages a JOIN messages b ON a.queueOffset = b.queueOffset"
            " WHERE a.queueId = 0 AND b.queueId = 1"
        )
        assert pairs.collect() == [(100,)]
    finally:
        spark.catalog.dropTempView("messages")
    spark.sql(f"CREATE TABLE kept USING rocketmq OPTIONS (path '{store}', subscribe 'audit')")
    try:
        # Spark 4.3 gives a Python source the options of a table when it is made, and none when it is read.
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW t USING rocketmq"):
            spark.sql("SELECT count(*) FROM kept").collect()
        query = f"SELECT count(*) FROM kept WITH (path = '{store}', subscribe = 'audit')"
        assert spark.sql(query).collect() == [(200,)]
    finally:
        spark.sql("DROP TABLE kept")


def test_nothing_to_read_is_an_empty_frame(spark: SparkSession, store: Path) -> None:
    assert load(spark, store, startingOffsets="latest").collect() == []


def test_a_loaded_frame_is_a_snapshot_and_a_fresh_one_sees_more(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 30)
    frame = load(spark, tmp_path)
    assert frame.count() == 30
    fill(tmp_path, 30, first=30)
    assert frame.count() == 30
    assert load(spark, tmp_path).count() == 60


def test_bad_records_become_rows(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 30)
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(300)
        file.write(b"\xff" * 8)
    frame = load(spark, tmp_path, badRecords="quarantine")
    assert frame.filter("badRecord is not null").count() == 1
    assert frame.filter("badRecord is null").count() == 29
    with pytest.raises(Exception, match="badRecords=skip goes on behind it"):
        load(spark, tmp_path).collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscibe": "a"}, "do you mean subscribe"),
        ({"view": "sideways"}, "queue or commitlog"),
        ({"subscribe": "nothing"}, "no message of nothing"),
        ({"namesrv": "localhost:9876"}, "name two places"),
    ],
)
def test_mistakes_are_told(spark: SparkSession, store: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        load(spark, store, **options).count()


def test_an_unknown_column_is_told(spark: SparkSession, store: Path) -> None:
    with pytest.raises(Exception, match="do you mean queueId"):
        spark.read.format("rocketmq").schema("queueID int").load(str(store)).count()


def test_a_path_without_a_store_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is nothing here"):
        load(spark, tmp_path / "nowhere").count()


def test_a_fresh_interpreter_finds_the_source_by_its_name(store: Path) -> None:
    """Nobody registers anything. This is how Spark looks; the tests above load what it finds."""
    code = """
import json, sys
from pyspark.sql.datasource import DataSource
import pkgutil, importlib
found = {}
for info in pkgutil.iter_modules():
    if info.ispkg and info.name.startswith("pyspark_"):
        module = importlib.import_module(info.name)
        if hasattr(module, "DefaultSource") and issubclass(module.DefaultSource, DataSource):
            found[module.DefaultSource.name()] = info.name
print(json.dumps([found, "penstock.store.readonly" in sys.modules]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[3] / "src"), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [{"rocketmq": "pyspark_rocketmq"}, False]
