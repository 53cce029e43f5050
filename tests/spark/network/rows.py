"""Rows from brokers without Spark: planned and read as Spark would have it done."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.spark.network.planning import plan_brokers
from penstock.spark.network.reading import BrokerSplit, broker_batches
from penstock.spark.options import ReadOptions
from penstock.spark.schema import BAD_RECORD, NAMES, arrow_schema
from spark.read.rows import plain

Rows = list[dict[str, Any]]


def planned(namesrv: str, **options: Any) -> tuple[ReadOptions, list[BrokerSplit]]:
    """Options and splits, both sent through pickle as on their way to a worker."""
    parsed = ReadOptions.parse({"namesrv": namesrv, **options})
    splits: list[BrokerSplit] = pickle.loads(pickle.dumps(plan_brokers(parsed)))
    return pickle.loads(pickle.dumps(parsed)), splits


def batches(namesrv: str, columns: list[str] | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
    """The batches of all splits, each found valid and of the schema that Spark demands."""
    parsed, splits = planned(namesrv, **options)
    names = columns if columns is not None else [*NAMES, *([BAD_RECORD.name] if parsed.quarantine else [])]
    for split in splits:
        for batch in broker_batches(split, names, parsed):
            batch.validate(full=True)
            assert batch.schema.equals(arrow_schema(names))
            yield batch


def rows(namesrv: str, columns: list[str] | None = None, **options: Any) -> Rows:
    """The rows of all splits; times in milliseconds, properties as dictionaries."""
    return plain(batches(namesrv, columns, **options))


def in_order(found: Rows) -> Rows:
    """Sorted by their places in the log, which the two ways of reading give in another order."""
    return sorted(found, key=lambda row: (row["physicalOffset"], row["queueOffset"]))
