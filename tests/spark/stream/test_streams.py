"""Streams on a Spark session: each message once, whatever happens in between."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

import pytest

from penstock import open_store
from spark.stream.queries import SCHEMA, Seen, finish, reading, start
from spark.stream.stores import drop_segments, fill, opened, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def test_stream_reads_everything_once_and_goes_on_after_a_restart(
    spark: SparkSession, store: Path, checkpoint: Path
) -> None:
    fill(store, range(50))
    seen = Seen()
    finish(start(reading(spark, store), seen, checkpoint))
    assert seen.numbers == list(range(50))
    assert {row[:3] for row in seen.rows} == {("t", n % 2, n // 2) for n in range(50)}
    fill(store, range(50, 80))
    finish(start(reading(spark, store), seen, checkpoint))
    assert seen.numbers == list(range(80))


def drained(spark: SparkSession) -> None:
    """Listeners have seen everything that happened so far."""
    bus = spark.sparkContext._jsc.sc().listenerBus()  # type: ignore[union-attr]
    bus.waitUntilEmpty(30_000)


def fail(batch: int) -> None:
    raise RuntimeError("the sink broke")


def breaks(query: StreamingQuery, checkpoint: Path) -> None:
    """The query dies in batch 0, whose end is logged."""
    with pytest.raises(Exception, match="the sink broke"):
        finish(query)
    assert (checkpoint / "offsets" / "0").exists()
    assert not (checkpoint / "commits" / "0").exists()


def test_failure_in_batch_0_with_start_latest_loses_nothing(
    spark: SparkSession, store: Path, checkpoint: Path
) -> None:
    """``stream()`` is called again after the failure, and finds another latest: the logged batch wins."""
    from penstock.spark import stream

    seen = Seen()
    fill(store, range(15))
    columns = ["topic", "queueId", "queueOffset", "body"]
    frame = stream(spark, store, startingOffsets="latest", columns=columns)
    fill(store, range(15, 20))
    seen.before = fail
    breaks(start(frame, seen, checkpoint), checkpoint)
    seen.before = None
    fill(store, range(20, 30))
    finish(start(stream(spark, store, startingOffsets="latest", columns=columns), seen, checkpoint))
    assert seen.numbers == list(range(15, 30))


def test_kept_start_holds_for_a_query_that_never_logged_a_batch(
    spark: SparkSession, store: Path, checkpoint: Path, tmp_path: Path
) -> None:
    seen, state = Seen(), str(tmp_path / "state")
    fill(store, range(15))
    finish(start(reading(spark, store, startingOffsets="latest", stateLocation=state), seen, checkpoint))
    assert seen.numbers == []
    rmtree(checkpoint)
    fill(store, range(15, 20))
    seen.before = fail
    breaks(
        start(reading(spark, store, startingOffsets="latest", stateLocation=state), seen, checkpoint),
        checkpoint,
    )
    seen.before = None
    fill(store, range(20, 30))
    finish(start(reading(spark, store, startingOffsets="latest"), seen, checkpoint))
    assert seen.numbers == list(range(15, 30))


def test_available_now_ends_at_the_frozen_target_while_a_producer_appends(
    spark: SparkSession, store: Path, checkpoint: Path
) -> None:
    seen = Seen()
    with opened(store) as writer:
        put(writer, range(40))

        def append(batch: int) -> None:
            put(writer, range(1000 + batch * 10, 1010 + batch * 10))
            put(writer, [5000 + batch], topic="later")

        seen.before = append
        finish(start(reading(spark, store, maxOffsetsPerTrigger=15), seen, checkpoint))
    assert seen.numbers == list(range(40))
    assert [len(rows) for rows in seen.batches.values()] == [15, 15, 10]
    seen.before = None
    finish(start(reading(spark, store), seen, checkpoint))
    assert seen.numbers == sorted([*range(40), *range(1000, 1030), *range(5000, 5003)])


def test_retention_passing_by_fails_with_the_ranges(
    spark: SparkSession, store: Path, checkpoint: Path
) -> None:
    fill(store, range(900))
    seen = Seen()
    seen.after = lambda batch: drop_segments(store, 2)
    with pytest.raises(Exception, match=r"t/0 \[10, \d+\), t/1 \[10, \d+\).*failOnDataLoss") as caught:
        finish(start(reading(spark, store, maxOffsetsPerTrigger=20), seen, checkpoint))
    with open_store(store, read_only=True) as left:
        for queue in (0, 1):
            assert f"t/{queue} [10, {left.min_offset('t', queue)})" in str(caught.value)
    assert seen.numbers == list(range(20)), "what was read before stays read"


def test_retention_under_a_running_task_fails_with_the_ranges(
    spark: SparkSession, store: Path, checkpoint: Path
) -> None:
    fill(store, range(900))
    seen = Seen()
    seen.before = lambda batch: drop_segments(store, 2)
    with pytest.raises(Exception, match=r"t/0 \[0, 10\), t/1 \[0, 10\).*failOnDataLoss"):
        finish(start(reading(spark, store, maxOffsetsPerTrigger=20), seen, checkpoint))
    assert seen.batches == {}


def test_retention_passing_by_is_reported_and_the_rest_read(
    spark: SparkSession, store: Path, checkpoint: Path
) -> None:
    from penstock.spark import LagListener

    fill(store, range(40))
    seen = Seen()
    finish(start(reading(spark, store), seen, checkpoint))
    fill(store, range(40, 900))
    drop_segments(store, 4)
    with open_store(store, read_only=True) as left:
        low = [left.min_offset("t", queue) for queue in (0, 1)]
    assert min(low) > 20
    listener = LagListener()
    spark.streams.addListener(listener)
    try:
        frame = reading(spark, store, maxOffsetsPerTrigger=400, failOnDataLoss="false")
        query = start(frame, seen, checkpoint)
        finish(query)
        drained(spark)
    finally:
        spark.streams.removeListener(listener)
    assert listener.lost(query) == (("t", 0, 20, low[0]), ("t", 1, 20, low[1]))
    for queue in (0, 1):
        offsets = sorted(row[2] for row in seen.rows if row[1] == queue)
        assert offsets == [*range(20), *range(low[queue], 450)]


def test_new_queues_and_topics_are_read_from_their_first_message(
    spark: SparkSession, store: Path, checkpoint: Path
) -> None:
    fill(store, range(10))
    seen = Seen()
    finish(start(reading(spark, store, startingOffsets="latest"), seen, checkpoint))
    fill(store, range(10, 22), queues=4)
    fill(store, range(100, 105), topic="new", queues=1)
    finish(start(reading(spark, store, startingOffsets="latest"), seen, checkpoint))
    assert seen.numbers == [*range(10, 22), *range(100, 105)]


def test_running_stream_follows_a_writer(spark: SparkSession, store: Path, checkpoint: Path) -> None:
    with opened(store) as writer:
        put(writer, range(10))
        seen = Seen()
        query = start(reading(spark, store), seen, checkpoint, now=False)
        try:
            for end in (20, 30, 40):
                put(writer, range(end - 10, end))
                seen.until(query, partial(seen.has, end))
        finally:
            query.stop()
    assert seen.numbers == list(range(40))


def test_batches_keep_to_the_byte_limit(spark: SparkSession, store: Path, checkpoint: Path) -> None:
    with opened(store) as writer:
        put(writer, range(100), size=100)
        size = next(iter(writer.get("t", 0, 0, 1).messages)).size
    seen = Seen()
    finish(start(reading(spark, store, maxBytesPerTrigger=30 * size), seen, checkpoint))
    assert [len(seen.batches[batch]) for batch in sorted(seen.batches)] == [30, 30, 30, 10]
    assert seen.numbers == list(range(100))


def test_lag_listener_tells_what_is_left(spark: SparkSession, store: Path, checkpoint: Path) -> None:
    from penstock.spark import LagListener

    with opened(store) as writer:
        put(writer, range(100))
        size = next(iter(writer.get("t", 0, 10, 1).messages)).size
    reports = []
    listener = LagListener(reports.append)
    spark.streams.addListener(listener)
    try:
        query = start(reading(spark, store, maxOffsetsPerTrigger=40), Seen(), checkpoint)
        finish(query)
        drained(spark)
    finally:
        spark.streams.removeListener(listener)
    lags = [(report.offsets, report.bytes) for report in reports if report.batch_id <= 2]
    assert [lag[0] for lag in lags[:3]] == [60, 20, 0]
    with open_store(store, read_only=True) as left:
        sizes = [m.size for queue in (0, 1) for m in left.get("t", queue, 20, 50).messages]
    assert size in sizes
    assert lags[0][1] == sum(sizes)
    assert reports[0].fault is None
    assert reports[0].seconds is not None and reports[0].seconds > 0
    assert reports[2].seconds == 0.0
    assert listener.report(query).topics == ["t"]


def test_group_offsets_follow_the_committed_batches(
    spark: SparkSession, store: Path, checkpoint: Path
) -> None:
    fill(store, range(50))
    finish(start(reading(spark, store, commitGroup="spark-g"), Seen(), checkpoint))
    with open_store(store, read_only=True) as left:
        assert left.consumer_offsets.offsets("spark-g", "t") == {0: 25, 1: 25}


def test_group_under_a_broker_is_refused(spark: SparkSession, store: Path, checkpoint: Path) -> None:
    with opened(store) as writer:
        put(writer, range(10))
        with pytest.raises(Exception, match="spark-g can't be published"):
            finish(start(reading(spark, store, commitGroup="spark-g"), Seen(), checkpoint))


def test_full_schema_streams_too(spark: SparkSession, store: Path, checkpoint: Path, tmp_path: Path) -> None:
    fill(store, range(30))
    frame = spark.readStream.format("rocketmq").load(str(store))
    assert frame.isStreaming
    out = tmp_path / "out"
    query = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    finish(query.trigger(availableNow=True).start(str(out)))
    assert spark.read.parquet(str(out)).count() == 30
    assert SCHEMA
