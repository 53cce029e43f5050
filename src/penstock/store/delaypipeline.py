"""Deliveries of delay levels that are under way: put by other threads than the one that looks for them.

RocketMQ's asynchronous mode (store format, section 15.2). Each level is a line: its messages are put one
after the other in the order of its queue, levels beside each other. What failed is tried again after a while,
longer each time, and everything behind it waits. At most ``limit`` of a level are in its line.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from penstock.clock import Clock

_log = logging.getLogger(__name__)

LIMIT = 2000
POLL_MS = 10
FIRST_WAIT_MS = 100
LONGEST_WAIT_MS = 10_000

Deliver = Callable[[], bool]
"""Puts one message. True: done with; False or an error: to be tried again."""


@dataclass(slots=True)
class _Delivery:
    offset: int
    deliver: Deliver
    failures: int = 0
    retry_at: float = 0.0


class DelayLine:
    """The deliveries of one level. One thread offers and settles; whichever runs ``_work`` delivers."""

    def __init__(self, level: int, executor: Executor, clock: Clock, limit: int = LIMIT) -> None:
        self.level = level
        self._executor = executor
        self._clock = clock
        self._limit = limit
        self._guard = threading.Condition()
        self._waiting: deque[_Delivery] = deque()
        self._done: int = 0
        self._task: Future[None] | None = None
        self._working = False
        self._closed = False

    @property
    def in_flight(self) -> int:
        """Offered and not delivered yet."""
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        return len(self._waiting) < self._limit

    def offer(self, offset: int, deliver: Deliver) -> None:
        """Put it in the line. Offsets come in order."""
        with self._guard:
            self._waiting.append(_Delivery(offset, deliver))

    def push(self) -> None:
        """Have the line worked on, unless it is, or its head has to wait before it is tried again."""
        with self._guard:
            if self._working or self._closed or not self._waiting:
                return
            if self._waiting[0].retry_at > self._clock.monotonic():
                return
            self._working = True
            try:
                self._task = self._executor.submit(self._work)
            except BaseException:
                self._working = False
                raise

    def settle(self) -> tuple[int, int]:
        """How many were delivered since the last call, and how many are in the line behind them.

        Always the first ones, so progress has no holes. Both of one moment: deliveries go on meanwhile.
        """
        with self._guard:
            done, self._done = self._done, 0
            return done, len(self._waiting)

    def stop(self) -> None:
        """Deliver nothing more; return when nobody is at it."""
        with self._guard:
            self._closed = True
            if self._task is not None and self._task.cancel():
                self._working = False  # it never began
            self._guard.wait_for(lambda: not self._working)
            self._waiting.clear()

    def _work(self) -> None:
        try:
            while self._deliver_head():
                pass
        finally:
            with self._guard:
                self._working = False
                self._guard.notify_all()

    def _deliver_head(self) -> bool:
        """Whether the next one may be tried."""
        with self._guard:
            if self._closed or not self._waiting:
                return False
            head = self._waiting[0]
        try:
            delivered = head.deliver()
        except Exception as error:
            _log.warning("delay level %d stands at offset %d: %s", self.level, head.offset, error)
            delivered = False
        with self._guard:
            if delivered:
                self._waiting.popleft()
                self._done += 1
                return True
            head.failures += 1
            wait = min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** min(head.failures - 1, 10))
            head.retry_at = self._clock.monotonic() + wait / 1000
            return False
