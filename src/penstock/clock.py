"""Time as something handed in.

Stores, timers and cleaning take a :class:`Clock`, so a test moves time instead of waiting for it.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What the rest of the package knows of time."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970. May jump, in both directions."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start. Never goes back; for intervals and deadlines."""
        ...


class SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that stands still until it is told to move. Safe to share between threads."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._lock = threading.Lock()
        self._now_ms = now_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._elapsed_ms / 1000

    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass on both clocks."""
        if ms < 0:
            raise ValueError("time passes forwards; use set() for a wall clock that jumps back")
        with self._lock:
            self._now_ms += ms
            self._elapsed_ms += ms

    def set(self, ms: int) -> None:
        """Set the wall clock, as an administrator or NTP would. The monotonic clock does not notice."""
        with self._lock:
            self._now_ms = ms
