"""Parcels of messages on their way to brokers: each queue's in order, the queues at the same time."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType

from penstock.client.errors import BrokerNotFound, BrokerUnavailable, RouteNotFound, SystemBusy
from penstock.client.queue import MessageQueue
from penstock.errors import ConnectionLost, RemotingError, RemotingTimeout
from penstock.spark.network.access import Access
from penstock.spark.network.brokers import Brokers

log = logging.getLogger("penstock.spark")

IN_FLIGHT = 8 << 20
"""Bytes that wait or are under way; who sends waits for room."""
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_LOOK = 5.0
_REFUSED = (SystemBusy, BrokerUnavailable, BrokerNotFound, RouteNotFound)
"""Nothing was stored, and a moment later it may be."""
_UNKNOWN = (ConnectionLost, RemotingTimeout)
"""It may be stored or not."""


@dataclass
class Parcel:
    """One request: blocks of a batch, or with ``properties`` the body of one message."""

    queue: MessageQueue
    born: int | None = None
    properties: str | None = None
    flag: int = 0
    sys_flag: int = 0
    keys: list[str | None] = field(default_factory=list)
    blocks: list[bytes] = field(default_factory=list)
    size: int = 0
    doubtful: bool = False
    """Whether some of it may be stored already."""

    def add(self, key: str | None, data: bytes) -> None:
        """One message; ``key`` is a unique key by which it can be found, if it has one."""
        self.keys.append(key)
        self.blocks.append(data)
        self.size += len(data)


class Outbox:
    """Sends parcels from a thread of its own. ``finish`` waits until all are stored; a context manager."""

    def __init__(self, access: Access, group: str, default_queues: int) -> None:
        self._brokers = Brokers.of(access)
        self._group = group
        self._default_queues = default_queues
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
        self._waiting: dict[MessageQueue, deque[Parcel]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = threading.Condition()
        self._pending = 0
        self._bytes = 0
        self._error: BaseException | None = None
        self.sent = 0
        self.skipped = 0
        self.doubtful = False
        """Ask for the keys of everything before it is sent."""

    def __enter__(self) -> Outbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._brokers.loop.call_soon_threadsafe(self._cancel)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that take messages, also of one that the first of them will make."""
        if topic not in self._queues:
            self._queues[topic] = self._brokers.run(self._brokers.publish_queues(topic, self._default_queues))
        return self._queues[topic]

    def put(self, parcel: Parcel) -> None:
        """Have it sent behind the others of its queue. Waits for room; raises what another failed with."""
        parcel.doubtful = parcel.doubtful or self.doubtful
        with self._changed:
            while self._bytes > IN_FLIGHT and self._error is None:
                self._changed.wait(_LOOK)
            self._raise()
            self._pending += 1
            self._bytes += parcel.size
        self._brokers.loop.call_soon_threadsafe(self._accept, parcel)

    def finish(self) -> None:
        """Wait until everything is stored; raises when something is not."""
        with self._changed:
            while self._pending and self._error is None:
                self._changed.wait(_LOOK)
            self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    # -- on the loop -------------------------------------------------------------------------------

    def _accept(self, parcel: Parcel) -> None:
        waiting = self._waiting.setdefault(parcel.queue, deque())
        waiting.append(parcel)
        if len(waiting) == 1:
            task = self._brokers.loop.create_task(self._send_all(waiting))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _send_all(self, waiting: deque[Parcel]) -> None:
        try:
            while waiting:
                parcel = waiting[0]
                await self._send(parcel)
                waiting.popleft()
                with self._changed:
                    self._pending -= 1
                    self._bytes -= parcel.size
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _send(self, parcel: Parcel) -> None:
        """Until it is stored, or for as long as the access has patience."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._brokers.access.retry_timeout
        pause = _FIRST_PAUSE
        while True:
            wanted = list(range(len(parcel.keys)))
            try:
                if parcel.doubtful:
                    wanted = await self._missing(parcel)
                if wanted:
                    data = b"".join(parcel.blocks[number] for number in wanted)
                    await self._brokers.send_once(self._group, parcel, data, self._default_queues)
            except (*_REFUSED, *_UNKNOWN) as error:
                if isinstance(error, _UNKNOWN):
                    parcel.doubtful = True
                if loop.time() + pause > deadline:
                    raise
                log.info("a send to %s: %s; again in %.2f s", parcel.queue, error, pause)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE)
                try:
                    await self._brokers.look_again(parcel.queue.topic)
                except RemotingError:
                    continue
            else:
                self.sent += len(wanted)
                self.skipped += len(parcel.keys) - len(wanted)
                return

    async def _missing(self, parcel: Parcel) -> list[int]:
        """Numbers of the messages that their broker does not have. One without a key of ours is sent."""
        queue = parcel.queue
        stored = await self._brokers.have_keys(queue, [key for key in parcel.keys if key is not None])
        return [number for number, key in enumerate(parcel.keys) if key is None or key not in stored]
