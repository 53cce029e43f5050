"""Sends under way: who waits for which answer, until when, and how many there may be."""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import Protocol

from penstock.errors import PenstockError, RemotingTimeout
from penstock.remoting import Connection

_SWEEP_DELAY = 0.05


class Pending(Protocol):
    """A send on its way: what waits in the connection's table for the answer."""

    connection: Connection
    size: int
    deadline: float

    def set_exception(self, error: Exception, /) -> None: ...


class InFlight:
    """The window of unanswered sends. A sweep ends those whose time is over; there is no timer per send."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self.count = 0
        self.bytes = 0
        self.has_room = True
        self._most = most
        self._most_bytes = most_bytes
        self._live: set[Pending] = set()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_at = inf
        self._loop = asyncio.get_running_loop()
        self._closed: Exception | None = None

    async def room(self, deadline: float) -> None:
        """Wait until another send may leave; RemotingTimeout when the deadline comes first."""
        while not self.has_room:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout_at(deadline):
                    await waiter
            except TimeoutError:
                raise RemotingTimeout(
                    f"{self.count} sends wait for their answers; no room for another in time"
                ) from None
            if self._closed is not None:
                raise self._closed

    def enter(self, pending: Pending) -> None:
        """A send leaves."""
        self.count += 1
        self.bytes += pending.size
        self._live.add(pending)
        if self.count >= self._most or self.bytes >= self._most_bytes:
            self.has_room = False
        if pending.deadline < self._sweep_at - _SWEEP_DELAY:
            self._sweep_before(pending.deadline)

    def leave(self, pending: Pending) -> None:
        """One answer came, or will never come."""
        self._live.discard(pending)
        self.count -= 1
        self.bytes -= pending.size
        if not self.has_room:
            self.has_room = self.count < self._most and self.bytes < self._most_bytes
        while self._waiters and self.has_room:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    def close(self, error: PenstockError) -> None:
        """Fail everything that is under way or waits for room."""
        self._closed = error
        if self._sweep is not None:
            self._sweep.cancel()
        for pending in list(self._live):
            pending.set_exception(error)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _sweep_before(self, deadline: float) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        # A little late rather than once a send: one look serves all that end about then.
        self._sweep_at = deadline + _SWEEP_DELAY
        self._sweep = self._loop.call_at(self._sweep_at, self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        self._sweep, self._sweep_at = None, inf
        for pending in [pending for pending in self._live if pending.deadline <= now]:
            pending.set_exception(
                RemotingTimeout(f"{pending.connection.peer_text} did not answer a send in time")
            )
        if self._live:
            self._sweep_before(min(pending.deadline for pending in self._live))
