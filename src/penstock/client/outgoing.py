"""Send requests as bytes, binary header: what all sends to a queue share is made once (protocol 1.3, 3.1)."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

from penstock._native.batchbody import BatchWriter
from penstock.client.compression import ZLIB_FLAGS, compress
from penstock.client.queue import MessageQueue
from penstock.client.settings import ClientSettings
from penstock.errors import MessageRejected, UsageError
from penstock.message import Message, unique_id, validate_topic
from penstock.message.properties import (
    PROPERTY_UNIQUE_KEY,
    encode_properties,
    message_properties,
    parse_properties,
)
from penstock.message.topic import AUTO_CREATE_TOPIC_KEY_TOPIC, PROPERTIES_MAX_LENGTH
from penstock.remoting import Command, RequestCode
from penstock.remoting.command import ONEWAY_FLAG, VERSION, encode, encode_head

# Length, serialize type and header length, code, language, version, opaque, flag, remark, length of fields.
_HEAD = struct.Struct(">iIhBhiiii")
_HEADER_FIXED = _HEAD.size - 8
_KEY = struct.Struct(">h")
_VALUE = struct.Struct(">i")
_BINARY = 1 << 24
_PYTHON = 3
_SINGLE = int(RequestCode.SEND_MESSAGE_V2)
_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
_BATCH_PROPERTIES = b"WAIT\x01true\x02"


def _entry(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return _KEY.pack(len(key)) + key + _VALUE.pack(len(text)) + text


_BORN_KEY = _KEY.pack(1) + b"g"
_PROPERTIES_KEY = _KEY.pack(1) + b"i"
_BATCH_END = _PROPERTIES_KEY + _VALUE.pack(len(_BATCH_PROPERTIES)) + _BATCH_PROPERTIES


class SendTemplate:
    """The part of a send's header that all sends of a producer to one queue share."""

    __slots__ = ("_batch", "_millisecond", "_moment", "_shared", "_sign", "_single", "queue")

    def __init__(
        self,
        group: str,
        queue: MessageQueue,
        default_queues: int,
        sign: Callable[[Command], None] | None = None,
    ) -> None:
        """``sign``: each send is signed, which needs all of its fields at once."""
        self.queue = queue
        self._sign = sign
        self._shared = {
            "a": group,
            "b": queue.topic,
            "c": AUTO_CREATE_TOPIC_KEY_TOPIC,
            "d": str(default_queues),
            "e": str(queue.queue_id),
            "k": "false",
            "n": queue.broker_name,
        }
        shared = b"".join(_entry(name, value) for name, value in self._shared.items())
        self._single = shared + _entry("m", "false")
        self._batch = shared + _entry("m", "true") + _entry("f", "0") + _entry("h", "0") + _entry("j", "0")
        self._millisecond = 0
        self._moment = b""

    def single(
        self,
        opaque: int,
        body: bytes,
        properties: bytes,
        sys_flag: int = 0,
        flag: int = 0,
        reconsume_times: int = 0,
        oneway: bool = False,
    ) -> bytes:
        """The frame of one message."""
        if self._sign is not None:
            signed = self._signed(self._sign, _SINGLE, body, properties, sys_flag, flag, reconsume_times)
            signed.flag = ONEWAY_FLAG if oneway else 0
            return encode(signed, opaque)
        now = time.time_ns() // 1_000_000
        if now != self._millisecond:
            self._millisecond = now
            self._moment = _entry("g", str(now)) + _PROPERTIES_KEY
        numbers = _ZEROS
        if sys_flag or flag or reconsume_times:
            numbers = _entry("f", str(sys_flag)) + _entry("h", str(flag)) + _entry("j", str(reconsume_times))
        single, moment = self._single, self._moment
        fields = len(single) + len(numbers) + len(moment) + 4 + len(properties)
        head = _HEAD.pack(
            4 + _HEADER_FIXED + fields + len(body),
            _BINARY | _HEADER_FIXED + fields,
            _SINGLE,
            _PYTHON,
            VERSION,
            opaque,
            ONEWAY_FLAG if oneway else 0,
            0,
            fields,
        )
        return b"".join((head, single, numbers, moment, _VALUE.pack(len(properties)), properties, body))

    def batch_head(self, opaque: int, body: bytes) -> bytes:
        """The frame of a batch up to its body."""
        body_size = len(body)
        if self._sign is not None:
            return encode_head(self._signed(self._sign, _BATCH, body, _BATCH_PROPERTIES), body_size, opaque)
        now = b"%d" % (time.time_ns() // 1_000_000)
        fields = len(self._batch) + len(_BORN_KEY) + 4 + len(now) + len(_BATCH_END)
        head = _HEAD.pack(
            4 + _HEADER_FIXED + fields + body_size,
            _BINARY | _HEADER_FIXED + fields,
            _BATCH,
            _PYTHON,
            VERSION,
            opaque,
            0,
            0,
            fields,
        )
        return b"".join((head, self._batch, _BORN_KEY, _VALUE.pack(len(now)), now, _BATCH_END))

    def _signed(
        self,
        sign: Callable[[Command], None],
        code: int,
        body: bytes,
        properties: bytes,
        sys_flag: int = 0,
        flag: int = 0,
        reconsume_times: int = 0,
    ) -> Command:
        fields = {
            **self._shared,
            "f": str(sys_flag),
            "g": str(time.time_ns() // 1_000_000),
            "h": str(flag),
            "i": properties.decode(),
            "j": str(reconsume_times),
            "m": "true" if code == _BATCH else "false",
        }
        made = Command(code, fields, body, binary=True)
        sign(made)
        return made


_ZEROS = _entry("f", "0") + _entry("h", "0") + _entry("j", "0")


def prepare(
    message: Message, settings: ClientSettings, extra: dict[str, str] | None = None
) -> tuple[bytes, bytes, int, str]:
    """Body as it travels, property string, sys flag and unique key of a message. Raises MessageRejected.

    ``extra`` are properties that the kind of send adds.
    """
    body: bytes | bytearray | memoryview = message.body
    if not body:
        raise MessageRejected("MESSAGE_ILLEGAL", "the body is empty")
    if len(body) > settings.max_message_size:
        raise MessageRejected(
            "MESSAGE_ILLEGAL", f"the body has {len(body)} bytes, more than {settings.max_message_size}"
        )
    properties, key = property_bytes(message, extra)
    sys_flag = message.sys_flag
    if len(body) >= settings.compress_from > 0 and not sys_flag & 1:
        smaller = compress(body, settings.compress_level)
        if len(smaller) < len(body):
            body, sys_flag = smaller, sys_flag | ZLIB_FLAGS
    return bytes(body), properties, sys_flag, key


def property_bytes(message: Message, extra: dict[str, str] | None = None, key: str = "") -> tuple[bytes, str]:
    """The property string of a message with a unique key in it (its own, the given or a new one); the key."""
    if message.raw_properties is not None:
        given = parse_properties(message.raw_properties)
        key = given.get(PROPERTY_UNIQUE_KEY) or key or unique_id()
        properties = encode_properties({**given, **(extra or {}), PROPERTY_UNIQUE_KEY: key})
    elif extra or message.properties or message.delay_level or not message.wait or message.unique_key:
        named = message_properties(message)
        key = named.get(PROPERTY_UNIQUE_KEY) or key or unique_id()
        properties = encode_properties({**named, **(extra or {}), PROPERTY_UNIQUE_KEY: key})
    else:  # what nearly every message is
        key = key or unique_id()
        text = f"UNIQ_KEY\x01{key}\x02"
        if message.tags:
            text = f"TAGS\x01{message.tags}\x02{text}"
        if message.keys:
            text = f"KEYS\x01{message.keys}\x02{text}"
        properties = text.encode()
    if len(properties) > PROPERTIES_MAX_LENGTH:
        raise MessageRejected(
            "PROPERTIES_SIZE_EXCEEDED",
            f"the properties have {len(properties)} bytes, more than {PROPERTIES_MAX_LENGTH}",
        )
    return properties, key


def batch_properties(message: Message, topic: str, key: str) -> tuple[bytes, str]:
    """Property string and unique key (its own, or ``key``) of a message of a batch; or what forbids it."""
    if message.topic != topic:
        raise UsageError(f"a batch has one topic, not {topic!r} and {message.topic!r}")
    if not message.body or message.delay_level:
        reason = "a batch can't be delayed" if message.body else "the body is empty"
        raise MessageRejected("MESSAGE_ILLEGAL", reason)
    return property_bytes(message, key=key)


def batch_writer() -> BatchWriter:
    """A maker of the bodies of batches (protocol 4.6), for one event loop."""
    return BatchWriter(Message, batch_properties)


def check_topic(topic: str) -> None:
    """MessageRejected for a name that no broker takes."""
    if reason := validate_topic(topic):
        raise MessageRejected("MESSAGE_ILLEGAL", reason)
