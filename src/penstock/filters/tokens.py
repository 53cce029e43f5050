"""The words of a filter."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

from penstock.errors import InvalidFilter

_KEYWORDS = frozenset(
    {
        *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"),
        *("CONTAINS", "STARTSWITH", "ENDSWITH"),
    }
)
_EXPONENT = "[eE][+-]?[0-9]+"
# One alternative per kind; where two match at a place the longer one comes first.
_TOKEN = re.compile(
    r"(?P<space>[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\n|\r)|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)"
    rf"|(?P<double>[0-9]+\.[0-9]*(?:{_EXPONENT})?|\.[0-9]+(?:{_EXPONENT})?|[0-9]+{_EXPONENT})"
    r"|(?P<integer>0|[1-9][0-9]*[lL]?)"
    r"|(?P<text>'[^']*(?:''[^']*)*')"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<sign><>|>=|<=|[=><(),+-])"
)


class Kind(Enum):
    """What a token is."""

    END = auto()
    KEYWORD = auto()
    NAME = auto()
    TEXT = auto()
    INTEGER = auto()
    DOUBLE = auto()
    SIGN = auto()


_KINDS = {
    "double": Kind.DOUBLE,
    "integer": Kind.INTEGER,
    "text": Kind.TEXT,
    "name": Kind.NAME,
    "sign": Kind.SIGN,
}


class Token(NamedTuple):
    """One word: a keyword in capitals, a text without its quotes, everything else as it was written."""

    kind: Kind
    text: str
    at: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these keywords or signs."""
        return self.kind in (Kind.KEYWORD, Kind.SIGN) and self.text in words

    def __str__(self) -> str:
        return "the end" if self.kind is Kind.END else repr(_short(self.text))


def token_at(text: str, at: int) -> tuple[Token, int]:
    """The token at a place, and where the next one begins. InvalidFilter when nothing fits there.

    Tokens are taken one by one: RocketMQ never looks at what stands behind a whole expression, and so an
    unknown character there is no fault.
    """
    while True:
        found = _TOKEN.match(text, at)
        if found is None:
            if at == len(text):
                return Token(Kind.END, "", at), at
            raise InvalidFilter(f"unexpected character {text[at]!r}", at)
        group, word, start = found.lastgroup, found.group(), at
        at = found.end()
        if group == "space":
            continue
        assert group is not None
        kind = _KINDS[group]
        if kind is Kind.NAME and word.upper() in _KEYWORDS:
            kind, word = Kind.KEYWORD, word.upper()
        elif kind is Kind.TEXT:
            word = word[1:-1].replace("''", "'")
        return Token(kind, word, start), at


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"
