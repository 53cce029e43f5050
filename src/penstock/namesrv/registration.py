"""The body of a broker's registration: what it says of its topics, plain or packed (protocol 2.4)."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any

from penstock.format.javajson import JsonError, parse
from penstock.store.dataversion import DataVersion

# A packed body of a few kilobytes may not become gigabytes. 100 000 topics take 10 MB.
MAX_UNPACKED = 64 << 20


@dataclass(frozen=True, slots=True)
class RegistrationBody:
    """A broker's topics (TopicConfig objects by name) and their version."""

    topics: dict[str, dict[str, Any]]
    version: DataVersion


def read_registration(body: bytes | memoryview) -> RegistrationBody:
    """Either form, told apart by the first byte: RocketMQ 5.5 packs without saying so in the header.

    ValueError for anything else.
    """
    data = bytes(body)
    if not data:
        return RegistrationBody({}, DataVersion())
    return _packed(data) if data[0] == 0x78 else _plain(data)


def _plain(data: bytes) -> RegistrationBody:
    try:
        found = parse(data.decode())
    except (JsonError, UnicodeDecodeError) as error:
        raise ValueError(f"the registration is no JSON: {error}") from None
    wrapper = _object(found).get("topicConfigSerializeWrapper")
    wrapper = _object(wrapper if wrapper is not None else {})
    table = _object(wrapper.get("topicConfigTable") or {})
    topics = {str(name): _object(config) for name, config in table.items()}
    return RegistrationBody(topics, DataVersion.from_json(_object(wrapper.get("dataVersion") or {})))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("the registration has something else where an object belongs")
    return value


def _packed(data: bytes) -> RegistrationBody:
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data, MAX_UNPACKED)
    except zlib.error as error:
        raise ValueError(f"the registration can't be unpacked: {error}") from None
    if unpacker.unconsumed_tail:
        raise ValueError(f"the registration unpacks to more than {MAX_UNPACKED} bytes")
    try:
        version, at = _text(text, 0)
        (count,) = struct.unpack_from(">i", text, at)
        at += 4
        topics: dict[str, dict[str, Any]] = {}
        for _ in range(count):
            line, at = _text(text, at)
            name, config = _topic(line)
            topics[name] = config
        # Behind this come filter servers and, from 5.x, mappings of logical queues: nothing for routes.
        return RegistrationBody(topics, DataVersion.from_json(_object(json.loads(version))))
    except (struct.error, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"the registration is cut short or damaged: {error}") from None


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">i", data, at)
    end = at + 4 + size
    if size < 0 or end > len(data):
        raise ValueError(f"the registration has a text of {size} bytes with {len(data) - at - 4} left")
    return data[at + 4 : end].decode(), end


def _topic(line: str) -> tuple[str, dict[str, Any]]:
    """``name read write perm filterType [attributes]``, blank between."""
    words = line.split(" ")
    try:
        read, write, perm = (int(word) for word in words[1:4])
    except ValueError:
        raise ValueError(f"the registration has a topic of {line!r}") from None
    return words[0], {"readQueueNums": read, "writeQueueNums": write, "perm": perm, "topicSysFlag": 0}
