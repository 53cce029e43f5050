"""One frame of the protocol as an object: a request or an answer (protocol section 1)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import BadFrame

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2
# What we report as our version: RocketMQ 5.3.3. Clients only look whether it is at least 232 (protocol 1.7).
VERSION = 479

LANGUAGES = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS"),
    *("RUST", "NODE_JS"),
)
_LANGUAGE_CODES = {name: code for code, name in enumerate(LANGUAGES)}
_FIXED = struct.Struct(">hBhii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_INT32_LOW, _INT32_HIGH = -(2**31), 2**31 - 1


class Command:
    """A decoded frame, or one to be sent.

    ``fields`` (RocketMQ's extFields) is always a dict, ``body`` always bytes-like. A decoded body may be a
    view of the bytes that came off the network: whoever keeps it beyond the handler's call copies it.
    """

    __slots__ = ("binary", "body", "code", "fields", "flag", "language", "opaque", "remark", "version")

    def __init__(
        self,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
        *,
        flag: int = 0,
        opaque: int = 0,
        remark: str | None = None,
        language: str | int = "PYTHON",
        version: int = VERSION,
        binary: bool = False,
    ) -> None:
        self.code = code
        self.fields = {} if fields is None else fields
        self.body = body
        self.flag = flag
        self.opaque = opaque
        self.remark = remark
        self.language = language
        self.version = version
        self.binary = binary

    @staticmethod
    def request(
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
        *,
        oneway: bool = False,
    ) -> Command:
        """A request of ours. The connection gives it its opaque when it is sent."""
        return Command(int(code), fields, body, flag=ONEWAY_FLAG if oneway else 0)

    def answer(
        self,
        code: int = 0,
        fields: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
        remark: str | None = None,
    ) -> Command:
        """The answer to this request: its opaque and its serialization."""
        return Command(
            int(code),
            fields,
            body,
            flag=RESPONSE_FLAG,
            opaque=self.opaque,
            remark=remark,
            binary=self.binary,
        )

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & ONEWAY_FLAG != 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Command):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Command.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kind = "answer" if self.is_response else "oneway" if self.is_oneway else "request"
        text = f"<{kind} {self.code} opaque={self.opaque} {self.fields}"
        if self.remark:
            text += f" remark={self.remark!r}"
        return f"{text} body={len(self.body)} bytes>"


class _Header(msgspec.Struct, rename={"fields": "extFields"}):
    code: int
    fields: dict[str, str] | None = None
    flag: int = 0
    language: str | None = "JAVA"
    opaque: int = 0
    remark: str | None = None
    version: int = 0


class _HeaderOut(msgspec.Struct, rename={"fields": "extFields", "serialize": "serializeTypeCurrentRPC"}):
    code: int
    fields: dict[str, str]
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType = msgspec.UNSET
    serialize: str = "JSON"
    version: int = VERSION


_decode_json = msgspec.json.Decoder(_Header).decode
_encode_json = msgspec.json.Encoder().encode


def encode(command: Command, opaque: int | None = None) -> bytes:
    """The whole frame with its four length bytes. ``opaque`` replaces the command's own."""
    head = encode_head(command, len(command.body), opaque)
    return b"".join((head, command.body)) if command.body else head


def encode_head(command: Command, body_size: int, opaque: int | None = None) -> bytes:
    """The frame up to its body, for a body of that size which is written separately."""
    number = command.opaque if opaque is None else opaque
    if command.binary:
        header = _binary_header(command, number)
        kind = 1 << 24
    else:
        language = command.language
        header = _encode_json(
            _HeaderOut(
                command.code,
                command.fields,
                command.flag,
                language if isinstance(language, str) else "OTHER",
                number,
                msgspec.UNSET if command.remark is None else command.remark,
                "JSON",
                command.version,
            )
        )
        kind = 0
    size = len(header)
    return b"".join((_INT.pack(4 + size + body_size), _INT.pack(kind | size), header))


def decode(frame: bytes | memoryview) -> Command:
    """The command of one whole frame, length bytes included. The body is a view of ``frame``."""
    view = memoryview(frame)
    if len(view) < 8:
        raise BadFrame(f"a frame of {len(view)} bytes has no header")
    (size,) = _INT.unpack_from(view)
    if size != len(view) - 4:
        raise BadFrame(f"a frame of {len(view)} bytes says it has {size} after the length")
    word = int.from_bytes(view[4:8], "big")
    kind, header_size = word >> 24, word & 0xFFFFFF
    if header_size > size - 4:
        raise BadFrame(f"a header of {header_size} bytes in a frame of {size}")
    header, body = view[8 : 8 + header_size], view[8 + header_size :]
    if kind == 0:
        command = _from_json(header)
    elif kind == 1:
        command = _from_binary(header)
    else:
        raise BadFrame(f"unknown serialize type {kind}")
    command.body = body if body else b""
    return command


def _from_json(header: memoryview) -> Command:
    try:
        got = _decode_json(header)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        got = _tolerant_header(header)
    numbers = (got.code, got.flag, got.opaque, got.version)
    if min(numbers) < _INT32_LOW or max(numbers) > _INT32_HIGH:
        raise BadFrame("a number in the header does not fit 32 bits")
    return Command(
        got.code,
        got.fields,
        flag=got.flag,
        opaque=got.opaque,
        remark=got.remark,
        language=got.language or "OTHER",
        version=got.version,
    )


def _tolerant_header(header: memoryview) -> _Header:
    """The header of a sender that writes numbers and booleans into extFields: Java's reader takes them."""
    try:
        found: Any = msgspec.json.decode(header)
        if isinstance(found, dict) and isinstance(found.get("extFields"), dict):
            fields = found["extFields"].items()
            found["extFields"] = {key: _text(value) for key, value in fields if value is not None}
        return msgspec.convert(found, _Header)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeDecodeError) as error:
        raise BadFrame(f"the header is no JSON header: {error}") from None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _binary_header(command: Command, opaque: int) -> bytes:
    language = command.language
    code = language if isinstance(language, int) else _LANGUAGE_CODES.get(language, 7)
    remark = b"" if command.remark is None else command.remark.encode()
    parts: list[bytes] = []
    for key, value in command.fields.items():
        name, text = key.encode(), value.encode()
        parts += (_SHORT.pack(len(name)), name, _INT.pack(len(text)), text)
    fields = b"".join(parts)
    # 16 bits are all this header has: RocketMQ cuts a larger code or version the same way (protocol 1.3).
    fixed = _FIXED.pack(_short(command.code), code & 0xFF, _short(command.version), opaque, command.flag)
    return b"".join((fixed, _INT.pack(len(remark)), remark, _INT.pack(len(fields)), fields))


