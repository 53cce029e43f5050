"""An export as a Delta table: the files that tasks wrote, put in through Delta's own writer."""

from __future__ import annotations

import importlib.util
import re
from functools import reduce
from importlib import metadata
from typing import TYPE_CHECKING

from penstock.errors import SparkUnavailable
from penstock.spark.location import Location
from penstock.spark.ranges import QueueRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_INSTEAD = "export with --format parquet; Delta's CONVERT TO DELTA takes such a folder"
_BOUND = re.compile(r"(<=|<|>=|>|==|~=)\s*([0-9]+(?:\.[0-9]+)*)")


def check_delta() -> None:
    """Raises SparkUnavailable unless there is a Delta that is made for this Spark.

    With another one tables can be written, and not be read any more: Delta uses Spark's insides.
    """
    if importlib.util.find_spec("delta") is None:
        raise SparkUnavailable(
            "delta-spark is not installed", hint=f"install one that goes with this Spark, or {_INSTEAD}"
        )
    import pyspark

    try:
        delta = metadata.distribution("delta-spark")
    except metadata.PackageNotFoundError:
        return  # brought along some other way: whoever did it knows
    needs = [text for text in delta.requires or () if re.match(r"pyspark\b(?![-_])", text)]
    if any(not _satisfies(pyspark.__version__, text) for text in needs):
        wanted = ", ".join(needs)
        raise SparkUnavailable(
            f"delta-spark {delta.version} is made for {wanted}, and this is Spark {pyspark.__version__}",
            hint=_INSTEAD,
        )


def _satisfies(version: str, requirement: str) -> bool:
    """Whether a version is within the bounds of a requirement. What is no bound is not judged."""
    have = _numbers(version)
    for sign, text in _BOUND.findall(requirement.partition(";")[0]):
        bound = _numbers(text)
        if sign == "~=":
            good = have >= bound and have[: len(text.split(".")) - 1] == bound[: len(text.split(".")) - 1]
        else:
            good = {
                "<=": have <= bound,
                "<": have < bound,
                ">=": have >= bound,
                ">": have > bound,
                "==": have == bound,
            }[sign]
        if not good:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    found = re.findall(r"[0-9]+", version.partition("dev")[0])[:3]
    return tuple(int(part) for part in [*found, 0, 0, 0][:3])


def check_session(spark: SparkSession) -> None:
    """Raises SparkUnavailable unless the session was started with Delta in it."""
    if _EXTENSION not in str(spark.conf.get("spark.sql.extensions", "")):
        raise SparkUnavailable(
            "this Spark session has no Delta",
            hint=f"--conf spark.sql.extensions={_EXTENSION} and Delta's jars (--conf spark.jars.packages=…)",
        )


def append(spark: SparkSession, target: Location, ranges: list[QueueRange], staged: list[str]) -> None:
    """Make the rows of staged files the table's rows of these ranges.

    What the table has of the ranges is deleted first, so a run that was stopped in between may be repeated.
    """
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
