"""Records as columns: one list per field, one row per record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.format.record import RecordFields

COLUMNS: dict[str, Callable[[RecordFields], Any]] = {
    "topic": lambda r: r.topic,
    "queueId": lambda r: r.queue_id,
    "queueOffset": lambda r: r.queue_offset,
    "physicalOffset": lambda r: r.physical_offset,
    "msgId": lambda r: r.message_id,
    "uniqueKey": lambda r: r.unique_key,
    "keys": lambda r: r.keys,
    "tags": lambda r: r.tags,
    "body": lambda r: r.body,
    "properties": lambda r: r.properties,
    "bornTimestamp": lambda r: r.born_timestamp,
    "bornHost": lambda r: r.born_host,
    "storeTimestamp": lambda r: r.store_timestamp,
    "storeHost": lambda r: r.store_host,
    "flag": lambda r: r.flag,
    "sysFlag": lambda r: r.sys_flag,
    "reconsumeTimes": lambda r: r.reconsume_times,
    "preparedTransactionOffset": lambda r: r.prepared_transaction_offset,
    "bodyCrc": lambda r: r.body_crc,
    "storeSize": lambda r: r.total_size,
}
"""Name of each column and how its value is had from a record, in the order of the schema."""


def decode_columns(records: Iterable[RecordFields]) -> dict[str, list[Any]]:
    """The columns of the records; every list has one value per record."""
    rows = list(records)
    return {name: [value(row) for row in rows] for name, value in COLUMNS.items()}