def _short(value: int) -> int:
    value &= 0xFFFF
    return value - 0x10000 if value & 0x8000 else value


def _from_binary(header: memoryview) -> Command:
    try:
        code, language, version, opaque, flag = _FIXED.unpack_from(header)
        remark, at = _take(header, _FIXED.size, 4)
        entries, at = _take(header, at, 4)
        if at != len(header):
            raise BadFrame(f"{len(header) - at} bytes after the last header field")
        fields: dict[str, str] = {}
        at = 0
        while at < len(entries):
            name, at = _take(entries, at, 2)
            value, at = _take(entries, at, 4)
            if value:  # an empty value is Java's null
                fields[str(name, "utf-8")] = str(value, "utf-8")
        text = str(remark, "utf-8") if remark else None
    except (struct.error, UnicodeDecodeError) as error:
        raise BadFrame(f"the header is no binary header: {error}") from None
    return Command(
        code,
        fields,
        flag=flag,
        opaque=opaque,
        remark=text,
        language=LANGUAGES[language] if language < len(LANGUAGES) else language,
        version=version,
        binary=True,
    )


def _take(data: memoryview, at: int, width: int) -> tuple[memoryview, int]:
    """What stands behind a length of ``width`` bytes, and where it ends."""
    (size,) = (_SHORT if width == 2 else _INT).unpack_from(data, at)
    start = at + width
    if size < 0 or start + size > len(data):
        raise BadFrame(f"a header field of {size} bytes with {len(data) - start} left")
    return data[start : start + size], start + size


def fields_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Header fields of plain values, as Java writes them: booleans in small letters, None left out."""
    return {key: _field(value) for key, value in values.items() if value is not None}


def _field(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
