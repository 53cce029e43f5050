"""What the operands of a filter may be, and how two of them compare: as Java objects do in RocketMQ."""

from __future__ import annotations

from collections.abc import Callable

from penstock.filters.javanumbers import Long, compare_doubles, double, whole

Value = str | bool | int | float | None
"""A property is a text or missing; a ``Long`` is an int of 64 bits, any other int has 32."""

UNLIKE = -1
"""Values of which none is turned into the other: they differ, and no order is meant."""


class EvaluationFailed(Exception):
    """The values at hand cannot be compared. A broker takes such a message for one that does not match."""


def compare(left: str | bool | int | float, right: str | bool | int | float) -> int:
    """Negative, zero or positive. EvaluationFailed where RocketMQ's evaluator throws.

    The right one is turned into what the left one is, or the other way round, whichever is the number.
    """
    one, other = type(left), type(right)
    if one is other:
        return _ordered(left, right)
    if one is str:
        return _ordered(_converted(left, other), right)
    if other is str:
        if one is bool:
            raise EvaluationFailed("a boolean on the left cannot be compared with a text")
        return _ordered(left, _converted(right, one))
    if bool in (one, other):
        return UNLIKE
    if float in (one, other):
        return compare_doubles(float(left), float(right))
    return _ordered(left, right)


def _ordered(left: str | bool | int | float, right: str | bool | int | float) -> int:
    if isinstance(left, float) and isinstance(right, float):
        return compare_doubles(left, right)
    return (left > right) - (left < right)  # type: ignore[operator]


_READERS: dict[type, Callable[[str], bool | int | float]] = {
    bool: lambda text: text.lower() == "true",
    int: lambda text: whole(text, 32),
    Long: lambda text: whole(text, 64),
    float: double,
}


def _converted(text: object, wanted: type) -> bool | int | float:
    assert isinstance(text, str)
    try:
        return _READERS[wanted](text)
    except ValueError as error:
        raise EvaluationFailed(f"{text[:40]!r}: {error}") from None


def numbers(left: str, right: str) -> tuple[float, float]:
    """Two texts of which one is to be above the other: both have to be numbers."""
    try:
        return double(left), double(right)
    except ValueError as error:
        raise EvaluationFailed(f"texts have no order: {error}") from None


def negated(value: Value) -> Value:
    """The value with the other sign; of anything but a number there is none."""
    if isinstance(value, Long):
        return Long(-value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return -value
