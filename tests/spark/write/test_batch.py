"""A DataFrame becomes messages of a store: every column arrives, all at once, or an error says what to do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import open_store
from penstock import spark as ps
from penstock.format.staged import queue_of_key
from penstock.message.topic import SCHEDULE_TOPIC
from penstock.store.timerhook import TIMER_TOPIC
from spark.write.publishing import everything, make_store, numbers_in


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def numbered(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    frame = spark.range(0, count, 1, partitions)
    return frame.select(F.lit("t").alias("topic"), F.format_string("%06d", "id").alias("body"))


def test_every_column_arrives(spark: SparkSession, path: Path) -> None:
    born = datetime(2024, 5, 1, 12, tzinfo=UTC)
    frame = spark.createDataFrame(
        [
            ("a", bytearray(b"one"), "k1 k2", "red", {"x": "1"}, 3, None, "U1", 7, born),
            (None, None, None, None, None, None, "order", None, None, None),
        ],
        "topic string, body binary, keys string, tags string, properties map<string,string>, queueId int,"
        " orderKey string, uniqKey string, flag int, bornTimestamp timestamp",
    )
    ps.write(frame, path, topic="other", queues=8)
    with open_store(path, read_only=True) as store:
        (first,) = everything(store, "a", 3)
        (second,) = everything(store, "other", queue_of_key("order", 8))
        assert (first.body, first.keys, first.tags, first.flag) == (b"one", "k1 k2", "red", 7)
        assert first.properties == {"KEYS": "k1 k2", "TAGS": "red", "UNIQ_KEY": "U1", "x": "1"}
        assert first.born_timestamp == 1714564800000
        assert (second.body, list(second.properties)) == (b"", ["UNIQ_KEY"])
        assert [m.physical_offset for m in store.query("a", "k2")] == [first.physical_offset]


def test_text_in_column_value_is_the_body(spark: SparkSession, path: Path) -> None:
    ps.write(spark.createDataFrame([("ä",)], "value string"), path, topic="t")
    with open_store(path, read_only=True) as store:
        assert [m.body for q in range(4) for m in everything(store, "t", q)] == ["ä".encode()]


def test_rows_are_all_there_in_their_order_and_spread_over_the_queues(
    spark: SparkSession, path: Path
) -> None:
    ps.write(numbered(spark, 1000), path, queues=2)
    assert numbers_in(path) == dict.fromkeys(range(1000), 1)
    with open_store(path, read_only=True) as store:
        for queue_id in range(2):
            bodies = [m.body for m in everything(store, "t", queue_id)]
            assert bodies == sorted(bodies) and abs(len(bodies) - 500) <= 3


def test_later_delivery_is_stored_as_a_put_would(spark: SparkSession, path: Path) -> None:
    when = datetime.now(UTC) + timedelta(hours=1)
    frame = spark.createDataFrame(
        [("d", "delayed", 3, None), ("d", "timed", None, when), ("d", "now", None, None)],
        "topic string, body string, delay int, deliverAt timestamp",
    )
    ps.write(frame, path, queues=1)
    with open_store(path, read_only=True) as store:
        (delayed,) = everything(store, SCHEDULE_TOPIC, 2)
        (timed,) = everything(store, TIMER_TOPIC, 0)
        (now,) = everything(store, "d", 0)
        real = ("d", "0")
        assert (delayed.properties["REAL_TOPIC"], delayed.properties["REAL_QID"]) == real
        assert (timed.properties["REAL_TOPIC"], timed.properties["REAL_QID"]) == real
        assert (delayed.body, timed.body, now.body) == (b"delayed", b"timed", b"now")
        assert delayed.properties["DELAY"] == "3"
        assert int(timed.properties["TIMER_DELIVER_MS"]) == int(when.timestamp() * 1000)


def refusal(action: Any) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


@pytest.mark.parametrize(
    ("schema", "row", "told"),
    [
        ("body string, colour string", ("a", "b"), "no column 'colour'"),
        ("body string, key string", ("a", "b"), "did you mean 'keys'"),
        ("body int", (1,), "'body' is int, not binary or string"),
        ("topic string", ("a",), "one column 'body'"),
        ("body string, properties map<string,int>", ("a", {"a": 1}), "map<string,string>"),
        ("body string, queueId int", ("a", -1), "queue id is not between"),
        ("topic string, body string", ("no/topic", "a"), "characters other than"),
        ("topic string, body string", (SCHEDULE_TOPIC, "a"), "belongs to the broker"),
        ("body string, properties map<string,string>", ("a", {"INNER_NUM": "2"}), "batches of messages"),
        ("body string, keys string", ("a", "\1"), "separator"),
    ],
)
def test_what_cannot_be_written_is_told_and_nothing_is(
    spark: SparkSession, path: Path, schema: str, row: tuple[Any, ...], told: str
) -> None:
    # One task: another, still running when the write is given up, may stage behind the withdrawal.
    frame = spark.createDataFrame([row], schema).coalesce(1)
    message = refusal(lambda: ps.write(frame, path, topic="t"))
    assert told in message
    with open_store(path, read_only=True) as store:
        assert store.topics() == ["old"]
    assert not (path / "penstock.spark").exists()


def test_missing_topic_unknown_option_and_overwriting_are_refused(spark: SparkSession, path: Path) -> None:
    frame = spark.createDataFrame([("a",)], "body string")
    assert "neither a column 'topic'" in refusal(lambda: ps.write(frame, path))
    assert "did you mean 'queues'" in refusal(lambda: ps.write(frame, path, topic="t", queue=3))
    overwriting = frame.write.format("rocketmq").mode("overwrite").option("topic", "t")
    assert 'with .mode("append")' in refusal(lambda: overwriting.save(str(path)))
    assert "cannot write to s3://" in refusal(lambda: ps.write(frame, "s3://bucket/store", topic="t"))


def test_task_that_fails_leaves_nothing_visible(spark: SparkSession, path: Path) -> None:
    frame = numbered(spark, 500).withColumn(
        "body", F.when(F.col("body") == "000499", F.raise_error(F.lit("boom"))).otherwise(F.col("body"))
    )
    assert "boom" in refusal(lambda: ps.write(frame, path))
    with open_store(path, read_only=True) as store:
        assert store.topics() == ["old"]
    # A task that runs on while the write is given up may leave a staged file: it is swept by age.


def test_store_that_is_open_is_not_written_to(spark: SparkSession, path: Path) -> None:
    with open_store(path):
        assert "stop the broker" in refusal(lambda: ps.write(numbered(spark, 5), path))
    ps.write(numbered(spark, 5), path)
    assert numbers_in(path) == dict.fromkeys(range(5), 1)


def test_write_with_an_id_is_made_once(spark: SparkSession, path: Path) -> None:
    for _ in range(2):
        ps.write(numbered(spark, 20), path, writeId="load 2024-05-01")
    assert numbers_in(path) == dict.fromkeys(range(20), 1)


def test_written_rows_are_read_back(spark: SparkSession, path: Path) -> None:
    ps.write(numbered(spark, 300), path)
    found = ps.read(spark, path, topic="t", columns=["body"]).select(F.col("body").cast("string").alias("b"))
    assert sorted(row.b for row in found.collect()) == [f"{n:06d}" for n in range(300)]
