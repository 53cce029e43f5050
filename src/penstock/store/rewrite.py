"""Messages that are stored under another name than they were sent to.

A rewritten message remembers where it belongs in two properties, ``REAL_TOPIC`` and ``REAL_QID``.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from penstock.message import Message, encode_properties, parse_properties, unique_id
from penstock.message.properties import (
    PROPERTY_CRC32,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_UNIQUE_KEY,
    delete_property,
    message_properties,
)
from penstock.message.sysflag import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG
from penstock.store.face import ServiceStore, StoredRecord

# The put sets these again from the hosts themselves.
_HOST_BITS = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG


def property_map(message: Message) -> dict[str, str]:
    """The properties a message will be stored with, as a map of its own."""
    if message.raw_properties is not None:
        return parse_properties(message.raw_properties)
    return message_properties(message)


def redirected(
    message: Message, store: ServiceStore, properties: dict[str, str], *, topic: str, queue_id: int
) -> Message:
    """The message under another name, with ``properties`` and the place it was sent to among them.

    A unique key is given here when the store would give one: the put leaves a finished property string alone.
    """
    if PROPERTY_UNIQUE_KEY not in properties and store.config.generate_unique_key:
        properties[PROPERTY_UNIQUE_KEY] = unique_id()
    properties[PROPERTY_REAL_TOPIC] = message.topic
    properties[PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
    return replace(message, topic=topic, queue_id=queue_id, raw_properties=encode_properties(properties))


def real_place(record: StoredRecord) -> tuple[str, int] | None:
    """Topic and queue a redirected record was sent to, or None when it does not say."""
    topic = record.properties.get(PROPERTY_REAL_TOPIC)
    queue_id = parse_number(record.properties.get(PROPERTY_REAL_QUEUE_ID))
    if not topic or queue_id is None or queue_id < 0:
        return None
    return topic, queue_id


def copy_record(
    record: StoredRecord,
    *,
    topic: str,
    queue_id: int,
    properties: Mapping[str, str] | None = None,
    wait: bool = True,
) -> Message:
    """A message with the body, flags, born data and hosts of a record.

    Its property string is the record's own, byte for byte, unless ``properties`` replaces it. A whole-record
    checksum among them belongs to the old record and is left out.
    """
    if properties is None:
        raw = delete_property(bytes(record.properties_bytes), PROPERTY_CRC32)
    else:
        raw = encode_properties({k: v for k, v in properties.items() if k != PROPERTY_CRC32})
    return Message(
        topic,
        record.body,
        queue_id=queue_id,
        flag=record.flag,
        sys_flag=record.sys_flag & ~_HOST_BITS,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        wait=wait,
        raw_properties=raw,
    )


def parse_number(text: str | None) -> int | None:
    """A decimal number as Java's ``Long.parseLong`` takes it, or None."""
    if text is None:
        return None
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or len(digits) > 40:
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None
