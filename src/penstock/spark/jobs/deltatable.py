"""An export as a Delta table: the files that tasks wrote, put in through Delta's own writer."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from penstock.errors import SparkUnavailable
from penstock.spark.bounds import QueueRange
from penstock.spark.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"


def append(spark: SparkSession, target: Location, ranges: list[QueueRange], staged: list[str]) -> None:
    """Make the rows of staged files the table's rows of these ranges.

    What the table has of the ranges is deleted first, so a run that was stopped in between may be repeated.
    """
    if _EXTENSION not in str(spark.conf.get("spark.sql.extensions", "")):
        raise SparkUnavailable(
            "this Spark session has no Delta",
            hint=f"--conf spark.sql.extensions={_EXTENSION} and Delta's jars (--conf spark.jars.packages=…)",
        )
    from delta.tables import DeltaTable  # type: ignore[import-not-found, unused-ignore]

    table = str(target)
    if DeltaTable.isDeltaTable(spark, table):
        DeltaTable.forPath(spark, table).delete(condition_of(ranges))
    scheme = f"{target.scheme}://" if target.scheme else ""
    attempts = sorted({f"{scheme}{path.split('/topic=')[0]}" for path in staged})
    frames = [spark.read.option("basePath", attempt).parquet(attempt) for attempt in attempts]
    if frames:
        rows = reduce(lambda one, other: one.unionByName(other), frames)
        rows.write.format("delta").mode("append").partitionBy("topic", "dt").save(table)


def condition_of(ranges: list[QueueRange]) -> str:
    """The rows of these ranges, in SQL."""
    parts = []
    for part in ranges:
        topic = part.topic.replace("\\", "\\\\").replace("'", "\\'")
        parts.append(
            f"(topic = '{topic}' and queueId = {part.queue_id}"
            f" and queueOffset >= {part.start} and queueOffset < {part.end})"
        )
    return " or ".join(parts)
