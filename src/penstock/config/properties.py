"""Java ``.properties`` text, the syntax of a RocketMQ ``broker.conf``."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*([ \t\f]*[=:][ \t\f]*|[ \t\f]+)")


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values as Java's ``Properties.load`` gives them; a later line wins.

    Raises ValueError on a malformed ``\\uXXXX``.
    """
    table = {}
    for line in _logical_lines(text):
        found = _SEPARATOR.search(line)
        key, value = (line[: found.start(1)], line[found.end(1) :]) if found else (line, "")
        table[_unescape(key)] = _unescape(value)
    return table


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks; one that ends in an odd number of backslashes goes on."""
    pending = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        line = pending + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        pending = ""
        yield line
    if pending:
        yield pending


def _unescape(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        char = found.group(1)
        if char[0] != "u":
            return _ESCAPES.get(char, char)
        if len(char) != 5:
            raise ValueError(f"malformed \\u escape in {text!r}")
        return chr(int(char[1:], 16))

    return re.sub(r"\\(u[0-9a-fA-F]{0,4}|.)", replace, text)
