"""The source with brokers behind it, as a Spark program uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import Message
from penstock import spark as ps
from penstock.client.sync import Producer
from penstock.testing import RunningBroker
from spark.network.rows import rows
from spark.stream.queries import SCHEMA, Seen, finish, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def broker(penstock_broker: RunningBroker) -> Iterator[RunningBroker]:
    penstock_broker.create_topic("t", 3)
    put(penstock_broker, range(300))
    yield penstock_broker


def put(broker: RunningBroker, numbers: range) -> None:
    with Producer(namesrv=broker.namesrv) as producer:
        for first in range(numbers.start, numbers.stop, 50):
            some = range(first, min(first + 50, numbers.stop))
            producer.send_batch(
                [Message("t", b"%d" % number, tags="even" if number % 2 == 0 else "odd") for number in some]
            )


def stream(spark: SparkSession, broker: RunningBroker, **options: str) -> DataFrame:
    reader = spark.readStream.format("rocketmq").schema(SCHEMA).option("namesrv", broker.namesrv)
    return reader.option("subscribe", "t").options(**options).load()


def test_filters_of_two_queries_and_a_self_join_give_the_right_rows(
    spark: SparkSession, broker: RunningBroker
) -> None:
    frame = ps.read(spark, namesrv=broker.namesrv, topic="t", minPartitions=2)
    assert frame.filter("tags = 'even'").count() == frame.filter("tags = 'odd'").count() == 150
    assert frame.alias("a").join(frame.alias("b"), ["queueId", "queueOffset"]).count() == 300
    put(broker, range(300, 310))
    assert frame.count() == 300, "a loaded frame is a snapshot"


def test_a_view_of_sql_reads_brokers(spark: SparkSession, broker: RunningBroker) -> None:
    options = f"namesrv '{broker.namesrv}', tags 'odd'"
    spark.sql(f"create or replace temporary view live using rocketmq options ({options})")
    assert spark.sql("select count(*), count(distinct uniqKey) from live").collect() == [(150, 150)]


def test_what_a_frame_holds_arrives_at_the_broker_once(spark: SparkSession, broker: RunningBroker) -> None:
    from pyspark.sql import functions as F

    frame = spark.range(0, 500, 1, 3).select(F.col("id").cast("string").alias("value"))
    for _ in range(2):
        ps.write(frame, namesrv=broker.namesrv, topic="written", writeId="one")
    found = rows(broker.namesrv, ["body"], subscribe="written")
    assert sorted(int(row["body"]) for row in found) == list(range(500))


def test_a_stream_outlives_its_broker(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> None:
    seen = Seen()

    def once(batch: int) -> None:
        if batch == 0:
            broker.restart()

    seen.before = once
    query = start(stream(spark, broker, maxOffsetsPerTrigger="200"), seen, tmp_path / "checkpoint", now=False)
    try:
        seen.until(query, lambda: seen.has(300))
        broker.restart()
        put(broker, range(300, 400))
        seen.until(query, lambda: seen.has(400))
    finally:
        query.stop()
    assert seen.numbers == list(range(400))
    put(broker, range(400, 420))
    finish(start(stream(spark, broker), seen, tmp_path / "checkpoint"))
    assert seen.numbers == list(range(420))


def test_a_stream_from_topic_to_topic_repeats_nothing_and_publishes_its_place(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    lag = ps.LagListener()
    spark.streams.addListener(lag)
    try:
        for _ in range(2):
            query = (
                stream(spark, broker, commitGroup="copier")
                .selectExpr("body")
                .writeStream.format("rocketmq")
                .option("namesrv", broker.namesrv)
                .option("topic", "copy")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            finish(query)
            put(broker, range(300, 330))
        found = rows(broker.namesrv, ["body"], subscribe="copy")
        assert sorted(int(row["body"]) for row in found) == [*range(330)]
        offsets = broker.broker.consumer_offsets
        assert sum(offsets.query("copier", "t", queue) for queue in range(3)) == 330
        report = lag.report(query)
        assert report is None or report.of("t").fault is None
    finally:
        spark.streams.removeListener(lag)


def test_retention_that_passes_a_stream_by_stops_it_with_the_ranges(
    spark: SparkSession, tmp_path: Path, penstock_broker_factory: Callable[..., RunningBroker]
) -> None:
    from spark.network.test_faults import SMALL, make_old

    broker = penstock_broker_factory(store=SMALL)
    broker.create_topic("t", 1)
    with Producer(namesrv=broker.namesrv) as producer:
        producer.send_batch([Message("t", b"%d" % number) for number in range(10)])
    seen = Seen()
    finish(start(stream(spark, broker), seen, tmp_path / "checkpoint"))
    with Producer(namesrv=broker.namesrv) as producer:
        for first in range(10, 100, 10):
            producer.send_batch([Message("t", b"%d." % n + b"." * 2000) for n in range(first, first + 10)])
    make_old(broker, 2)
    first = broker.store.min_offset("t", 0)
    with pytest.raises(Exception, match=rf"t@[^/]+/0 \[10, {first}\)"):
        finish(start(stream(spark, broker), seen, tmp_path / "checkpoint"))
    finish(start(stream(spark, broker, failOnDataLoss="false"), seen, tmp_path / "checkpoint"))
    assert seen.numbers == [*range(10), *range(first, 100)]
