"""Rows as records that are whole but for what the append fills in: queue offset, physical offset, store time.

A row is a mapping with some of: topic, body, keys, tags, properties, uniqKey, flag, sysFlag, bornTimestamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from penstock.format.dispatch import index_keys
from penstock.format.javahash import java_hash, key_hash
from penstock.format.record import DEFAULT_HOST, decode_record, encode_message
from penstock.message.message import Message
from penstock.message.properties import PROPERTY_CRC32, PROPERTY_UNIQUE_KEY

KEPT_FLAGS = 0x703
"""Compression, its kind, and several tags: what a row's sys flag may say. Transactions do not travel."""

NOTED_KEYS = 16
"""A record with more keys than this, its tags always counted, is not noted."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def queue_of_key(key: str, queues: int) -> int:
    """The queue that RocketMQ's selector by hash gives to an order key."""
    value = java_hash(key)
    return value % queues if value >= 0 else -value % queues


def milliseconds(moment: datetime) -> int:
    """Whole milliseconds since 1970, rounded down."""
    delta = moment - _EPOCH
    return (delta.days * 86_400_000_000 + delta.seconds * 1_000_000 + delta.microseconds) // 1000


def row_message(
    row: Mapping[str, Any], *, topic: str | None, queue_id: int, unique_key: str, now: int
) -> Message:
    """The message that a row stands for; ``unique_key`` is for a row that brings none of its own.

    ``topic`` is for rows that name none. An old record's checksum among the properties is left out.
    """
    body = row.get("body")
    properties = {k: v for k, v in dict(row.get("properties") or {}).items() if k != PROPERTY_CRC32}
    own = row.get("uniqKey")
    if own is None and properties.get(PROPERTY_UNIQUE_KEY) is None:
        own = unique_key
    born = row.get("bornTimestamp")
    chosen = row.get("topic")
    return Message(
        chosen if chosen is not None else topic or "",
        body.encode() if isinstance(body, str) else body or b"",
        row.get("tags"),
        row.get("keys"),
        queue_id,
        properties or None,
        own,
        flag=row.get("flag") or 0,
        sys_flag=(row.get("sysFlag") or 0) & KEPT_FLAGS,
        born_timestamp=now if born is None else milliseconds(born),
    )


def encode_row(message: Message, host: str = DEFAULT_HOST) -> bytes:
    """The record of a message, with zeros where the append fills in."""
    return encode_message(message, queue_offset=0, physical_offset=0, store_timestamp=0, store_host=host)


def record_note(record: bytes, *, looked_at: bool = False) -> list[int]:
    """What the dispatcher will ask of a record: the hash of its tags, how many keys it has, their hashes.

    -1 keys when there are too many, or when whoever dispatches it has to look itself (``looked_at``).
    """
    fields = decode_record(record)
    keys = index_keys(fields, tags=True)
    without_tags = len(keys) - bool(fields.tags)
    if looked_at:
        return [0, -1]
    tags = java_hash(fields.tags or "")
    if without_tags > NOTED_KEYS - 1:
        return [tags, -1]
    return [tags, len(keys), *(key_hash(key) for key in keys)]
