"""Batches: what a client sends, what the store makes of it, and the inner batch (store format, section 3)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock.format.malformed import Buffer, Malformed
from penstock.format.record import DEFAULT_HOST, RecordFields, encode_record
from penstock.message import Message
from penstock.message.properties import (
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_NUM,
    parse_number,
    parse_properties,
)
from penstock.message.sysflag import INNER_BATCH_FLAG
from penstock.message.topic import PROPERTIES_MAX_LENGTH

# total size, magic and body CRC (both written as 0 and ignored), flag, body length
_BLOCK = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class BatchBlock:
    """One message inside a client batch body. Topic, queue and the rest belong to the batch."""

    body: bytes
    properties_bytes: bytes = b""
    flag: int = 0

    @property
    def properties(self) -> dict[str, str]:
        """The parsed property string."""
        return parse_properties(self.properties_bytes)


@dataclass(frozen=True, slots=True)
class InnerMessage:
    """One message of an inner batch, as a consumer sees it: it shares the wrapper's place in the log."""

    queue_offset: int
    physical_offset: int
    body: bytes
    properties_bytes: bytes
    flag: int


def encode_client_batch(blocks: Iterable[BatchBlock]) -> bytes:
    """The body of a batch request: the blocks end to end, no count."""
    parts: list[bytes] = []
    for block in blocks:
        if len(block.properties_bytes) > PROPERTIES_MAX_LENGTH:
            raise ValueError(
                f"the properties have {len(block.properties_bytes)} bytes, more than {PROPERTIES_MAX_LENGTH}"
            )
        size = _BLOCK.size + len(block.body) + _SHORT.size + len(block.properties_bytes)
        parts += (
            _BLOCK.pack(size, 0, 0, block.flag, len(block.body)),
            block.body,
            _SHORT.pack(len(block.properties_bytes)),
            block.properties_bytes,
        )
    return b"".join(parts)


def join_client_batch(
    messages: Sequence[Message],
    first: int,
    keys: list[str],
    topic: str,
    most: int,
    describe: Callable[[Message, str, str], tuple[bytes, str]],
) -> tuple[bytes, int]:
    """The body of a batch, and the index of the message after it: as many from ``first`` on as stay within
    ``most`` bytes, one at least.

    ``describe(message, topic, key)`` gives property bytes and unique key of a message. ``keys`` has one for
    each message; that of a message with its own is put in its place.
    """
    blocks: list[BatchBlock] = []
    size = 0
    for index in range(first, len(messages)):
        message = messages[index]
        properties, keys[index] = describe(message, topic, keys[index])
        if not -(1 << 31) <= message.flag < 1 << 31:
            raise ValueError(f"a message with flag {message.flag}")
        size += _BLOCK.size + len(message.body) + _SHORT.size + len(properties)
        if size > most and blocks:
            break
        blocks.append(BatchBlock(bytes(message.body), properties, message.flag))
    return encode_client_batch(blocks), first + len(blocks)


def decode_client_batch(data: Buffer) -> list[BatchBlock]:
    """The blocks of a batch body; Malformed when a length leads out of it.

    A block's own total size is ignored, as RocketMQ does: body and property lengths say where the next one
    starts.
    """
    blocks: list[BatchBlock] = []
    at = 0
    while at < len(data):
        start = at
        if at + _BLOCK.size > len(data):
            raise Malformed(
                f"batch block at {start}: {len(data) - at} bytes are left, its head needs {_BLOCK.size}"
            )
        _, _, _, flag, body_length = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size
        if body_length < 0 or at + body_length + _SHORT.size > len(data):
            raise Malformed(f"batch block at {start}: body length {body_length} leads out of the batch")
        body = bytes(data[at : at + body_length])
        at += body_length
        (properties_length,) = _SHORT.unpack_from(data, at)
        at += _SHORT.size
        if properties_length < 0 or at + properties_length > len(data):
            raise Malformed(
                f"batch block at {start}: properties length {properties_length} leads out of the batch"
            )
        blocks.append(BatchBlock(body, bytes(data[at : at + properties_length]), flag))
        at += properties_length
    return blocks


def encode_batch(
    topic: str,
    blocks: Sequence[BatchBlock],
    *,
    queue_id: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 0,
    born_host: str = DEFAULT_HOST,
    store_host: str = DEFAULT_HOST,
    reconsume_times: int = 0,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    property_crc: bool = False,
) -> list[bytes]:
    """The records of a plain batch, one per block, as they lie end to end in one file.

    Offsets count up from those given, which are the first record's.
    """
    records: list[bytes] = []
    for i, block in enumerate(blocks):
        record = encode_record(
            topic,
            block.body,
            block.properties_bytes,
            queue_id=queue_id,
            flag=block.flag,
            sys_flag=sys_flag,
            born_timestamp=born_timestamp,
            born_host=born_host,
            store_host=store_host,
            reconsume_times=reconsume_times,
            queue_offset=queue_offset + i,
            physical_offset=physical_offset,
            store_timestamp=store_timestamp,
            property_crc=property_crc,
            single=False,
        )
        records.append(record)
        physical_offset += len(record)
    return records


def batch_span(record: RecordFields) -> tuple[int, int]:
    """Queue offset of a record's first message and how many it holds: (queue offset, 1) for an ordinary one.

    Both properties of an inner batch must be numbers that a batch queue unit can hold, or the record counts
    as ordinary.
    """
    properties = record.properties
    base = parse_number(properties.get(PROPERTY_INNER_BASE), low=0)
    count = parse_number(properties.get(PROPERTY_INNER_NUM), low=1, high=0x7FFF)
    return (record.queue_offset, 1) if base is None or count is None else (base, count)


def unwrap_inner_batch(record: RecordFields) -> list[InnerMessage]:
    """The messages of a record: those of an inner batch, or the record itself.

    Malformed when it is no batch body.
    """
    if not record.sys_flag & INNER_BATCH_FLAG:
        return [
            InnerMessage(
                record.queue_offset,
                record.physical_offset,
                record.body,
                record.properties_bytes,
                record.flag,
            )
        ]
    base, _ = batch_span(record)
    return [
        InnerMessage(base + i, record.physical_offset, block.body, block.properties_bytes, block.flag)
        for i, block in enumerate(decode_client_batch(record.body))
    ]
