"""Numbers in texts, read as Java reads them: what it refuses is refused here too."""

from __future__ import annotations

import math
import re

# Java takes any decimal digit of the basic plane for whole numbers, ASCII only for the others.
_WHOLE = re.compile(r"[+-]?\d+\Z")
_DECIMAL = re.compile(
    r"[\x00-\x20]*([+-]?)(?:(NaN)|(Infinity)"
    r"|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)[\x00-\x20]*\Z"
)


class Long(int):
    """A whole number of 64 bits; a plain int has 32, and Java tells them apart."""

    __slots__ = ()


def whole(text: str, bits: int) -> int:
    """``Integer.valueOf`` (32 bits) or ``Long.valueOf`` (64). ValueError when Java throws."""
    if _WHOLE.match(text) is None or not all(c < "\U00010000" for c in text):
        raise ValueError("no whole number")
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    if len(digits) > 20:
        # Zeros in front, of any script, count for nothing.
        start = 0
        while start < len(digits) - 1 and int(digits[start]) == 0:
            start += 1
        digits = digits[start:]
        if len(digits) > 20:
            raise ValueError("too large a number")
    value = int(sign + digits)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError("too large a number")
    return value


def double(text: str) -> float:
    """``Double.valueOf``. ValueError when Java throws."""
    found = _DECIMAL.match(text)
    if found is None:
        raise ValueError("no number")
    sign, not_a_number, infinity, decimal, hexadecimal = found.groups()
    if not_a_number:
        return math.nan
    if infinity:
        value = math.inf
    elif decimal:
        value = float(decimal)
    else:
        value = _from_hex(hexadecimal)
    return -value if sign == "-" else value


def _from_hex(text: str) -> float:
    # Neither side reads an exponent of any length: beyond some digits only its sign matters.
    mantissa, _, exponent = text.replace("P", "p").partition("p")
    if len(exponent) > 12:
        small = exponent[0] == "-"
        return 0.0 if small or not any(c not in "0." for c in mantissa[2:]) else math.inf
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf


def compare_doubles(left: float, right: float) -> int:
    """``Double.compareTo``: NaN equals itself and is above everything, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and left != 0.0:
        return 0
    one, other = _rank(left), _rank(right)
    return (one > other) - (one < other)


def _rank(value: float) -> int:
    if math.isnan(value):
        return 2
    return -1 if math.copysign(1.0, value) < 0 else 1
