"""Answers that wait for the disk: sent in groups, by one wake-up of the loop a sync (design decision 10)."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

from penstock._native.flush import Flusher
from penstock.broker.puttimes import PutTimes

Done = Callable[[OSError | None], object]
"""Called when the message is on disk, or with the error that makes it unsure."""

SHARE = 16
"""So many waiting messages of one pass of the loop ask for a sync at once."""


class Acknowledgements:
    """What waits for the log to be on disk, in the order of the log.

    ``on_flushed`` is called once after each sync, before the answers go out.
    """

    def __init__(
        self,
        flusher: Flusher,
        timeout_seconds: float,
        *,
        on_flushed: Callable[[], object],
        on_failure: Callable[[OSError], object],
    ) -> None:
        """``flusher`` is the store's. After the timeout ``done`` gets a TimeoutError; when a sync failed
        ``on_failure`` is told, then everybody who waits.
        """
        self._flusher = flusher
        self._timeout = timeout_seconds
        self._on_flushed = on_flushed
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[int, float, Done]] = deque()
        self._unasked = 0
        self.times = PutTimes()
        self._where = flusher.flushed_where
        if hasattr(os, "eventfd"):
            self._read = self._write = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._read, self._write = os.pipe()
            os.set_blocking(self._read, False)
            os.set_blocking(self._write, False)
        self._loop.add_reader(self._read, self._flushed)
        flusher.add_wake(self._write)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def longest_wait(self) -> float:
        """Seconds that the oldest of them has waited."""
        return self._loop.time() - self._waiting[0][1] if self._waiting else 0.0

    def add(self, end_offset: int, done: Done) -> None:
        """Call ``done`` when the log is on disk up to ``end_offset``. Offsets come in rising order."""
        self._waiting.append((end_offset, self._loop.time(), done))
        # Few syncs for many; but the first of them run beside a long pass of the loop, not after it.
        self._unasked += 1
        if self._unasked == 1:
            self._loop.call_soon(self._ask)
        elif self._unasked % SHARE == 0:
            self._flusher.request(end_offset)

    def _ask(self) -> None:
        self._unasked = 0
        if self._waiting:
            self._flusher.request(self._waiting[-1][0])
            if self._flusher.flushed_where >= self._waiting[0][0] or self._flusher.error:
                self._complete()

    def _flushed(self) -> None:
        try:
            os.read(self._read, 4096)
        except BlockingIOError:
            return
        self._complete()

    def _complete(self) -> None:
        where, waiting = self._flusher.flushed_where, self._waiting
        if where > self._where:
            self._where = where
            self._on_flushed()
        if waiting and waiting[0][0] <= where:
            longest, before = self._loop.time() - waiting[0][1], len(waiting)
            while waiting and waiting[0][0] <= where:
                waiting.popleft()[2](None)
            self.times.add(longest, before - len(waiting))
        if waiting and self._flusher.error:
            error = OSError(self._flusher.error, "fdatasync of the commit log failed")
            self._on_failure(error)
            while waiting:
                waiting.popleft()[2](error)

    def expire(self) -> None:
        """Answer what has waited too long; the message is in the log all the same."""
        until = self._loop.time() - self._timeout
        while self._waiting and self._waiting[0][1] < until:
            self._waiting.popleft()[2](TimeoutError("the disk did not answer in time"))

    def close(self) -> None:
        self._flusher.remove_wake(self._write)
        self._loop.remove_reader(self._read)
        for descriptor in {self._read, self._write}:
            os.close(descriptor)
