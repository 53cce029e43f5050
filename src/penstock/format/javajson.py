"""JSON as RocketMQ's serializer writes and reads it (format section 1.3).

Strict JSON, and beside it: integer keys without quotes (``{0:15}``), names without quotes, single quotes, a
comma behind the last item, and whole objects as keys (``{{"queueId":0}:5}``), which here are tuples of their
pairs. What is written is what fastjson writes, tab for tab.

Files come from anywhere, so the parser is bounded: nesting by ``MAX_DEPTH``, numbers by their digits. The
size of the text bounds everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isinf
from typing import Any

MAX_DEPTH = 64
_MAX_DIGITS = 20

_SPACE = re.compile(r"[ \t\r\n\f]*")
# Unrolled and possessive: an unterminated string must fail in one pass, not try every way to split it.
_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"' + r"|'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL)
_NUMBER = re.compile(r"-?\d++(\.\d++)?+([eE][+-]?\d++)?+", re.ASCII)
_NAME = re.compile(r"[A-Za-z_$][\w$]*+")
_ESCAPE = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"  # one character of two UTF-16 halves
    r"|\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|\\(.)",
    re.DOTALL,
)
_PLAIN_ESCAPES = {
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "0": "\0",
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
}
_CONSTANTS = {"true": True, "false": False, "null": None}

ObjectKey = tuple[tuple[str | int, Any], ...]
"""A key that is an object: its pairs in their order. ``dict(key)`` is the object."""
Key = str | int | ObjectKey


class JsonError(ValueError):
    """Text that is no JSON, even read liberally. ``position`` counts characters."""

    def __init__(self, what: str, position: int) -> None:
        super().__init__(what)
        self.what = what
        self.position = position


def parse(text: str) -> Any:
    """The one value in the text. Keys without quotes come back as ``int``, objects as ``ObjectKey``.

    Raises JsonError, also when anything but white space follows the value.
    """
    parser = _Parser(text)
    value = parser.value(0)
    parser.skip_space()
    if parser.position < len(text):
        raise JsonError("bytes behind the end of the JSON value", parser.position)
    return value


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 1 if text.startswith("\ufeff") else 0

    def skip_space(self) -> str:
        """The next character that counts, not consumed; empty at the end."""
        found = _SPACE.match(self.text, self.position)
        assert found is not None
        self.position = found.end()
        return self.text[self.position : self.position + 1]

    def value(self, depth: int) -> Any:
        char = self.skip_space()
        if char in ("{", "["):
            if depth >= MAX_DEPTH:
                raise JsonError(f"nested deeper than {MAX_DEPTH}", self.position)
            self.position += 1
            return self.object(depth + 1) if char == "{" else self.array(depth + 1)
        if char in ('"', "'"):
            return self.string()
        if char == "-" or char.isdigit():
            return self.number()
        return self.constant()

    def object(self, depth: int) -> dict[Key, Any]:
        table: dict[Key, Any] = {}
        while self.more("}"):
            key = self.object_key(depth) if self.skip_space() == "{" else self.key()
            if self.skip_space() != ":":
                raise self.unexpected("a colon")
            self.position += 1
            table[key] = self.value(depth)
        return table

    def array(self, depth: int) -> list[Any]:
        items: list[Any] = []
        while self.more("]"):
            items.append(self.value(depth))
        return items

    def more(self, close: str) -> bool:
        """Step over what stands between two items; False when the closing bracket was consumed."""
        opened = self.text[self.position - 1] in "{["  # nothing else a value ends in: this is the first item
        char = self.skip_space()
        if char == "," and not opened:
            self.position += 1
            char = self.skip_space()
        elif char != close and not opened:
            raise self.unexpected(f"a comma or {close}")
        if char == close:
            self.position += 1
            return False
        return True

    def object_key(self, depth: int) -> ObjectKey:
        start = self.position
        pairs = self.value(depth)
        for name, value in pairs.items():
            if isinstance(name, tuple) or isinstance(value, (dict, list)):
                raise JsonError("a key that is an object with more than plain values", start)
        return tuple(pairs.items())

    def key(self) -> str | int:
        char = self.skip_space()
        if char in ('"', "'"):
            return self.string()
        if char == "-" or char.isdigit():
            number = self.number()
            if isinstance(number, int):
                return number
            raise JsonError("a fraction as a key", self.position)
        found = _NAME.match(self.text, self.position)
        if found is None:
            raise self.unexpected("a key")
        self.position = found.end()
        return found.group()

    def string(self) -> str:
        found = _STRING.match(self.text, self.position)
        if found is None:
            raise JsonError("a string without an end", self.position)
        body = found.group(1) if found.group(1) is not None else found.group(2)
        start, self.position = self.position, found.end()
        return _unescape(body, start) if "\\" in body else body

    def number(self) -> int | float:
        found = _NUMBER.match(self.text, self.position)
        if found is None:
            raise self.unexpected("a number")
        digits = found.group()
        # Long enough for any 64-bit value and any double as Java prints it.
        if len(digits) > _MAX_DIGITS + 12:
            raise JsonError("a number with too many digits", self.position)
        start, self.position = self.position, found.end()
        if found.group(1) is None and found.group(2) is None:
            return int(digits)
        if isinf(value := float(digits)):
            raise JsonError("a number that no double holds", start)
        return value

    def constant(self) -> Any:
        found = _NAME.match(self.text, self.position)
        if found is None or found.group() not in _CONSTANTS:
            raise self.unexpected("a value")
        self.position = found.end()
        return _CONSTANTS[found.group()]

    def unexpected(self, wanted: str) -> JsonError:
        char = self.text[self.position : self.position + 1]
        found = repr(char) if char else "the end"
        return JsonError(f"{wanted} expected, {found} found", self.position)


def _unescape(body: str, position: int) -> str:
    def replace(found: re.Match[str]) -> str:
        high, low, single, byte, char = found.groups()
        if high is not None:
            return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + (int(low, 16) - 0xDC00))
        if single is not None:
            return chr(int(single, 16))
        if byte is not None:
            return chr(int(byte, 16))
        if char not in _PLAIN_ESCAPES:
            raise JsonError(f"unknown escape \\{char}", position)
        return _PLAIN_ESCAPES[char]

    return _ESCAPE.sub(replace, body)


_QUOTED = re.compile(r'["\\\x00-\x1f\ud800-\udfff]')
_QUOTED_ASCII = re.compile(r'["\\\x00-\x1f]|[^\x00-\x7f]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def render(value: Any, *, pretty: bool = True, ascii_only: bool = False) -> str:
    """The text fastjson writes: items in the order given, integer keys without quotes, tabs when pretty.

    A key that is an ``ObjectKey`` is written as that object.
    """
    return "".join(_render(value, pretty, ascii_only, 0))


def _render(value: Any, pretty: bool, ascii_only: bool, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, Mapping):
        entries = [(f"{_key(key, ascii_only)}:", item) for key, item in value.items()]
        yield from _block("{", "}", entries, pretty, ascii_only, depth)
    elif isinstance(value, (list, tuple)):
        yield from _block("[", "]", [("", item) for item in value], pretty, ascii_only, depth)
    elif isinstance(value, str):
        yield _quote(value, ascii_only)
    elif value is None or isinstance(value, bool):
        yield {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, int):
        yield str(value)
    elif isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError(f"{value} has no JSON")
        yield repr(value)
    else:
        raise TypeError(f"{type(value).__name__} has no JSON")


def _block(
    opening: str, closing: str, entries: list[tuple[str, Any]], pretty: bool, ascii_only: bool, depth: int
) -> Iterator[str]:
    if not entries:
        yield opening + closing
        return
    inner, outer = ("\n" + "\t" * (depth + 1), "\n" + "\t" * depth) if pretty else ("", "")
    yield opening
    for number, (prefix, item) in enumerate(entries):
        yield f"{',' if number else ''}{inner}{prefix}"
        yield from _render(item, pretty, ascii_only, depth + 1)
    yield outer + closing


def _key(key: object, ascii_only: bool) -> str:
    if isinstance(key, str):
        return _quote(key, ascii_only)
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    if isinstance(key, tuple):
        return render(dict(key), pretty=False, ascii_only=ascii_only)
    raise TypeError(f"a key must be text or a whole number, not {type(key).__name__}")


def _quote(text: str, ascii_only: bool) -> str:
    def replace(found: re.Match[str]) -> str:
        char = found.group()
        if char in _SHORT:
            return _SHORT[char]
        code = ord(char)
        if code > 0xFFFF:
            code -= 0x10000
            return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"
        return f"\\u{code:04X}"

    return f'"{(_QUOTED_ASCII if ascii_only else _QUOTED).sub(replace, text)}"'
