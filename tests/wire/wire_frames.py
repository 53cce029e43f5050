"""Frames as plain as they can be read: the replay must not trust the code it tests."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field, replace
from typing import Any

_LANGUAGES = ["JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP"]


@dataclass(frozen=True)
class Frame:
    """One frame, whichever header it has."""

    code: int
    opaque: int
    flag: int
    fields: dict[str, str] = field(default_factory=dict)
    remark: str = ""
    body: bytes = b""
    binary: bool = False
    version: int = 0
    language: str = "JAVA"

    @property
    def is_answer(self) -> bool:
        return bool(self.flag & 1)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & 2)

    def with_fields(self, **fields: str) -> Frame:
        return replace(self, fields={**self.fields, **fields})


def parse(data: bytes) -> Frame:
    word = struct.unpack(">I", data[4:8])[0]
    size = word & 0xFFFFFF
    header, body = data[8 : 8 + size], data[8 + size :]
    return _binary(header, body) if word >> 24 else _json(header, body)


def _json(header: bytes, body: bytes) -> Frame:
    given: dict[str, Any] = json.loads(header, strict=False)
    return Frame(
        given["code"],
        given["opaque"],
        given["flag"],
        dict(given.get("extFields") or {}),
        given.get("remark") or "",
        body,
        version=given["version"],
        language=given["language"],
    )


def _binary(header: bytes, body: bytes) -> Frame:
    code, language, version, opaque, flag, size = struct.unpack_from(">hbhiiI", header)
    place = 17
    remark = header[place : place + size].decode()
    place += size + 4
    fields = {}
    while place < len(header):
        (size,) = struct.unpack_from(">H", header, place)
        name = header[place + 2 : place + 2 + size].decode()
        place += 2 + size
        (size,) = struct.unpack_from(">I", header, place)
        fields[name] = header[place + 4 : place + 4 + size].decode()
        place += 4 + size
    return Frame(code, opaque, flag, fields, remark, body, True, version, _LANGUAGES[language])


def build(frame: Frame) -> bytes:
    if frame.binary:
        fields = b"".join(
            struct.pack(">H", len(name.encode()))
            + name.encode()
            + struct.pack(">I", len(value.encode()))
            + value.encode()
            for name, value in frame.fields.items()
        )
        language = _LANGUAGES.index(frame.language)
        fixed = struct.pack(">hbhii", frame.code, language, frame.version, frame.opaque, frame.flag)
        remark = frame.remark.encode()
        header = fixed + struct.pack(">I", len(remark)) + remark + struct.pack(">I", len(fields)) + fields
    else:
        given = {
            "code": frame.code,
            "extFields": frame.fields,
            "flag": frame.flag,
            "language": frame.language,
            "opaque": frame.opaque,
            "version": frame.version,
        }
        header = json.dumps(given, separators=(",", ":")).encode()
    word = (int(frame.binary) << 24) | len(header)
    return struct.pack(">II", 4 + len(header) + len(frame.body), word) + header + frame.body
