"""Iterating over a topic: with or without a group that remembers how far it came."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

from penstock._native.stored import StoredMessage

BATCH = 32


class Followed(Protocol):
    """What an iterator needs of a store."""

    @property
    def closed(self) -> bool: ...
    @property
    def arrived(self) -> Any: ...
    @property
    def consumer_offsets(self) -> Any: ...
    def queues(self) -> list[tuple[str, int]]: ...
    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def max_offset(self, topic: str, queue_id: int) -> int: ...
    def get(self, topic: str, queue_id: int, offset: int, count: int = 32) -> Any: ...


class Follower(Iterator[StoredMessage]):
    """Messages of a topic in queue order, the queues taking turns."""

    def __init__(
        self,
        store: Followed,
        topic: str,
        queue_id: int | None,
        offset: int | str,
        *,
        wait: bool,
        timeout: float | None,
    ) -> None:
        if isinstance(offset, str) and offset not in ("earliest", "latest"):
            raise ValueError(f"an offset is a number, 'earliest' or 'latest', not {offset!r}")
        self._store = store
        self._topic = topic
        self._only = queue_id
        self._start = offset
        self._wait = wait
        self._timeout = timeout
        self._next: dict[int, int] = {}
        self._ready: deque[StoredMessage] = deque()
        self._latest = (
            {q: store.max_offset(topic, q) for q in self._queue_ids()} if offset == "latest" else {}
        )
        for queue in self._queue_ids():
            self._position(queue)

    def __iter__(self) -> Follower:
        return self

    def __next__(self) -> StoredMessage:
        while not self._ready:
            ticket = self._store.arrived.ticket()
            waited = False
            try:
                if self._fetch():
                    break
                if not self._wait or self._store.closed:
                    raise StopIteration
                waited = True
                self._sleep(ticket)
            finally:
                if not waited:
                    self._store.arrived.drop()
        return self._ready.popleft()

    def _sleep(self, ticket: int) -> None:
        """Wait for an arrival; StopIteration when that takes longer than the timeout."""
        if self._timeout is None:
            self._store.arrived.wait(ticket, 1.0)
            return
        until = time.monotonic() + self._timeout
        self._store.arrived.wait(ticket, self._timeout)
        while not self._fetch():
            left = until - time.monotonic()
            if left <= 0 or self._store.closed:
                raise StopIteration
            ticket = self._store.arrived.ticket()
            self._store.arrived.wait(ticket, min(left, 0.05))

    def _queue_ids(self) -> list[int]:
        if self._only is not None:
            return [self._only]
        return [queue for topic, queue in self._store.queues() if topic == self._topic]

    def _position(self, queue_id: int) -> int:
        """Where this queue is read next; a queue that is new is read from its start."""
        if queue_id not in self._next:
            self._next[queue_id] = self._first(queue_id)
        return self._next[queue_id]

    def _first(self, queue_id: int) -> int:
        if isinstance(self._start, int):
            return self._start
        if self._start == "latest":
            return self._latest.get(queue_id, 0)
        return self._store.min_offset(self._topic, queue_id)

    def _fetch(self) -> bool:
        found = False
        for queue_id in self._queue_ids():
            offset = self._position(queue_id)
            while offset < self._store.max_offset(self._topic, queue_id):
                result = self._store.get(self._topic, queue_id, offset, BATCH)
                self._ready.extend(result.messages)
                if result.next_begin_offset == offset and not len(result):
                    break
                offset = self._next[queue_id] = result.next_begin_offset
                if len(result):
                    found = True
                    break
        return found


class GroupReader(Follower):
    """A follower whose group remembers: asking for the next message acknowledges the one before.

    At least once: what was handed out and not acknowledged comes again after a restart. ``commit``
    acknowledges at once;
    closing acknowledges nothing.
    """

    def __init__(
        self,
        store: Followed,
        topic: str,
        group: str,
        *,
        wait: bool,
        timeout: float | None,
        start: str = "earliest",
    ) -> None:
        self._group = group
        self._current: StoredMessage | None = None
        super().__init__(store, topic, None, start, wait=wait, timeout=timeout)

    def _first(self, queue_id: int) -> int:
        known = int(self._store.consumer_offsets.query(self._group, self._topic, queue_id))
        if known < 0:
            return super()._first(queue_id)
        # Retention may have passed by, or the log was cut: the nearest offset that exists.
        low, high = (
            self._store.min_offset(self._topic, queue_id),
            self._store.max_offset(self._topic, queue_id),
        )
        return max(low, min(known, high))

    def __next__(self) -> StoredMessage:
        self.commit()
        self._current = super().__next__()
        return self._current

    def commit(self) -> None:
        """Acknowledge the message that was handed out last."""
        message, self._current = self._current, None
        if message is not None:
            self._store.consumer_offsets.commit(
                self._group, self._topic, message.queue_id, message.queue_offset + 1
            )

    def __enter__(self) -> GroupReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._current = None
