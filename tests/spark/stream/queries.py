"""Streaming queries that remember what they were given."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SCHEMA = "topic string, queueId int, queueOffset bigint, body binary"


class Seen:
    """The rows of each batch: topic, queue, offset and the number that the body begins with."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[str, int, int, int]]] = {}
        self.before: Callable[[int], None] | None = None
        """Called at the beginning of each batch; may raise, as a sink does that breaks."""
        self.after: Callable[[int], None] | None = None
        """Called when a batch was read."""
        self._arrived = threading.Condition()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if self.before is not None:
            self.before(batch)
        rows = sorted(
            (row.topic, row.queueId, row.queueOffset, int(bytes(row.body).rstrip(b".")))
            for row in frame.collect()
        )
        with self._arrived:
            self.batches[batch] = rows
            self._arrived.notify_all()
        if self.after is not None:
            self.after(batch)

    def has(self, count: int) -> bool:
        """Whether so many messages have come."""
        return len(self.rows) >= count

    def until(self, query: StreamingQuery, done: Callable[[], bool]) -> None:
        """Wait until the batches are as wished; raises when the query fails before."""
        with self._arrived:
            while not self._arrived.wait_for(done, 1.0):
                error = query.exception()
                if error is not None:
                    raise error
                assert query.isActive, "the query ended"

    @property
    def rows(self) -> list[tuple[str, int, int, int]]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    @property
    def numbers(self) -> list[int]:
        """Numbers of all messages, sorted: a message that came twice is there twice."""
        return sorted(row[3] for row in self.rows)


def reading(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    """A stream without the help of ``penstock.spark.stream``."""
    reader = spark.readStream.format("rocketmq").schema(SCHEMA)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(path))


def start(frame: DataFrame, seen: Seen, checkpoint: Path, *, now: bool = True) -> StreamingQuery:
    """Start a query on everything there is (``now``), or on all that comes."""
    writer = frame.writeStream.foreachBatch(seen).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if now else writer).start()


def finish(query: StreamingQuery) -> None:
    """Wait for the end of a query; raises what it failed with."""
    assert query.awaitTermination(120), "the query did not end"
