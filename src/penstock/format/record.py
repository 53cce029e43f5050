"""One record of the commit log (store format, section 2)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from penstock.format.crc import crc32
from penstock.format.malformed import Buffer, Malformed
from penstock.message.host import pack_host, parse_host, unpack_host
from penstock.message.ids import offset_message_id
from penstock.message.message import Message
from penstock.message.properties import (
    PROPERTY_CRC32,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    delete_property,
    message_property_bytes,
    parse_properties,
)
from penstock.message.sysflag import (
    BORNHOST_V6_FLAG,
    STOREHOSTADDRESS_V6_FLAG,
    born_host_length,
    has_queue_unit,
    store_host_length,
)
from penstock.message.topic import PROPERTIES_MAX_LENGTH, TOPIC_MAX_LENGTH

MESSAGE_MAGIC_CODE = 0xDAA320A7
MESSAGE_MAGIC_CODE_V2 = 0xDAA320AB
BLANK_MAGIC_CODE = 0xCBD43194
END_FILE_MIN_BLANK_LENGTH = 8
CRC32_RESERVED_LENGTH = 20
QUEUE_OFFSET_POSITION = 20
PHYSICAL_OFFSET_POSITION = 28
SYS_FLAG_POSITION = 36
TOPIC_MAX_LENGTH_V2 = 32767
RECORD_MIN_LENGTH = 91
RECORD_MAX_LENGTH = 1 << 28
"""Nothing longer is taken for a record, whatever its length field says: it bounds what a reader asks for."""
DEFAULT_HOST = "127.0.0.1:10911"

_HEAD = struct.Struct(">iI")
# TOTALSIZE MAGICCODE BODYCRC QUEUEID FLAG QUEUEOFFSET PHYSICALOFFSET SYSFLAG BORNTIMESTAMP
_BEFORE_BORN_HOST = struct.Struct(">iIiiiqqiq")
_RECONSUME_AND_PREPARED = struct.Struct(">iq")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">h")
_BYTE = struct.Struct(">b")


@dataclass(frozen=True, slots=True)
class RecordFields:
    """Everything a record holds.

    ``body``, ``topic_bytes`` and ``properties_bytes`` are the bytes as stored.
    """

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic_bytes: bytes
    properties_bytes: bytes

    @property
    def topic(self) -> str:
        """The topic as text; bytes that are no UTF-8 become U+FFFD."""
        return self.topic_bytes.decode("utf-8", "replace")

    @property
    def properties(self) -> dict[str, str]:
        """The parsed property string."""
        return parse_properties(self.properties_bytes)

    @property
    def keys(self) -> str | None:
        """The ``KEYS`` property: keys separated by spaces."""
        return self.properties.get(PROPERTY_KEYS)

    @property
    def tags(self) -> str | None:
        """The ``TAGS`` property."""
        return self.properties.get(PROPERTY_TAGS)

    @property
    def unique_key(self) -> str | None:
        """The ``UNIQ_KEY`` property."""
        return self.properties.get(PROPERTY_UNIQUE_KEY)

    @property
    def message_id(self) -> str:
        """The offset message id: store host and physical offset."""
        return offset_message_id(*parse_host(self.store_host), self.physical_offset)


@dataclass(frozen=True, slots=True)
class RecordSpans:
    """Where the parts of a record of variable length lie in the buffer.

    A length below zero was read as zero.
    """

    body: slice
    topic: slice
    properties: slice
    end: int


def encode_blank(length: int) -> bytes:
    """The 8 bytes that close a file of which ``length`` bytes are left."""
    if not END_FILE_MIN_BLANK_LENGTH <= length <= 0x7FFFFFFF:
        raise ValueError(f"a blank covers at least {END_FILE_MIN_BLANK_LENGTH} bytes, not {length}")
    return _HEAD.pack(length, BLANK_MAGIC_CODE)


def record_version(topic: str) -> int:
    """The magic code a topic asks for: V2 when its length does not fit the signed byte of V1.

    RocketMQ counts UTF-16 units instead and so writes a V1 record that nobody can read back when a retry
    topic has few but wide characters. Bytes are counted here; for every other topic the answer is the same.
    """
    return MESSAGE_MAGIC_CODE_V2 if len(topic.encode()) > TOPIC_MAX_LENGTH else MESSAGE_MAGIC_CODE


def encode_record(
    topic: str,
    body: Buffer,
    properties: bytes = b"",
    *,
    queue_id: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 0,
    born_host: str = DEFAULT_HOST,
    store_host: str = DEFAULT_HOST,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    property_crc: bool = False,
    single: bool = True,
) -> bytes:
    """The bytes of one record.

    The version follows from the topic, the host bits of SYSFLAG from the hosts, and a prepared or rolled back
    record gets queue offset 0. With ``property_crc`` the whole-record CRC is appended to the properties; for
    a message of its own (``single``) a stale one is removed and the separator before it is added if it is
    missing, for a message of a client batch neither is done. ValueError when the topic or the properties do
    not fit.
    """
    magic = record_version(topic)
    topic_bytes = topic.encode()
    if len(topic_bytes) > TOPIC_MAX_LENGTH_V2:
        raise ValueError(f"the topic has {len(topic_bytes)} bytes, more than {TOPIC_MAX_LENGTH_V2}")
    if property_crc and single:
        properties = delete_property(properties, PROPERTY_CRC32)
        if properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
    reserved = CRC32_RESERVED_LENGTH if property_crc else 0
    if len(properties) + reserved > PROPERTIES_MAX_LENGTH:
        raise ValueError(f"the properties have {len(properties)} bytes, more than {PROPERTIES_MAX_LENGTH}")

    born, stored = pack_host(born_host), pack_host(store_host)
    sys_flag &= ~(BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG)
    sys_flag |= BORNHOST_V6_FLAG if len(born) == 20 else 0
    sys_flag |= STOREHOSTADDRESS_V6_FLAG if len(stored) == 20 else 0
    topic_length = (_BYTE if magic == MESSAGE_MAGIC_CODE else _SHORT).pack(len(topic_bytes))
    size = (
        _BEFORE_BORN_HOST.size + len(born) + _LONG.size + len(stored) + _RECONSUME_AND_PREPARED.size
        + _INT.size + len(body) + len(topic_length) + len(topic_bytes)
        + _SHORT.size + len(properties) + reserved
    )  # fmt: skip
    record = b"".join(
        (
            _BEFORE_BORN_HOST.pack(
                size,
                magic,
                crc32(body),
                queue_id,
                flag,
                queue_offset if has_queue_unit(sys_flag) else 0,
                physical_offset,
                sys_flag,
                born_timestamp,
            ),
            born,
            _LONG.pack(store_timestamp),
            stored,
            _RECONSUME_AND_PREPARED.pack(reconsume_times, prepared_transaction_offset),
            _INT.pack(len(body)),
            body,
            topic_length,
            topic_bytes,
            _SHORT.pack(len(properties) + reserved),
            properties,
        )
    )
    return record + encode_crc_property(crc32(record)) if property_crc else record


def encode_message(
    message: Message,
    *,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    store_host: str = DEFAULT_HOST,
    property_crc: bool = False,
) -> bytes:
    """The record of a message; fields the message leaves open come from the store (host) and its clock."""
    return encode_record(
        message.topic,
        message.body,
        message_property_bytes(message),
        queue_id=message.queue_id,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp or store_timestamp,
        born_host=message.born_host or store_host,
        store_host=message.store_host or store_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        store_timestamp=store_timestamp,
        property_crc=property_crc,
    )


def queue_offset_of(record: Buffer) -> int:
    """The queue offset in a record."""
    return int.from_bytes(memoryview(record)[QUEUE_OFFSET_POSITION : QUEUE_OFFSET_POSITION + 8], "big")


def physical_offset_of(record: Buffer) -> int:
    """The physical offset in a record."""
    return int.from_bytes(memoryview(record)[PHYSICAL_OFFSET_POSITION : PHYSICAL_OFFSET_POSITION + 8], "big")


def encode_crc_property(value: int) -> bytes:
    """The 20 bytes that carry a whole-record CRC: its ten digits, least significant first (section 2.6)."""
    return b"__CRC32#\x01" + f"{value:010d}"[::-1].encode() + b"\x02"


def find_spans(buffer: Buffer, position: int, limit: int) -> RecordSpans | None:
    """Where the parts of the record at ``position`` lie, or None when a length leads past ``limit``.

    Only lengths are looked at, each bounded by the record's own size and by ``limit``; the caller has checked
    size and magic. ``end`` need not agree with the record's size.
    """
    total_size, magic = _HEAD.unpack_from(buffer, position)
    if position + _BEFORE_BORN_HOST.size > limit:
        return None
    (sys_flag,) = _INT.unpack_from(buffer, position + SYS_FLAG_POSITION)
    at = position + _BEFORE_BORN_HOST.size + born_host_length(sys_flag) + _LONG.size
    at += store_host_length(sys_flag) + _RECONSUME_AND_PREPARED.size
    spans = []
    topic_width = _BYTE if magic == MESSAGE_MAGIC_CODE else _SHORT
    for part, width in (("body", _INT), ("topic", topic_width), ("properties", _SHORT)):
        if at + width.size > limit:
            return None
        (length,) = width.unpack_from(buffer, at)
        at += width.size
        if length < 0 and part != "properties":
            return None
        length = max(length, 0)  # of properties a length below zero means none
        if length > total_size or at + length > limit:
            return None
        spans.append(slice(at, at + length))
        at += length
    return RecordSpans(spans[0], spans[1], spans[2], at)


def check_record(
    buffer: Buffer,
    position: int,
    limit: int,
    *,
    check_crc: bool = True,
    check_property_crc: bool = False,
) -> tuple[int, bool, str]:
    """Size, verdict and reason for the bytes at ``position``, of which those before ``limit`` may be read.

    Section 2.10, and nothing is allocated or read on the word of a length that was not checked:

    * ``(size, True, "")``: a record. ``(0, True, "blank")``: the filler at a file's end.
    * ``(size, False, "length")``: half a message, its size differs from the sum of its parts.
    * ``(-1, False, reason)``: no record; the reason is "short" (does not fit before ``limit``), "zero"
    (length
      and magic are zero, nothing was written here), "magic", "length" (one inside it is impossible) or "crc".

    With ``check_property_crc`` the whole-record CRC is checked instead of the body's. The stored physical
    offset is not looked at.
    """
    limit = min(limit, len(buffer))
    if position < 0 or limit - position < _HEAD.size:
        return -1, False, "short"
    total_size, magic = _HEAD.unpack_from(buffer, position)
    if total_size == 0 and magic == 0:
        return -1, False, "zero"
    if magic not in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, BLANK_MAGIC_CODE):
        return -1, False, "magic"
    if magic != BLANK_MAGIC_CODE and not RECORD_MIN_LENGTH <= total_size <= RECORD_MAX_LENGTH:
        return -1, False, "length"
    if total_size > limit - position:
        return -1, False, "short"
    if magic == BLANK_MAGIC_CODE:
        return 0, True, "blank"
    spans = find_spans(buffer, position, limit)
    if spans is None:
        return -1, False, "length"
    if check_crc and not check_property_crc and spans.body.stop > spans.body.start:
        (body_crc,) = _INT.unpack_from(buffer, position + 8)
        if crc32(buffer[spans.body]) != body_crc:
            return -1, False, "crc"
    if check_crc and check_property_crc and not _property_crc_agrees(buffer, position, total_size, spans):
        return -1, False, "crc"
    if spans.end - position != total_size:
        return total_size, False, "length"
    return total_size, True, ""


def _property_crc_agrees(buffer: Buffer, position: int, total_size: int, spans: RecordSpans) -> bool:
    """Whether the record ends in the right whole-record CRC. Zero is a CRC like any other."""
    covered = position + total_size - CRC32_RESERVED_LENGTH
    if spans.properties.start > covered:
        return False
    expected = encode_crc_property(crc32(buffer[position:covered]))
    return bytes(buffer[covered : position + total_size]) == expected


def decode_record(buffer: Buffer, position: int = 0) -> RecordFields:
    """The record at ``position``; Malformed when there is none.

    CRCs and the stored offset are not checked.
    """
    size, ok, reason = check_record(buffer, position, len(buffer), check_crc=False)
    if not ok or size == 0:
        raise Malformed(f"no record at position {position}: {reason}")
    spans = find_spans(buffer, position, position + size)
    if spans is None:
        raise Malformed(f"no record at position {position}: length")
    total, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp = (
        _BEFORE_BORN_HOST.unpack_from(buffer, position)
    )
    born = position + _BEFORE_BORN_HOST.size
    after_born = born + born_host_length(sys_flag)
    stored = after_born + _LONG.size
    after_stored = stored + store_host_length(sys_flag)
    reconsume_times, prepared = _RECONSUME_AND_PREPARED.unpack_from(buffer, after_stored)
    return RecordFields(
        total_size=total,
        magic=magic,
        body_crc=body_crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=unpack_host(bytes(buffer[born:after_born])),
        store_timestamp=_LONG.unpack_from(buffer, after_born)[0],
        store_host=unpack_host(bytes(buffer[stored:after_stored])),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
        body=bytes(buffer[spans.body]),
        topic_bytes=bytes(buffer[spans.topic]),
        properties_bytes=bytes(buffer[spans.properties]),
    )
