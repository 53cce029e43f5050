"""Frames of the remoting protocol, plain and readable: the oracle of ``_native.wire`` (protocol 1)."""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

from penstock.format.malformed import Malformed

LANGUAGES = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS"),
    *("RUST", "NODE_JS"),
)
JSON, BINARY = 0, 1
_FIXED = struct.Struct(">hBhii")
_INT32 = range(-(2**31), 2**31)


class Header(NamedTuple):
    """What a frame says before its body. ``fields`` are RocketMQ's extFields."""

    code: int
    fields: dict[str, str]
    flag: int
    opaque: int
    version: int
    language: str | int
    remark: str | None


def split_frame(data: bytes, at: int, max_frame: int, max_header: int) -> tuple[int, bytes, bytes] | None:
    """Serialize type, header and body of the frame at ``at``; None while it is not whole."""
    if len(data) - at < 4:
        return None
    size = int.from_bytes(data[at : at + 4], "big")
    if not 4 <= size <= max_frame - 4:
        raise Malformed(f"a frame of {size} bytes")
    if len(data) - at < 8:
        return None
    kind, header = data[at + 4], int.from_bytes(data[at + 5 : at + 8], "big")
    if header > min(size - 4, max_header):
        raise Malformed(f"a header of {header} bytes in a frame of {size}")
    if len(data) - at - 4 < size:
        return None
    return kind, data[at + 8 : at + 8 + header], data[at + 8 + header : at + 4 + size]


def decode_header(kind: int, header: bytes) -> Header:
    """A header of either kind. Raises Malformed."""
    try:
        if kind == JSON:
            return _decode_json(header)
        if kind == BINARY:
            return _decode_binary(header)
    except (UnicodeDecodeError, struct.error, RecursionError) as error:
        raise Malformed(str(error)) from None
    raise Malformed(f"unknown serialize type {kind}")


def encode_head(kind: int, header: Header, body_size: int) -> bytes:
    """The frame up to its body."""
    data = _encode_json(header) if kind == JSON else _encode_binary(header)
    return struct.pack(">ii", 4 + len(data) + body_size, kind << 24 | len(data)) + data


def _decode_json(header: bytes) -> Header:
    try:
        # Not strict: Java's reader takes raw control characters in strings, and some senders write them.
        found: Any = json.loads(header.decode(), strict=False)
    except json.JSONDecodeError as error:
        raise Malformed(str(error)) from None
    if not isinstance(found, dict):
        raise Malformed("the header is no object")
    numbers = [found.get(name, 0) for name in ("code", "flag", "opaque", "version")]
    if "code" not in found or not all(type(number) is int and number in _INT32 for number in numbers):
        raise Malformed("a number in the header is none, or too large")
    remark, language = found.get("remark"), found.get("language", "JAVA")
    fields = found.get("extFields")
    if fields is None:
        fields = {}
    if not isinstance(fields, dict) or not isinstance(remark, str | None):
        raise Malformed("extFields or remark is something else")
    if not isinstance(language, str | None):
        raise Malformed("language is no text")
    texts = {key: _text(value) for key, value in fields.items() if value is not None}
    code, flag, opaque, version = numbers
    return Header(code, texts, flag, opaque, version, "OTHER" if language is None else language, remark)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _encode_json(header: Header) -> bytes:
    language = header.language if isinstance(header.language, str) else "OTHER"
    out: dict[str, Any] = {"code": header.code, "extFields": header.fields, "flag": header.flag}
    out |= {"language": language, "opaque": header.opaque}
    if header.remark is not None:
        out["remark"] = header.remark
    out |= {"serializeTypeCurrentRPC": "JSON", "version": header.version}
    text = json.dumps(out, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace")


def _decode_binary(header: bytes) -> Header:
    code, language, version, opaque, flag = _FIXED.unpack_from(header)
    remark, at = _take(header, _FIXED.size, ">i")
    entries, at = _take(header, at, ">i")
    if at != len(header):
        raise Malformed("bytes after the last header field")
    fields: dict[str, str] = {}
    at = 0
    while at < len(entries):
        name, at = _take(entries, at, ">h")
        value, at = _take(entries, at, ">i")
        if value:  # an empty value is Java's null
            fields[name.decode()] = value.decode()
    known = LANGUAGES[language] if language < len(LANGUAGES) else language
    return Header(code, fields, flag, opaque, version, known, remark.decode() if remark else None)


def _take(data: bytes, at: int, width: str) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(width, data, at)
    start = at + struct.calcsize(width)
    if size < 0 or start + size > len(data):
        raise Malformed(f"a header field of {size} bytes with {len(data) - start} left")
    return data[start : start + size], start + size


def _encode_binary(header: Header) -> bytes:
    language = header.language
    if isinstance(language, str):
        language = LANGUAGES.index(language) if language in LANGUAGES else LANGUAGES.index("OTHER")
    fields = b""
    for key, value in header.fields.items():
        name, text = key.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        fields += struct.pack(">h", len(name)) + name + struct.pack(">i", len(text)) + text
    # 16 bits are all this header has: RocketMQ cuts a larger code or version the same way (protocol 1.3).
    fixed = _FIXED.pack(
        _short(header.code), language & 0xFF, _short(header.version), header.opaque, header.flag
    )
    remark = (header.remark or "").encode("utf-8", "replace")
    return fixed + struct.pack(">i", len(remark)) + remark + struct.pack(">i", len(fields)) + fields


def _short(value: int) -> int:
    return (value & 0xFFFF ^ 0x8000) - 0x8000
