"""Messages become readable: the dispatcher's steps on the loop, and who is told about arrivals."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection

from penstock.errors import StoreError
from penstock.store.messagestore import MessageStore

log = logging.getLogger("penstock.broker")

QueueKey = tuple[str, int]

LAZY_SECONDS = 0.005
"""While nobody waits for messages they may stay undispatched so long; whoever reads catches up first."""


class Dispatching:
    """Steps the store's dispatcher and says which queues may have got messages.

    ``on_arrival`` is called with the queues that were written to through ``appended``, or with None when
    others (delayed messages, transaction checks) wrote too and any queue may be meant.
    """

    def __init__(self, store: MessageStore, *, on_arrival: Callable[[set[QueueKey] | None], object]) -> None:
        self._store = store
        self._on_arrival = on_arrival
        self._loop = asyncio.get_running_loop()
        self._sync = store.config.flush_disk_type == "sync" and not store.config.read_uncommitted
        self._eager = 0
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._own = 0
        self._foreign = store.append_count
        self._foreign_end = -1
        # Queues written to since the last step; and those of earlier steps that are not all readable, each
        # with the end of the log at its step.
        self._touched: set[QueueKey] = set()
        self._unread: deque[tuple[int, set[QueueKey]]] = deque()
        self.failure: StoreError | None = None
        """Why dispatching stands still; None while it does not."""

    @property
    def eager(self) -> bool:
        """Whether somebody waits for messages."""
        return self._eager > 0

    def wait_for_messages(self, count: int) -> None:
        """So many more (or fewer) requests wait for messages."""
        self._eager += count

    def appended(self, key: QueueKey, count: int = 1) -> None:
        """So many records were appended to a queue on this loop."""
        self._own += count
        self._touched.add(key)
        if self._scheduled or self._sync:
            return  # under sync flush they become readable when the disk has them
        if self._eager > 0:
            self._scheduled = True
            self._loop.call_soon(self._pass_end)
        elif self._timer is None:
            self._timer = self._loop.call_later(LAZY_SECONDS, self._pass_end)

    def _pass_end(self) -> None:
        self._scheduled = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.advance()

    def catch_up(self, topics: Collection[str] | None = None) -> None:
        """Have everything readable that may be of what the loop appended, before something is read.

        With ``topics`` only they are read: nothing is done while nothing was written to them.
        """
        others = topics is not None and not any(topic in topics for topic, _ in self._touched)
        if others and not self._unread:
            return
        if (self._touched or self._unread) and self._store.undispatched:
            self.advance()

    def advance(self) -> None:
        """Make readable what may be; never raises, a disk that refuses is tried again later."""
        try:
            self._store.keep_up()
            if self.failure is not None:
                log.warning("messages become readable again")
                self.failure = None
        except StoreError as error:
            if self.failure is None:
                log.error("messages do not become readable at the moment: %s", error)
            self.failure = error
        self._tell()

    def _tell(self) -> None:
        store = self._store
        end, position = store.appended_where, store.reput_from_offset
        foreign = store.append_count - self._own
        if foreign != self._foreign:
            self._foreign = foreign
            self._foreign_end = end
        if self._touched:
            self._unread.append((end, self._touched))
            self._touched = set()
        keys: set[QueueKey] | None = set().union(*(each for _, each in self._unread))
        while self._unread and self._unread[0][0] <= position:
            self._unread.popleft()
        if self._foreign_end >= 0:
            keys = None
            if position >= self._foreign_end:
                self._foreign_end = -1
        if self._eager > 0 and (keys is None or keys):
            self._on_arrival(keys)

    def tick(self) -> None:
        """Now and then: others than the loop may have written, or the disk takes again what it refused."""
        store = self._store
        told = not self._touched and not self._unread and self._foreign_end < 0 and self.failure is None
        others = store.append_count - self._own != self._foreign
        if not told or others or store.reput_from_offset < store.appended_where:
            self.advance()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
