"""Consuming messages by asking for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from penstock.client.group import GroupMember, Start
from penstock.client.processqueue import ProcessQueue
from penstock.client.pulling import PullResult, pull
from penstock.client.queue import MessageQueue
from penstock.client.received import ReceivedMessage
from penstock.client.settings import ClientSettings
from penstock.client.subscription import ALL, SQL92, Subscription
from penstock.errors import UsageError


class PullConsumer(GroupMember[ReceivedMessage]):
    """A member of a consumer group that asks for messages when it wants some. A context manager.

        async with PullConsumer("audit", "orders", start="earliest") as consumer:
            for message in await consumer.poll(timeout=5):
                print(message.body)

    A call of ``poll`` acknowledges what the call before it returned; without ``auto_commit`` only ``commit``
    does, for everything returned so far. ``assign`` takes queues by name instead of a share of the group's,
    and ``pull`` asks for one queue at one offset, whatever is assigned.
    """

    consume_type: ClassVar[str] = "CONSUME_ACTIVELY"

    def __init__(
        self,
        group: str,
        topics: str | Sequence[str] | Mapping[str, str] = (),
        *,
        tags: str = ALL,
        namesrv: str | Sequence[str] | None = None,
        settings: ClientSettings | None = None,
        broadcast: bool = False,
        start: Start = "latest",
        auto_commit: bool = True,
        instance_name: str | None = None,
        offsets_folder: str | Path | None = None,
    ) -> None:
        super().__init__(
            group,
            namesrv=namesrv,
            settings=settings,
            broadcast=broadcast,
            start=start,
            instance_name=instance_name,
            offsets_folder=offsets_folder,
        )
        named = [topics] if isinstance(topics, str) else topics
        pairs = named.items() if isinstance(named, Mapping) else ((topic, tags) for topic in named)
        self.subscriptions = {topic: Subscription(topic, expression) for topic, expression in pairs}
        self.auto_commit = auto_commit
        self._assigned: dict[MessageQueue, Subscription] = {}
        self._buffer: deque[ReceivedMessage] = deque()
        self._arrival = asyncio.Event()
        # Returned by a poll and not acknowledged yet: they hold the offset of their queue.
        self._returned: list[ReceivedMessage] = []

    # -- asking -------------------------------------------------------------------------------------------

    async def poll(self, timeout: float = 0.0, most: int = 32) -> list[ReceivedMessage]:
        """Up to ``most`` messages; waits ``timeout`` seconds for the first. Empty when none came."""
        self.instance.require_open()
        if most < 1:
            raise UsageError(f"a poll for {most} messages")
        if self.auto_commit:
            self._acknowledge()
        found: list[ReceivedMessage] = []
        try:
            async with asyncio.timeout(timeout):
                while not found:
                    self._arrival.clear()
                    while self._buffer and len(found) < most:
                        message = self._buffer.popleft()
                        if self._is_current(message):
                            found.append(message)
                    if not found:
                        self.instance.require_open()
                        await self._arrival.wait()
        except TimeoutError:
            pass
        self._returned += found
        return found

    async def commit(self) -> None:
        """Acknowledge everything that was returned, and wait until the offsets are kept."""
        self._acknowledge()
        await super().commit()

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        most: int = 32,
        tags: str = ALL,
        sql: str | None = None,
        wait: float = 0.0,
    ) -> PullResult:
        """Messages of one queue from an offset on; ``wait`` seconds for the first, if there is none yet.

        Those with some tags, or of which an SQL92 expression is true. Independent of what is assigned, and
        moves no offset.
        """
        if queue.broker_name not in self.instance.brokers:
            await self.instance.route(queue.topic)
        given = Subscription(queue.topic, tags) if sql is None else Subscription(queue.topic, sql, SQL92)
        return await pull(
            self.instance,
            self.group,
            queue,
            offset,
            given,
            most=most,
            hold=wait,
            with_subscription=True,
        )

    async def topic_queues(self, topic: str) -> list[MessageQueue]:
        """Every queue of a topic that can be read. Raises RouteNotFound."""
        return sorted((await self.instance.route(topic)).subscribe_queues)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's kept offset of a queue, or None."""
        await self.instance.route(queue.topic)
        return await self.offsets.read(queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first message that is still kept."""
        await self.instance.route(queue.topic)
        return await self.places.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Where the next message will be."""
        await self.instance.route(queue.topic)
        return await self.places.max_offset(queue)

    async def offset_by_time(self, queue: MessageQueue, milliseconds: int) -> int:
        """The first message stored at that time or later."""
        await self.instance.route(queue.topic)
        return await self.places.offset_by_time(queue, milliseconds)

    async def assign(self, queues: Iterable[MessageQueue], tags: str = ALL) -> None:
        """Read exactly these queues, whatever other members read. Not together with ``subscribe``."""
        if self.subscriptions:
            raise UsageError("a consumer that subscribes gets its queues from the group")
        self.instance.require_open()
        wanted = {queue: Subscription(queue.topic, tags) for queue in queues}
        for topic in {queue.topic for queue in wanted}:
            await self.instance.route(topic)
        async with self._assigning:
            self._assigned = wanted
            await self._release([held for queue, held in self.queues.items() if queue not in wanted])
            for queue in wanted:
                if queue not in self.queues and not await self._take(queue):
                    raise UsageError(f"{queue} can't be read now", hint="is its broker running?")

    # -- what the group says ------------------------------------------------------------------------------

    def wanted(self) -> dict[str, Subscription]:
        if self._assigned:
            return {queue.topic: wanted for queue, wanted in self._assigned.items()}
        return self.subscriptions

    async def _balance(self) -> float | None:
        return None if self._assigned else await super()._balance()

    def arrived(self, queue: ProcessQueue[ReceivedMessage], messages: list[ReceivedMessage]) -> None:
        self._buffer.extend(messages)
        self._arrival.set()

    def released(self, queue: ProcessQueue[ReceivedMessage]) -> None:
        mine = queue.queue
        self._buffer = deque(message for message in self._buffer if message.queue != mine)
        self._returned = [message for message in self._returned if message.queue != mine]

    async def close(self) -> None:
        """Leave the group. With ``auto_commit`` what the last poll returned counts as handled."""
        if self.auto_commit:
            self._acknowledge()
        self._arrival.set()
        await super().close()

    def _is_current(self, message: ReceivedMessage) -> bool:
        held = self.queues.get(message.queue)
        return held is not None and held.holds(message)

    def _acknowledge(self) -> None:
        for message in self._returned:
            held = self.queues.get(message.queue)
            if held is not None:
                held.settle(message)
        self._returned.clear()
