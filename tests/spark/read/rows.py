"""Rows of the source without Spark: planned and read as Spark would have it done."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock._native.stored import StoredMessage
from penstock.spark.batches import record_batches
from penstock.spark.options import ReadOptions
from penstock.spark.planning import Split, plan_places
from penstock.spark.schema import BAD_RECORD, NAMES, arrow_schema
from penstock.store.directory import StoreDirectory
from penstock.store.scan import LogScanner

ATTRIBUTES = {
    "topic": "topic",
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "msgId": "message_id",
    "uniqKey": "unique_key",
    "keys": "keys",
    "tags": "tags",
    "body": "body",
    "properties": "properties",
    "bornTimestamp": "born_timestamp",
    "storeTimestamp": "store_timestamp",
    "bornHost": "born_host",
    "storeHost": "store_host",
    "flag": "flag",
    "sysFlag": "sys_flag",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
    "bodyCrc": "body_crc",
    "size": "size",
}


def planned(path: Path | str, **options: Any) -> tuple[ReadOptions, list[Split]]:
    """Options and splits, both sent through pickle as on their way to a worker."""
    parsed = ReadOptions.parse({"path": str(path), **options})
    splits: list[Split] = pickle.loads(pickle.dumps(plan_places(parsed)))
    return pickle.loads(pickle.dumps(parsed)), splits


def batches(path: Path | str, columns: list[str] | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
    """The batches of all splits, each found valid and of the schema that Spark demands."""
    parsed, splits = planned(path, **options)
    names = columns if columns is not None else [*NAMES, *([BAD_RECORD.name] if parsed.quarantine else [])]
    for split in splits:
        for batch in record_batches(split, names, parsed):
            batch.validate(full=True)
            assert batch.schema.equals(arrow_schema(names))
            yield batch


def rows(path: Path | str, columns: list[str] | None = None, **options: Any) -> list[dict[str, Any]]:
    """The rows of all splits; times in milliseconds, properties as dictionaries."""
    return plain(batches(path, columns, **options))


def plain(made: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Rows as dictionaries; times in milliseconds, properties as dictionaries."""
    found = [row for batch in made for row in batch.to_pylist()]
    for row in found:
        for name in ("bornTimestamp", "storeTimestamp"):
            if row.get(name) is not None:
                row[name] = round(row[name].timestamp() * 1000)
        if row.get("properties") is not None:
            row["properties"] = dict(row["properties"])
    return found


def row_of(message: StoredMessage) -> dict[str, Any]:
    """The row that a stored message is to become."""
    return {column: getattr(message, attribute) for column, attribute in ATTRIBUTES.items()}


def dumped(path: Path | str) -> list[dict[str, Any]]:
    """What ``penstock store dump`` shows, as rows."""
    return [row_of(message) for message in LogScanner(StoreDirectory(None, str(path))).messages()]
