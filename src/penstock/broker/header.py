"""Fields of a request's header: numbers and words as Java sends them, refused with a clear remark."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import RequestRefused

_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)


def word(fields: Mapping[str, str], name: str) -> str:
    """A field that must be there."""
    value = fields.get(name)
    if value is None:
        raise RequestRefused(1, f"the header field {name} is missing")
    return value


def _number(text: str, name: str, bounds: range) -> int:
    # int() takes blanks and underscores, which Java's parsers refuse.
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19 or int(text) not in bounds:
        raise RequestRefused(1, f'the header field {name} is no number: For input string: "{text[:40]}"')
    return int(text)


def number(fields: Mapping[str, str], name: str) -> int:
    """A 32-bit number that must be there."""
    return _number(word(fields, name), name, _INT32)


def long_number(fields: Mapping[str, str], name: str) -> int:
    """A 64-bit number that must be there."""
    return _number(word(fields, name), name, _INT64)


def optional_number(fields: Mapping[str, str], name: str, otherwise: int) -> int:
    """A 32-bit number, or ``otherwise`` where there is none."""
    value = fields.get(name)
    return otherwise if value is None or value == "" else _number(value, name, _INT32)


def optional_long(fields: Mapping[str, str], name: str, otherwise: int) -> int:
    """A 64-bit number, or ``otherwise`` where there is none."""
    value = fields.get(name)
    return otherwise if value is None or value == "" else _number(value, name, _INT64)


def flag(fields: Mapping[str, str], name: str, otherwise: bool = False) -> bool:
    """``true`` in any case is true, as in Java; everything else is not."""
    value = fields.get(name)
    return otherwise if value is None else value.lower() == "true"
