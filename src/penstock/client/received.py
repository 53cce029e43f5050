"""Messages as consumers get them (protocol section 6)."""

from __future__ import annotations

from penstock._native.stored import Slab, StoredMessage, message_at
from penstock.client.compression import decompress, without_compression
from penstock.client.queue import MessageQueue
from penstock.errors import RemotingError
from penstock.format.batch import decode_client_batch
from penstock.format.malformed import Malformed
from penstock.message.properties import (
    PROPERTY_KEYS,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    parse_properties,
)
from penstock.message.sysflag import COMPRESSED_FLAG, INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from penstock.message.topic import is_retry_topic

_INNER_BATCH = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG


class ReceivedMessage:
    """One message that a broker handed out. Fields are decoded when asked for; it keeps its bytes alive.

    ``queue`` is where it was read, which for a retry is the group's retry topic; ``topic`` is the one it was
    sent to. ``message_id`` is the sender's unique key, ``offset_message_id`` its place in the broker's log.
    """

    __slots__ = ("_body", "_properties", "queue", "queue_offset", "stored")

    def __init__(self, stored: StoredMessage, queue: MessageQueue) -> None:
        self.stored = stored
        self.queue = queue
        self.queue_offset = stored.queue_offset
        self._body: bytes | None = None
        self._properties: dict[str, str] | None = None

    @property
    def topic(self) -> str:
        topic = self.stored.topic
        return self.properties.get(PROPERTY_RETRY_TOPIC, topic) if is_retry_topic(topic) else topic

    @property
    def queue_id(self) -> int:
        return self.queue.queue_id

    @property
    def broker_name(self) -> str:
        return self.queue.broker_name

    @property
    def body(self) -> bytes:
        """The body as it was sent, inflated if it travelled compressed."""
        if self._body is None:
            flag = self.stored.sys_flag
            body = self.stored.body
            self._body = decompress(body, flag) if flag & COMPRESSED_FLAG else body
        return self._body

    @property
    def body_view(self) -> memoryview:
        return memoryview(self.body)

    @property
    def properties(self) -> dict[str, str]:
        if self._properties is None:
            self._properties = self.stored.properties
        return self._properties

    @property
    def properties_bytes(self) -> bytes:
        """The property string as it was stored."""
        return self.stored.properties_bytes

    @property
    def tags(self) -> str | None:
        return self.stored.tags if self._properties is None else self._properties.get(PROPERTY_TAGS)

    @property
    def keys(self) -> str | None:
        return self.stored.keys if self._properties is None else self._properties.get(PROPERTY_KEYS)

    @property
    def unique_key(self) -> str | None:
        return (
            self.stored.unique_key if self._properties is None else self._properties.get(PROPERTY_UNIQUE_KEY)
        )

    @property
    def message_id(self) -> str:
        return self.unique_key or self.stored.message_id

    @property
    def offset_message_id(self) -> str:
        return self.stored.message_id

    @property
    def sys_flag(self) -> int:
        return without_compression(self.stored.sys_flag)

    @property
    def flag(self) -> int:
        return self.stored.flag

    @property
    def physical_offset(self) -> int:
        return self.stored.physical_offset

    @property
    def size(self) -> int:
        """Bytes of the record."""
        return self.stored.size

    @property
    def born_timestamp(self) -> int:
        return self.stored.born_timestamp

    @property
    def born_host(self) -> str:
        return self.stored.born_host

    @property
    def store_timestamp(self) -> int:
        return self.stored.store_timestamp

    @property
    def store_host(self) -> str:
        return self.stored.store_host

    @property
    def reconsume_times(self) -> int:
        """How often it was tried before."""
        return self.stored.reconsume_times

    @property
    def prepared_transaction_offset(self) -> int:
        return self.stored.prepared_transaction_offset

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.queue}@{self.queue_offset} {self.message_id}>"


def decode_messages(
    data: bytes | memoryview,
    broker_name: str,
    queue: MessageQueue | None = None,
    kind: type[ReceivedMessage] = ReceivedMessage,
) -> list[ReceivedMessage]:
    """The records of an answer, end to end. Inner batches come unpacked.

    ``queue`` is the one that was read; without it each message tells its own (answers to queries). ``kind``
    is the class to make of each.
    """
    found: list[ReceivedMessage] = []
    if not data:
        return found
    slab = Slab(data)
    at, end = 0, slab.length
    while at < end:
        stored = message_at(slab, at)
        if stored is None or stored.size <= 0:
            raise RemotingError(f"{broker_name} sent bytes that are no record, {at} bytes into {end}")
        place = queue or MessageQueue(stored.topic, broker_name, stored.queue_id)
        if stored.sys_flag & _INNER_BATCH == _INNER_BATCH:
            found += _unpacked(stored, place, kind)
        else:
            found.append(kind(stored, place))
        at += stored.size
    return found


def _unpacked(
    stored: StoredMessage, queue: MessageQueue, kind: type[ReceivedMessage]
) -> list[ReceivedMessage]:
    """The messages of an inner batch. They share the record; offsets count up from its own."""
    whole = ReceivedMessage(stored, queue)
    try:
        blocks = decode_client_batch(whole.body)
    except Malformed as error:
        raise RemotingError(f"an inner batch at {queue}@{stored.queue_offset}: {error}") from None
    found = []
    for number, block in enumerate(blocks):
        message = kind(stored, queue)
        message.queue_offset = stored.queue_offset + number
        message._body = block.body
        message._properties = parse_properties(block.properties_bytes)
        found.append(message)
    return found
