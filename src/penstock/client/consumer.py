"""Consuming messages as they come: an async iterator, or a function called for each."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from penstock.client.delivery import Delivery
from penstock.client.group import GroupMember, Start
from penstock.client.processqueue import ProcessQueue
from penstock.client.received import ReceivedMessage
from penstock.client.sendback import SendBack
from penstock.client.settings import ClientSettings
from penstock.client.subscription import ALL, Subscription
from penstock.errors import PenstockError, UsageError
from penstock.message.topic import RETRY_TOPIC_PREFIX

log = logging.getLogger("penstock.client")

_AGAIN_AFTER = 5.0

Listener = Callable[[Delivery], Awaitable[object] | object]


class Consumer(GroupMember[Delivery]):
    """A member of a consumer group that gets its messages brought. A context manager.

        async with Consumer("kitchen", "orders", namesrv="127.0.0.1:9876") as consumer:
            async for message in consumer:
                async with message:            # leaving acknowledges, an exception means: again later
                    print(message.body)

    ``run`` calls a function instead. Delivery is at least once. The members of a group share the queues of a
    topic; with ``broadcast`` each reads all of them and nothing is tried again. ``orderly`` hands out one
    message of a queue at a time, in order: a failed one is tried again before its successors.
    """

    kind: ClassVar[type[ReceivedMessage]] = Delivery

    def __init__(
        self,
        group: str,
        topics: str | Sequence[str] | Mapping[str, str] = (),
        *,
        tags: str = ALL,
        namesrv: str | Sequence[str] | None = None,
        settings: ClientSettings | None = None,
        broadcast: bool = False,
        orderly: bool = False,
        start: Start = "latest",
        max_reconsume_times: int | None = None,
        instance_name: str | None = None,
        offsets_folder: str | Path | None = None,
    ) -> None:
        """``topics``: a name, several, or a map of names to tags; ``tags`` for those without their own.

        ``start`` is where a group begins that was never here: "latest", "earliest" or a time. Without
        ``max_reconsume_times`` a message is tried 16 times after the first; an orderly one without end.
        """
        super().__init__(
            group,
            namesrv=namesrv,
            settings=settings,
            broadcast=broadcast,
            orderly=orderly,
            start=start,
            instance_name=instance_name,
            offsets_folder=offsets_folder,
        )
        named = [topics] if isinstance(topics, str) else topics
        pairs = named.items() if isinstance(named, Mapping) else ((topic, tags) for topic in named)
        self.subscriptions = {topic: Subscription(topic, expression) for topic, expression in pairs}
        self.max_reconsume_times = max_reconsume_times
        self._retries = Subscription(f"{RETRY_TOPIC_PREFIX}{group}")
        self._back = SendBack(self)
        self._ready: deque[Delivery] = deque()
        self._turns: deque[ProcessQueue[Delivery]] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closing = False

    # -- taking messages ----------------------------------------------------------------------------------

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Delivery:
        """The next message; the end when the consumer is closed. Many tasks may iterate at once."""
        while not self._closing:
            message = self._next_in_turn() if self.orderly else self._next_ready()
            if message is not None:
                message.taken_at = asyncio.get_running_loop().time()
                return message
            self.instance.require_open()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled():
                    self._wake(1)  # it was our turn: somebody else takes it
                raise
        raise StopAsyncIteration

    async def run(self, listener: Listener, *, concurrency: int = 20) -> None:
        """Call a function for each message until the consumer is closed or this task is cancelled.

        An async function runs on the loop, ``concurrency`` at a time; a plain one in threads. Returning
        acknowledges, raising means: again later.
        """
        if concurrency < 1:
            raise UsageError(f"a concurrency of {concurrency}")
        loop = asyncio.get_running_loop()
        in_threads = not inspect.iscoroutinefunction(listener)
        pool = ThreadPoolExecutor(concurrency, "penstock-listener") if in_threads else None

        async def work() -> None:
            async for message in self:
                async with message:
                    found = await loop.run_in_executor(pool, listener, message) if pool else listener(message)
                    if inspect.isawaitable(found):
                        await found

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work())
        finally:
            if pool is not None:
                pool.shutdown(wait=False)

    async def close(self) -> None:
        """Stop handing out, wait (``close_timeout`` at most) for what is being handled, leave the group."""
        if self._closing:
            return
        self._closing = True
        self._wake(len(self._waiters))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.close_timeout
        while loop.time() < deadline and self._in_hand():
            await asyncio.sleep(0.005)
        await super().close()

    def _in_hand(self) -> bool:
        """Whether a block is open whose message is not settled."""
        return any(message.entered for held in self.queues.values() for message in held.messages())

    def _next_ready(self) -> Delivery | None:
        ready = self._ready
        while ready:
            message = ready.popleft()
            assert message.home is not None
            if not message.home.dropped:
                return message
        return None

    def _next_in_turn(self) -> Delivery | None:
        now = asyncio.get_running_loop().time()
        while self._turns:
            held = self._turns.popleft()
            held.queued = False
            if held.dropped or held.busy is not None:
                continue
            if not self.broadcast and held.locked_until <= now:
                continue  # the lock ran out: its renewal gives the queue its turn again
            message = held.first
            if message is not None:
                held.busy = message
                return message
        return None

    # -- what the group says ------------------------------------------------------------------------------

    def wanted(self) -> dict[str, Subscription]:
        if self.broadcast:
            return self.subscriptions
        return {**self.subscriptions, self._retries.topic: self._retries}

    def arrived(self, queue: ProcessQueue[Delivery], messages: list[Delivery]) -> None:
        for message in messages:
            message.consumer = self
            message.home = queue
        if self.orderly:
            self._give_turn(queue)
        else:
            self._ready.extend(messages)
            self._wake(len(messages))

    async def _keep_offsets(self) -> None:
        if not self.orderly and not self.broadcast:
            self._send_back_stuck()
        await super()._keep_offsets()

    def _send_back_stuck(self) -> None:
        """Who holds a message for too long holds up the offset of its queue."""
        limit = asyncio.get_running_loop().time() - self.settings.consume_timeout
        for held in list(self.queues.values()):
            first = held.first
            if first is not None and not first.settled and 0 < first.taken_at < limit:
                log.warning("%s was not settled for %g s", first, self.settings.consume_timeout)
                first.settled = True
                self.spawn(self.try_later(first, 0))

    # -- settling -----------------------------------------------------------------------------------------

    def acknowledge(self, message: Delivery) -> None:
        """This message is done with."""
        held = message.home
        assert held is not None
        held.settle(message)
        if self.orderly:
            held.busy = None
            if held.dropped:
                self.spawn(self._hand_over(held))
            else:
                self._give_turn(held)

    def failed(self, message: Delivery, error: Exception) -> None:
        """Handling it raised."""
        log.warning("handling %s failed, try %d", message, message.reconsume_times + 1, exc_info=error)

    async def try_later(self, message: Delivery, delay_level: int) -> None:
        """Have a message tried again: by the group after a while, or here before its successors."""
        held = message.home
        assert held is not None
        if self.broadcast:
            self.acknowledge(message)
        elif self.orderly and not self._exhausted(message):
            held.busy = None
            message.local_tries += 1
            message.settled = message.entered = False
            message.taken_at = 0.0
            if held.dropped:
                await self._hand_over(held)
            else:
                asyncio.get_running_loop().call_later(self.settings.suspend_queue, self._give_turn, held)
        else:
            level = -1 if self.orderly else delay_level
            while not held.dropped:
                try:
                    await self._back.send(message, level)
                    break
                except PenstockError as error:
                    log.warning("%s can't be sent back: %s; again in %g s", message, error, _AGAIN_AFTER)
                    await asyncio.sleep(_AGAIN_AFTER)
            self.acknowledge(message)

    def _exhausted(self, message: Delivery) -> bool:
        most = self.max_reconsume_times
        return most is not None and message.reconsume_times >= most

    async def _hand_over(self, held: ProcessQueue[Delivery]) -> None:
        """A queue went to another member while one of its messages was handled here: now it may have it."""
        if held.queue in self.queues or self.broadcast:
            return
        await self.offsets.write({held.queue: held.commit_offset}, wait=True)
        await self.locks.unlock([held.queue])

    def _give_turn(self, held: ProcessQueue[Delivery]) -> None:
        if not held.dropped and held.busy is None and not held.queued and len(held):
            held.queued = True
            self._turns.append(held)
            self._wake(1)

    def _wake(self, count: int) -> None:
        waiters = self._waiters
        while count > 0 and waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1
