"""How many requests a client may make in a second: of one connection, and of one account over all of its."""

from __future__ import annotations

from collections.abc import Callable


class TokenBucket:
    """``rate`` a second, and as many at once after a second of rest."""

    __slots__ = ("_rate", "_seen", "_tokens")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._tokens = rate
        self._seen = now

    def take(self, now: float) -> bool:
        """Whether one more is within the rate."""
        tokens = min(self._rate, self._tokens + (now - self._seen) * self._rate)
        self._seen = now
        self._tokens = tokens - 1 if tokens >= 1 else tokens
        return tokens >= 1


class AccountLimits:
    """A bucket for each account that asks."""

    def __init__(self, rate: int, now: Callable[[], float]) -> None:
        self._rate = rate
        self._now = now
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, account: str) -> bool:
        """``account`` is one that exists: strangers' names would fill the table."""
        now = self._now()
        bucket = self._buckets.get(account)
        if bucket is None:
            bucket = self._buckets[account] = TokenBucket(self._rate, now)
        return bucket.take(now)
