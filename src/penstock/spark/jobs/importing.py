"""Import: Parquet files, or any DataFrame, become messages of a store, all at once or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.spark.jobs.job import Progress, told_errors, watched
from penstock.spark.writeoptions import ACCEPTED, WriteOptions, column_roles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Columns of a store that was read or exported, which say where a message lay: the new place is another one.
PLACES = (
    "queueOffset",
    "physicalOffset",
    "msgId",
    "storeTimestamp",
    "bornHost",
    "storeHost",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "bodyCrc",
    "size",
    "badRecord",
    "dt",
)


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import wrote, or with ``dry_run`` would write. ``seconds`` includes the reading."""

    target: str
    rows: int
    columns: dict[str, str]
    left_out: list[str]
    dry_run: bool
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def import_messages(
    spark: SparkSession,
    source: str | os.PathLike[str] | Sequence[str] | DataFrame,
    target: str | os.PathLike[str],
    *,
    topic: str | None = None,
    columns: Mapping[str, str] | None = None,
    json_body: bool = False,
    order_by: str | Sequence[str] | None = None,
    queues: int = 4,
    write_id: str | None = None,
    source_format: str = "parquet",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportResult:
    """Append the rows of ``source`` to the store ``target``, which nobody may have open.

    Columns go by the names that a write accepts; ``columns`` maps such a name to an SQL expression over the
    source (``{"body": "payload", "keys": "cast(id as string)"}``). With ``json_body`` all other columns
    become the body, as one JSON object. Columns that say where a message lay before (an export has them) are
    left out; ``queueOffset`` among them, or ``order_by``, gives the order within a queue. With ``write_id``
    a repeated import is made once.
    """
    began = time.monotonic()
    frame: Any = source if hasattr(source, "sparkSession") else _load(spark, source, source_format)
    rows, left_out = shaped(frame, columns or {}, json_body=json_body, order_by=order_by, queues=queues)
    options = {"path": os.fspath(target), "queues": str(queues)}
    options |= {} if topic is None else {"topic": topic}
    options |= {} if write_id is None else {"writeId": write_id}
    column_roles(rows.schema, WriteOptions.parse(options).topic)  # tell a mistake before anything runs
    with told_errors(), watched(spark, "import", progress, 1):
        count = rows.count() if dry_run else write_counted(rows, options)
    return ImportResult(
        options["path"],
        count,
        {field.name: field.dataType.simpleString() for field in rows.schema.fields},
        left_out,
        dry_run,
        time.monotonic() - began,
    )


def write_counted(rows: DataFrame, options: Mapping[str, str]) -> int:
    """Append rows to a store; how many, counted as they passed."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    counted = rows.observe(seen, F.count(F.lit(1)).alias("rows"))
    counted.write.format("rocketmq").mode("append").options(**options).save()
    return int(seen.get["rows"])


def shaped(
    frame: DataFrame,
    columns: Mapping[str, str],
    *,
    json_body: bool = False,
    order_by: str | Sequence[str] | None = None,
    queues: int = 4,
) -> tuple[DataFrame, list[str]]:
    """The columns that a write accepts, in order within a queue, and the names of those that are left out."""
    from pyspark.sql import functions as F

    unknown = [name for name in columns if name not in ACCEPTED]
    if unknown:
        raise UsageError(f"a write knows no column {unknown[0]!r}", hint=f"there are {', '.join(ACCEPTED)}")
    chosen = {name: F.col(f"`{name}`") for name in frame.columns if name in ACCEPTED}
    chosen |= {name: F.expr(expression).alias(name) for name, expression in columns.items()}
    rest = [name for name in frame.columns if name not in ACCEPTED and name not in PLACES]
    left_out = [name for name in frame.columns if name in PLACES]
    if json_body:
        if "body" in chosen or "value" in chosen:
            raise UsageError("there is a body already", hint="import it without making one from the others")
        chosen["body"] = F.to_json(F.struct(*[F.col(f"`{name}`") for name in rest])).alias("body")
    elif columns:
        left_out += rest  # whoever names columns has seen the others
    else:
        chosen |= {name: F.col(f"`{name}`") for name in rest}  # the write tells that it does not know them
    order = _order(frame, chosen, order_by)
    if not order:
        return frame.select(*chosen.values()), left_out
    # What gives the order need not be written: it is taken along under another name, and dropped at the end.
    keys = [F.col(f"`{name}`").alias(f"__order{number}") for number, name in enumerate(order)]
    together = [name for name in ("topic", "queueId", "orderKey") if name in chosen]
    taken = frame.select(*chosen.values(), *keys)
    spread = taken.repartition(queues, *together) if together else taken.repartition(1)
    ordered = spread.sortWithinPartitions(*[f"__order{number}" for number in range(len(order))])
    return ordered.select(*chosen), left_out


def _order(frame: DataFrame, chosen: Mapping[str, Any], order_by: str | Sequence[str] | None) -> list[str]:
    """The columns of the source that give the order; none: rows stay in the order in which they come."""
    if order_by is None:
        return ["queueOffset"] if "queueOffset" in frame.columns and "queueId" in chosen else []
    names = [order_by] if isinstance(order_by, str) else list(order_by)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise UsageError(f"there is no column {missing[0]!r}", hint=f"there are {', '.join(frame.columns)}")
    return names


def _load(spark: SparkSession, source: Any, source_format: str) -> DataFrame:
    paths = [os.fspath(source)] if isinstance(source, str | os.PathLike) else [os.fspath(p) for p in source]
    return spark.read.format(source_format).load(paths if len(paths) > 1 else paths[0])
