"""One frame of the protocol as an object: a request or an answer (protocol section 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock._native.wire import LANGUAGES, VERSION, Command, take_frames
from penstock._native.wireout import encode, encode_head
from penstock.errors import BadFrame

__all__ = [
    "LANGUAGES",
    "ONEWAY_FLAG",
    "RESPONSE_FLAG",
    "VERSION",
    "Command",
    "decode",
    "encode",
    "encode_head",
    "fields_of",
    "tolerant_header",
]

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2
_INT32_LOW, _INT32_HIGH = -(2**31), 2**31 - 1
_ANY_FRAME = 1 << 32
_ANY_HEADER = 1 << 24


class _Header(msgspec.Struct, rename={"fields": "extFields"}):
    code: int
    fields: dict[str, str] | None = None
    flag: int = 0
    language: str | None = "JAVA"
    opaque: int = 0
    remark: str | None = None
    version: int = 0


def decode(frame: bytes | bytearray | memoryview) -> Command:
    """The command of one whole frame, length bytes included. Raises BadFrame. Checks no limits."""
    commands, end, wrong = take_frames(frame, _ANY_FRAME, _ANY_HEADER, tolerant_header)
    if wrong is not None:
        raise BadFrame(wrong)
    if len(commands) != 1 or end != len(frame):
        raise BadFrame(f"{len(frame)} bytes are not one whole frame")
    return commands[0]


def tolerant_header(header: bytes) -> Command:
    """A JSON header that is right but not plain: members we do not know, numbers in extFields (Java takes
    them), white space in odd places. Raises ValueError for one that is not right."""
    try:
        found: Any = msgspec.json.decode(header)
        if isinstance(found, dict) and isinstance(found.get("extFields"), dict):
            fields = found["extFields"].items()
            found["extFields"] = {key: _text(value) for key, value in fields if value is not None}
        got = msgspec.convert(found, _Header)
    except RecursionError:
        raise ValueError("the header is nested too deep") from None
    except msgspec.MsgspecError as error:
        raise ValueError(f"the header is no JSON header: {error}") from None
    numbers = (got.code, got.flag, got.opaque, got.version)
    if min(numbers) < _INT32_LOW or max(numbers) > _INT32_HIGH:
        raise ValueError("a number in the header does not fit 32 bits")
    return Command(
        got.code,
        got.fields,
        flag=got.flag,
        opaque=got.opaque,
        remark=got.remark,
        language="OTHER" if got.language is None else got.language,
        version=got.version,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def fields_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Header fields of plain values, as Java writes them: booleans in small letters, None left out."""
    return {key: _field(value) for key, value in values.items() if value is not None}


def _field(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
