"""The table of delay levels: ``1s 5s 10s ...``, level 1 first (format section 15.1)."""

from __future__ import annotations

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds per level; level ``n`` is item ``n - 1``. Raises ValueError naming the wrong part."""
    levels = []
    for part in text.split():
        number, unit = part[:-1], part[-1]
        if unit not in _UNIT_MS or not (number.isascii() and number.isdigit()):
            raise ValueError(f"{part!r} is no delay: a number and one of s, m, h, d")
        levels.append(int(number) * _UNIT_MS[unit])
    if not levels:
        raise ValueError("at least one level is needed")
    return tuple(levels)
