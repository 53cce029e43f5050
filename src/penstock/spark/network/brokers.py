"""A cluster as one process of Spark talks to it: one loop in a thread, one connection to each broker."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from penstock.client.admin import Admin
from penstock.client.errors import (
    BrokerNotFound,
    BrokerUnavailable,
    GroupNotExist,
    NoPermission,
    RouteNotFound,
    SystemBusy,
)
from penstock.client.loopthread import LoopThread
from penstock.client.offsets import BrokerOffsets
from penstock.client.packed import send_once
from penstock.client.pulling import PullAnswer, ask_records
from penstock.client.queue import MessageQueue
from penstock.client.queuechoice import writable
from penstock.client.records import group_offset, queue_units, records_by_key
from penstock.client.subscription import ALL, Subscription
from penstock.errors import ConnectionLost, RemotingError, RemotingTimeout
from penstock.spark.network.access import Access
from penstock.spark.network.queuename import key_of, queue_of
from penstock.spark.ranges import Extents, QueueKey
from penstock.spark.wanted import FOREVER

if TYPE_CHECKING:
    from penstock.spark.network.outbox import Parcel

log = logging.getLogger("penstock.spark")

T = TypeVar("T")

AT_ONCE = 64
"""Requests under way at once, where there is one for each queue or topic."""
_FEW = 32
"""What every broker gives at once."""
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_AWAY = (ConnectionLost, RemotingTimeout, SystemBusy, BrokerUnavailable, BrokerNotFound)


class Brokers:
    """Asks the brokers of a cluster. What they do not answer is asked again, for as long as the access says.

    ``run`` waits for one of the coroutines; these belong to the loop of this object.
    """

    _known: ClassVar[dict[tuple[int, Access], Brokers]] = {}

    def __init__(self, access: Access) -> None:
        self.access = access
        self._thread = LoopThread("penstock-spark-client")
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._reached = False
        self._admin = self.run(self._start())

    @classmethod
    def of(cls, access: Access) -> Brokers:
        """The one of this process: tasks that follow each other find their connections open."""
        key = (os.getpid(), access)
        if key not in cls._known:
            cls._known[key] = cls(access)
        return cls._known[key]

    async def _start(self) -> Admin:
        admin = Admin(self.access.namesrv, settings=self.access.settings)
        return await admin.__aenter__()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._thread.loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine of this object."""
        return self._thread.run(work)

    def close(self) -> None:
        """Close the connections. Who asked ``of`` for it asks again afterwards."""
        for key in [key for key, brokers in self._known.items() if brokers is self]:
            del self._known[key]
        self.run(self._admin.__aexit__(None, None, None))
        self._thread.stop()

    # -- what there is -----------------------------------------------------------------------------

    async def topic_names(self) -> list[str]:
        """Every topic of the cluster, those of the system included."""
        return await self._patiently(self._admin.topics)

    async def extents(self, topics: Iterable[str]) -> Extents:
        """First offset and end of every queue of these topics; a topic that nobody serves has none."""
        found: Extents = {}
        for states in await _together(self._topic_extents(topic) for topic in topics):
            found.update(states)
        return found

    async def _topic_extents(self, topic: str) -> Extents:
        async def ask() -> Extents:
            route = await self._admin.instance.ask_route(topic)
            try:
                states = await self._admin.topic_state(topic)
            except NoPermission:
                # An account that may only consume is told about each queue.
                places, queues = self._admin.places, route.subscribe_queues
                lows = await _together(places.min_offset(queue) for queue in queues)
                highs = await _together(places.max_offset(queue) for queue in queues)
                found = zip(queues, lows, highs, strict=True)
                return {key_of(queue): (max(0, low), high) for queue, low, high in found}
            return {key_of(state.queue): (max(0, state.min_offset), state.max_offset) for state in states}

        try:
            return await self._patiently(ask)
        except RouteNotFound:
            return {}

    async def offsets_by_time(self, times: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """For each queue the first offset stored at its time or later; the end if there is none."""

        def ask(when: int) -> Callable[[MessageQueue], Awaitable[int]]:
            return lambda queue: self._admin.places.offset_by_time(queue, when)

        found = await _together(self._of_queue(queue_of(key), ask(when)) for key, when in times.items())
        return dict(zip(times, found, strict=True))

    async def group_offsets(self, group: str, keys: Iterable[QueueKey]) -> dict[QueueKey, int]:
        """Where a group is, -1 where it never was."""
        keys = list(keys)
        found = await _together(
            self._of_queue(queue_of(key), lambda queue: group_offset(self._admin.instance, group, queue))
            for key in keys
        )
        return {key: -1 if place is None else place for key, place in zip(keys, found, strict=True)}

    async def group_names(self, topics: Iterable[str]) -> list[str]:
        """Groups that read these topics, or did."""
        found = await _together(self._admin.topic_groups(topic) for topic in topics)
        return sorted({name for names in found for name in names})

    async def commit(self, group: str, places: Mapping[QueueKey, int]) -> None:
        """Make these the offsets of a group; kept by the brokers on return."""
        offsets = BrokerOffsets(self._admin.instance, group)

        def write(place: int) -> Callable[[MessageQueue], Awaitable[None]]:
            async def one(queue: MessageQueue) -> None:
                try:
                    await offsets.write({queue: place}, wait=True)
                except GroupNotExist:
                    # Brokers that make groups by themselves do it when one first pulls.
                    await self.pull(queue, place, 1, group=group)
                    await offsets.write({queue: place}, wait=True)

            return one

        await _together(self._of_queue(queue_of(key), write(place)) for key, place in places.items())

    # -- messages ----------------------------------------------------------------------------------

    async def pull(
        self, queue: MessageQueue, offset: int, most: int, tags: str = ALL, *, group: str | None = None
    ) -> PullAnswer:
        """Records of a queue from an offset on."""
        wanted = self._subscriptions.get((queue.topic, tags))
        if wanted is None:
            wanted = self._subscriptions[queue.topic, tags] = Subscription(queue.topic, tags)
        instance, reading = self._admin.instance, group or self.access.group
        return await self._of_queue(
            queue,
            lambda queue: ask_records(
                instance,
                reading,
                queue,
                offset,
                wanted,
                most=most,
                hold=0.0,
                with_subscription=True,
                bulk=most > _FEW,
            ),
        )

    async def units(self, queue: MessageQueue, offset: int, count: int) -> list[tuple[int, int, int]]:
        """Queue offset, place in the log and size of messages; size 0 where there is none."""
        instance = self._admin.instance
        return await self._of_queue(
            queue, lambda queue: queue_units(instance, self.access.group, queue, offset, count)
        )

    async def by_key(self, broker: str, topic: str, key: str, *, begin: int, end: int) -> bytes | memoryview:
        """Records of one broker with the hash of a key, the newest that were stored between two times."""
        instance = self._admin.instance
        return await self._of_queue(
            MessageQueue(topic, broker, 0),
            lambda queue: records_by_key(instance, broker, topic, key, begin=begin, end=end),
        )

    # -- sending -----------------------------------------------------------------------------------

    async def publish_queues(self, topic: str, default_queues: int) -> tuple[MessageQueue, ...]:
        """Queues that take messages. A topic that is not there yet will be made by the first of them."""
        servers = self._admin.instance.name_servers

        async def ask() -> tuple[MessageQueue, ...]:
            route = await servers.route_for_publishing(topic, default_queues)
            self._admin.instance.learn(route)
            return writable(route)

        return await self._patiently(ask)

    async def look_again(self, topic: str) -> None:
        """Ask where the brokers of a topic are now."""
        route = await self._admin.instance.name_servers.route_for_publishing(topic, 1)
        self._admin.instance.learn(route)

    async def send_once(self, group: str, parcel: Parcel, data: bytes, default_queues: int) -> None:
        """One attempt, of which nobody may know the end."""
        code = await send_once(
            self._admin.instance,
            group,
            parcel.queue,
            data,
            properties=parcel.properties,
            flag=parcel.flag,
            sys_flag=parcel.sys_flag,
            born=parcel.born,
            default_queues=default_queues,
        )
        if code:
            log.warning("%s stored a message with status %d", parcel.queue.broker_name, code)

    async def have_keys(self, queue: MessageQueue, keys: Iterable[str]) -> set[str]:
        """Which of some unique keys the queue's broker has messages of."""
        keys = list(keys)
        found = await _together(
            self.by_key(queue.broker_name, queue.topic, key, begin=0, end=FOREVER) for key in keys
        )
        marks = (f"UNIQ_KEY\x01{key}".encode() for key in keys)
        return {key for key, mark, body in zip(keys, marks, found, strict=True) if mark in bytes(body)}

    # -- patience ----------------------------------------------------------------------------------

    async def _of_queue(self, queue: MessageQueue, work: Callable[[MessageQueue], Awaitable[T]]) -> T:
        """The answer of a queue's broker. It served the queue a moment ago: that it is in no route now means
        that it is starting again."""
        instance = self._admin.instance

        async def ask() -> T:
            if queue.broker_name not in instance.brokers:
                await instance.ask_route(queue.topic)
            return await work(queue)

        async def look_again() -> None:
            await instance.ask_route(queue.topic)

        return await self._patiently(ask, look_again, also=(RouteNotFound,))

    async def _patiently(
        self,
        ask: Callable[[], Awaitable[T]],
        before_next: Callable[[], Awaitable[None]] | None = None,
        *,
        also: tuple[type[RemotingError], ...] = (),
    ) -> T:
        away: tuple[type[RemotingError], ...] = (*_AWAY, *also)
        loop = asyncio.get_running_loop()
        # An address that never answered is more likely wrong than being restarted.
        patience = self.access.retry_timeout if self._reached else self.access.request_timeout
        deadline = loop.time() + patience
        pause = _FIRST_PAUSE
        while True:
            try:
                answer = await ask()
            except away as error:
                if loop.time() + pause > deadline:
                    error.message += f"; {self.access} was asked for {patience:g} s"
                    raise
                log.info("%s; asked again in %.2f s", error, pause)
            else:
                self._reached = True
                return answer
            # Many wait for the same broker: not all at once when it is back.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)
            if before_next is not None:
                try:
                    await before_next()
                except RemotingError as error:
                    log.debug("no new route: %s", error)


async def _together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in their order, ``AT_ONCE`` under way."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(coroutine: Coroutine[Any, Any, T]) -> T:
        async with turn:
            return await coroutine

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(coroutine)) for coroutine in work]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
