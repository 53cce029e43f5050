"""What is measured: one function for each work and each way to do it. They run in a side's own process."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.schema import TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NARROW = "topic string, queueId int, queueOffset bigint"
GROUPED = "topic string, queueId int, storeTimestamp timestamp, body binary"
WRITTEN = ("topic", "queueId", "keys", "tags", "body")
_CHECKED = ("topic", "queueId", "queueOffset", "physicalOffset", "body", "bodyCrc", "size")


Work = Callable[..., int | None]
"""Takes the session and the paths; says how many rows there were, None when that is not known."""


def frame(spark: SparkSession, source: str, path: str, schema: str | None = None) -> DataFrame:
    """A fresh load: what Spark keeps of an older one is not measured."""
    if source == "tuples":
        from penstock.bench.spark.tuplesource import TupleSource

        spark.dataSource.register(TupleSource)
        return spark.read.format("tuples").load(path)
    if source == "loop":
        from penstock.bench.spark.loopsource import LoopSource

        spark.dataSource.register(LoopSource)
        return spark.read.format("loop").load(path)
    if source == "live":
        live = spark.read.format("rocketmq").option("namesrv", path)
        return (live.schema(schema) if schema else live).load()
    if source == "parquet":
        rows = spark.read.parquet(path)
        return rows.select(*[part.split()[0] for part in schema.split(", ")]) if schema else rows
    reader = spark.read.format("rocketmq")
    return (reader.schema(schema) if schema else reader).load(path)


def count(spark: SparkSession, *, source: str, path: str, **_: Any) -> int:
    return frame(spark, source, path).count()


def consume(spark: SparkSession, *, source: str, path: str, schema: str | None = None, **_: Any) -> None:
    """All columns (or those of ``schema``) to a sink that drops them."""
    frame(spark, source, path, schema).write.format("noop").mode("overwrite").save()


def group(spark: SparkSession, *, source: str, path: str, **_: Any) -> int:
    from pyspark.sql import functions

    grouped = frame(spark, source, path, GROUPED).groupBy("topic", "queueId")
    rows = grouped.agg(
        functions.count("*").alias("rows"),
        functions.sum(functions.length("body")),
        functions.max("storeTimestamp"),
    ).collect()
    return sum(int(row["rows"]) for row in rows)


# -- jobs --------------------------------------------------------------------------------------------


def verify(spark: SparkSession, *, path: str, **_: Any) -> int:
    from penstock.spark import jobs

    result = jobs.verify(spark, path)
    if not result.healthy:
        raise RuntimeError(f"verify says {result}")
    return int(result.report.records)


def verify_in_sql(spark: SparkSession, *, path: str, **_: Any) -> int:
    """The same check with a row for each message: CRC, places one behind the other, queues without gaps."""
    schema = ", ".join(f"{name} {TYPES[name]}" for name in _CHECKED)
    frame(spark, "ours", path, schema).createOrReplaceTempView("checked")
    found = spark.sql(
        "select topic, queueId, count(*) as n, min(queueOffset) as low, max(queueOffset) as high,"
        " count(distinct queueOffset) as apart, sum(size) as bytes, min(physicalOffset) as begin,"
        " count_if((crc32(body) & 2147483647) <> bodyCrc) as wrong from checked group by topic, queueId"
    ).collect()
    for row in found:
        if row["wrong"] or row["n"] != row["high"] - row["low"] + 1 or row["n"] != row["apart"]:
            raise RuntimeError(f"damage in {row}")
    return sum(int(row["n"]) for row in found)


def export(spark: SparkSession, *, path: str, target: str, **_: Any) -> None:
    from penstock.spark import jobs

    jobs.export(spark, path, target)


def export_rows(spark: SparkSession, *, path: str, target: str, **_: Any) -> None:
    """Rows through the JVM and Spark's own writer, by topic."""
    frame(spark, "ours", path).write.partitionBy("topic").parquet(target)


# -- writing and streams -----------------------------------------------------------------------------


def write(spark: SparkSession, *, source: str, path: str, target: str, **_: Any) -> None:
    """Messages from Parquet into a store, a row writer's files, or Parquet again."""
    rows = spark.read.parquet(path).select(*WRITTEN)
    if source == "parquet":
        rows.write.parquet(target)
        return
    if source == "rows":
        from penstock.bench.spark.rowwriter import RowSink

        spark.dataSource.register(RowSink)
    rows.write.format("rows" if source == "rows" else "rocketmq").mode("append").save(target)


def stream(spark: SparkSession, *, source: str, path: str, target: str, **_: Any) -> int:
    """Everything there is, as a stream that ends when it has it."""
    if source == "parquet":
        frame_ = spark.readStream.schema(spark.read.parquet(path).schema).parquet(path)
    else:
        options = {"startingOffsets": "earliest", "namesrv" if source == "live" else "path": path}
        frame_ = spark.readStream.format("rocketmq").options(**options).load()
    query = (
        frame_.writeStream.format("noop")
        .option("checkpointLocation", target)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(int(progress["numInputRows"]) for progress in query.recentProgress)


WORKS: dict[str, Work] = {
    "count": count,
    "all": consume,
    "narrow": partial(consume, schema=NARROW),
    "group": group,
    "verify": verify,
    "verify-sql": verify_in_sql,
    "export": export,
    "export-rows": export_rows,
    "write": write,
    "stream": stream,
}


def in_a_folder(work: Work, spark: SparkSession, below: Path, **arguments: Any) -> int | None:
    """Do the work with a ``target`` that does not exist yet; the caller removes ``below``."""
    folder = Path(tempfile.mkdtemp(prefix="target-", dir=below))
    return work(spark, target=str(folder / "out"), **arguments)


def clear(below: Path) -> None:
    """Remove what works wrote."""
    for entry in below.glob("target-*"):
        shutil.rmtree(entry)
