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
    "keys": lambda r: r.keys,
    "tags": lambda r: r.tags,
    "body": lambda r: r.body,
    "properties": lambda r: r.properties,
    "bornTimestamp": lambda r: r.born_timestamp,
    "storeTimestamp": lambda r: r.store_timestamp,
    "bornHost": lambda r: r.born_host,
    "storeHost": lambda r: r.store_host,
    "sysFlag": lambda r: r.sys_flag,
    "flag": lambda r: r.flag,
    "reconsumeTimes": lambda r: r.reconsume_times,
    "preparedTransactionOffset": lambda r: r.prepared_transaction_offset,
    "bodyCrc": lambda r: r.body_crc,
    "size": lambda r: r.total_size,
    "uniqueKey": lambda r: r.unique_key,
}
"""Name of each column and how its value is had from a record, in the order of the schema."""


def decode_columns(
    records: Iterable[RecordFields], columns: Iterable[str] | None = None
) -> dict[str, list[Any]]:
    """The columns of the records, all or those named; every list has one value per record."""
    rows = list(records)
    names = COLUMNS if columns is None else columns
    return {name: [COLUMNS[name](row) for row in rows] for name in names}
