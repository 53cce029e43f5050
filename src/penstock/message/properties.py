"""The property string of a message (store format, sections 2.7 and 2.9).

A pair is ``name 0x01 value 0x02``. The constants are the names RocketMQ gives a meaning to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.message.message import Message

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
KEY_SEPARATOR = " "

PROPERTY_KEYS = "KEYS"
PROPERTY_TAGS = "TAGS"
PROPERTY_WAIT_STORE_MSG_OK = "WAIT"
PROPERTY_DELAY_TIME_LEVEL = "DELAY"
PROPERTY_RETRY_TOPIC = "RETRY_TOPIC"
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP = "PGROUP"
PROPERTY_MIN_OFFSET = "MIN_OFFSET"
PROPERTY_MAX_OFFSET = "MAX_OFFSET"
PROPERTY_BUYER_ID = "BUYER_ID"
PROPERTY_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
PROPERTY_TRANSFER_FLAG = "TRANSFER_FLAG"
PROPERTY_CORRECTION_FLAG = "CORRECTION_FLAG"
PROPERTY_MQ2_FLAG = "MQ2_FLAG"
PROPERTY_RECONSUME_TIME = "RECONSUME_TIME"
PROPERTY_MSG_REGION = "MSG_REGION"
PROPERTY_TRACE_SWITCH = "TRACE_ON"
PROPERTY_UNIQUE_KEY = "UNIQ_KEY"
PROPERTY_EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO"
PROPERTY_MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
PROPERTY_CONSUME_START_TIMESTAMP = "CONSUME_START_TIME"
PROPERTY_INNER_NUM = "INNER_NUM"
PROPERTY_INNER_BASE = "INNER_BASE"
PROPERTY_DUP_INFO = "DUP_INFO"
PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_TRANSACTION_ID = "__transactionId__"
PROPERTY_TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PROPERTY_INSTANCE_ID = "INSTANCE_ID"
PROPERTY_CORRELATION_ID = "CORRELATION_ID"
PROPERTY_MESSAGE_REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PROPERTY_MESSAGE_TTL = "TTL"
PROPERTY_REPLY_MESSAGE_ARRIVE_TIME = "ARRIVE_TIME"
PROPERTY_PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
PROPERTY_CLUSTER = "CLUSTER"
PROPERTY_MESSAGE_TYPE = "MSG_TYPE"
PROPERTY_POP_CK = "POP_CK"
PROPERTY_POP_CK_OFFSET = "POP_CK_OFFSET"
PROPERTY_FIRST_POP_TIME = "1ST_POP_TIME"
PROPERTY_ORIGIN_GROUP = "ORIGIN_GROUP"
PROPERTY_SHARDING_KEY = "__SHARDINGKEY"
PROPERTY_FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID"
PROPERTY_REDIRECT = "REDIRECT"
PROPERTY_INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
PROPERTY_TRACE_CONTEXT = "TRACE_CONTEXT"
PROPERTY_TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
PROPERTY_TIMER_OUT_MS = "TIMER_OUT_MS"
PROPERTY_TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
PROPERTY_TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
PROPERTY_CRC32 = "__CRC32#"
PROPERTY_BORN_HOST = "__BORNHOST"
PROPERTY_BORN_TIMESTAMP = "BORN_TIMESTAMP"
PROPERTY_DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."
"""Properties whose name starts so are never stored."""


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The property string of a map, in the map's order; ``b""`` for an empty one.

    ValueError for text that UTF-8 cannot hold. Separators inside a name or value are not looked for: such a
    pair reads back differently, as it does in RocketMQ.
    """
    pairs = [f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}" for name, value in properties.items()]
    return "".join(pairs).encode()


def parse_properties(data: bytes) -> dict[str, str]:
    """The map of a property string.

    Segments without a name, without a value or without 0x01 are skipped, the last of equal names wins, and a
    last segment that lacks its 0x02 still counts. Bytes that are no UTF-8 become U+FFFD.
    """
    found: dict[str, str] = {}
    for segment in data.decode("utf-8", "replace").split(PROPERTY_SEPARATOR):
        name, _, value = segment.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            found[name] = value
    return found


def parse_number(text: str | None, low: int = -(1 << 63), high: int = (1 << 63) - 1) -> int | None:
    """A decimal number as properties carry it, or None when it is missing, is none, or lies out of range."""
    if text is None or len(text) > 20:
        return None
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit():
        return None
    value = int(text)
    return value if low <= value <= high else None


def delete_property(data: bytes, name: str) -> bytes:
    """A property string without the pairs of this name; the other bytes stay as they are."""
    if not data:
        return data
    prefix = (name + NAME_VALUE_SEPARATOR).encode()
    separator = PROPERTY_SEPARATOR.encode()
    return b"".join(part for part in _pieces(data, separator) if not part.startswith(prefix))


def _pieces(data: bytes, separator: bytes) -> list[bytes]:
    """The segments of a property string, each with the separator that ends it (the last may have none)."""
    *ended, last = data.split(separator)
    return [part + separator for part in ended] + ([last] if last else [])


def message_properties(message: Message) -> dict[str, str]:
    """The property map of a message to be stored, in the order in which it is stored.

    First the fields that are set: KEYS, TAGS, UNIQ_KEY, WAIT, DELAY. Then ``properties`` in their order,
    without the names of those fields, without None and without transient names. A field set to an empty text
    hides the property of its name and is not stored, as no parser would see it.
    """
    fields: dict[str, str] = {}
    if message.keys is not None:
        fields[PROPERTY_KEYS] = message.keys
    if message.tags is not None:
        fields[PROPERTY_TAGS] = message.tags
    if message.unique_key is not None:
        fields[PROPERTY_UNIQUE_KEY] = message.unique_key
    if not message.wait:
        fields[PROPERTY_WAIT_STORE_MSG_OK] = "false"
    if message.delay_level != 0:
        fields[PROPERTY_DELAY_TIME_LEVEL] = str(message.delay_level)
    given = {
        name: value
        for name, value in (message.properties or {}).items()
        if value is not None and name not in fields and not name.startswith(TRANSIENT_PREFIX)
    }
    return {name: value for name, value in fields.items() if value} | given


def message_property_bytes(message: Message) -> bytes:
    """The property string of a message: ``raw_properties`` when set, else its encoded map."""
    if message.raw_properties is not None:
        return message.raw_properties
    return encode_properties(message_properties(message))
