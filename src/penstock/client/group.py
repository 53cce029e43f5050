"""A member of a consumer group: its queues come and go with the other members (protocol section 7)."""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from penstock.client.allocation import allocate_averagely
from penstock.client.errors import BrokerError, RouteNotFound
from penstock.client.filtercheck import check_filters
from penstock.client.groupanswers import answers
from penstock.client.instance import ClientInstance
from penstock.client.offsets import BrokerOffsets, FileOffsets, Offsets
from penstock.client.periodic import Periodic
from penstock.client.processqueue import ProcessQueue
from penstock.client.pulling import PullStatus, pull
from penstock.client.queue import MessageQueue
from penstock.client.queuelocks import QueueLocks
from penstock.client.queueplaces import QueuePlaces
from penstock.client.received import ReceivedMessage
from penstock.client.route import TopicRoute
from penstock.client.settings import ClientSettings
from penstock.client.subscription import ALL, TAG, Subscription
from penstock.client.wirejson import decode_any
from penstock.errors import PenstockError, UsageError
from penstock.message import validate_topic
from penstock.message.topic import GROUP_MAX_LENGTH, is_retry_topic
from penstock.remoting import RequestCode, ResponseCode

log = logging.getLogger("penstock.client")

M = TypeVar("M", bound=ReceivedMessage)
Start = str | datetime | int

# The broker has not heard of us, or not of our newest subscription: tell it again.
_UNKNOWN_TO_BROKER = (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST)
_MOST_BACK_OFF = 3.0


class GroupMember(ABC, Generic[M]):
    """What consumers have in common: subscriptions, a share of the queues, a pull for each, kept offsets.

    A subclass says what happens with messages: ``arrived`` takes what a pull brought, ``released`` hears that
    a queue went to somebody else.
    """

    consume_type: ClassVar[str] = "CONSUME_PASSIVELY"
    kind: ClassVar[type[ReceivedMessage]] = ReceivedMessage

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | Sequence[str] | None = None,
        settings: ClientSettings | None = None,
        broadcast: bool = False,
        orderly: bool = False,
        start: Start = "latest",
        instance_name: str | None = None,
        offsets_folder: str | Path | None = None,
    ) -> None:
        if (reason := validate_topic(group)) or len(group) > GROUP_MAX_LENGTH:
            said = reason.replace("topic", "group") if reason else f"it is longer than {GROUP_MAX_LENGTH}"
            raise UsageError(f"no group can be called {group!r}: {said}")
        if isinstance(start, str) and start not in ("latest", "earliest"):
            raise UsageError(f"start is 'latest', 'earliest' or a time, not {start!r}")
        self.group = group
        self.broadcast = broadcast
        self.orderly = orderly
        self.settings = settings or ClientSettings()
        self.subscriptions: dict[str, Subscription] = {}
        self.queues: dict[MessageQueue, ProcessQueue[M]] = {}
        self._start_at = start
        names = namesrv if namesrv is None or isinstance(namesrv, str) else list(namesrv)
        self.instance = ClientInstance(
            names,
            self.settings,
            # Offsets of a broadcasting member are kept under its name, which must be the same next time.
            instance_name=instance_name or ("DEFAULT" if broadcast else None),
            handlers=answers(self),
            on_route=lambda _: self.rebalance_soon(),
        )
        self.places = QueuePlaces(self.instance)
        self.locks = QueueLocks(self.instance, group)
        self.offsets: Offsets = BrokerOffsets(self.instance, group)
        if broadcast:
            folder = Path(offsets_folder) if offsets_folder else Path.home() / ".rocketmq_offsets"
            self.offsets = FileOffsets(folder / self.instance.client_id / group)
        self._tasks: set[asyncio.Task[None]] = set()
        self._periodic: list[Periodic] = []
        self._rebalance: Periodic | None = None
        self._assigning = asyncio.Lock()

    # -- life ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group. Messages come as soon as the first queues are ours.

        Raises what a broker says against an SQL filter; the consumer is closed then.
        """
        await self.instance.start(self)
        try:
            await check_filters(self.instance, self.group, self.subscriptions.values())
        except PenstockError:
            await self.instance.close()
            raise
        settings = self.settings
        self._rebalance = Periodic("rebalance", settings.rebalance_interval, self._balance)
        self._periodic = [
            self._rebalance,
            Periodic("commit", settings.commit_interval, self._keep_offsets, delay=settings.commit_interval),
        ]
        if self.orderly and not self.broadcast:
            self._periodic.append(
                Periodic("locks", settings.lock_interval, self._renew_locks, delay=settings.lock_interval)
            )

    async def close(self) -> None:
        """Leave the group: no more pulls, offsets are kept, locks given back, the others take over."""
        if self.instance.closed:
            return
        for periodic in self._periodic:
            await periodic.stop()
        held = list(self.queues.values())
        for queue in held:
            queue.drop()
        await asyncio.gather(
            *(queue.pull_task for queue in held if queue.pull_task is not None), return_exceptions=True
        )
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.instance.started:
            try:
                async with asyncio.timeout(self.settings.close_timeout):
                    await self.offsets.write(self._offsets(held), wait=True)
                    if self.orderly and not self.broadcast:
                        await self.locks.unlock([queue.queue for queue in held])
            except (PenstockError, TimeoutError) as error:
                log.warning("leaving group %s: offsets were not all kept: %s", self.group, error)
        self.queues.clear()
        await self.instance.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- subscriptions ------------------------------------------------------------------------------------

    async def subscribe(self, topic: str, tags: str = ALL, *, sql: str | None = None) -> None:
        """Read a topic: all of it, some tags (``"a || b"``), or what an SQL92 expression says.

        Before the start or at any time after it. All members of a group must subscribe to the same.
        """
        if reason := validate_topic(topic):
            raise UsageError(reason)
        given = Subscription(topic, tags) if sql is None else Subscription(topic, sql, "SQL92")
        if self.instance.started:
            self.instance.require_open()
            await check_filters(self.instance, self.group, [given])
        self.subscriptions[topic] = given
        if self.instance.started:
            await self.instance.heartbeat()
            self.rebalance_soon()

    async def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        if self.subscriptions.pop(topic, None) is None:
            return
        async with self._assigning:
            await self._release([queue for queue in self.queues.values() if queue.queue.topic == topic])
        self.instance.forget_routes([topic])
        if self.instance.started:
            await self.instance.heartbeat()

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now, retries included."""
        return sorted(self.queues)

    async def wait_assigned(self, timeout: float | None = None) -> list[MessageQueue]:
        """Wait until at least one queue of a subscribed topic is ours. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while not any(not is_retry_topic(queue.topic) for queue in self.queues):
                self.instance.require_open()
                await asyncio.sleep(0.005)
        return self.assignment

    # -- places -------------------------------------------------------------------------------------------

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at another offset of a queue that is ours. What was pulled and not settled counts no more."""
        if offset < 0:
            raise UsageError(f"an offset of {offset}")
        async with self._assigning:
            held = self.queues.get(queue)
            if held is None:
                raise UsageError(f"{queue} is not ours now", hint="`assignment` says what is")
            await self._move(held, offset)

    async def seek_to_time(self, when: datetime | int, topic: str | None = None) -> None:
        """Go on at the first message stored then or later, in all our queues. A number is milliseconds."""
        moment = int(when.timestamp() * 1000) if isinstance(when, datetime) else when
        for queue in [queue for queue in self.assignment if topic in (None, queue.topic)]:
            if topic is not None or not is_retry_topic(queue.topic):
                await self.seek(queue, await self.places.offset_by_time(queue, moment))

    async def seek_to_beginning(self, topic: str | None = None) -> None:
        """Go on at the first message that is still kept, in all our queues."""
        for queue in [queue for queue in self.assignment if topic in (None, queue.topic)]:
            if topic is not None or not is_retry_topic(queue.topic):
                await self.seek(queue, await self.places.min_offset(queue))

    async def seek_to_end(self, topic: str | None = None) -> None:
        """Skip everything that is there now, in all our queues."""
        for queue in [queue for queue in self.assignment if topic in (None, queue.topic)]:
            if topic is not None or not is_retry_topic(queue.topic):
                await self.seek(queue, await self.places.max_offset(queue))

    async def commit(self) -> None:
        """Keep the offsets now, and wait until they are kept; else it happens every ``commit_interval``."""
        await self.offsets.write(self._offsets(self.queues.values()), wait=True)

    async def _move(self, held: ProcessQueue[M], offset: int) -> None:
        held.drop()
        self.released(held)
        fresh: ProcessQueue[M] = ProcessQueue(held.queue, offset, self.settings)
        fresh.locked_until = held.locked_until
        self.queues[held.queue] = fresh
        self._start_pulling(fresh)
        # Last, as it may fail: the queue is read from its new place in any case, and its offset kept later.
        await self.offsets.write({held.queue: offset}, wait=True)

    # -- what a subclass says -----------------------------------------------------------------------------

    @abstractmethod
    def arrived(self, queue: ProcessQueue[M], messages: list[M]) -> None:
        """A pull brought messages; ``queue`` has them already."""

    def released(self, queue: ProcessQueue[M]) -> None:
        """A queue is not ours any more; it is dropped already."""

    def wanted(self) -> dict[str, Subscription]:
        """Every topic to read, also those that nobody named."""
        return self.subscriptions

    def commit_offset(self, queue: ProcessQueue[M]) -> int:
        """What to keep as the group's place in a queue."""
        return queue.commit_offset

    # -- heartbeats ---------------------------------------------------------------------------------------

    def producer_data(self) -> list[dict[str, Any]]:
        return []

    def consumer_data(self) -> list[dict[str, Any]]:
        where = {"latest": "CONSUME_FROM_LAST_OFFSET", "earliest": "CONSUME_FROM_FIRST_OFFSET"}
        return [
            {
                "consumeFromWhere": where.get(str(self._start_at), "CONSUME_FROM_TIMESTAMP"),
                "consumeType": self.consume_type,
                "groupName": self.group,
                "messageModel": "BROADCASTING" if self.broadcast else "CLUSTERING",
                "subscriptionDataSet": [wanted.as_json() for wanted in self.wanted().values()],
                "unitMode": False,
            }
        ]

    def unregistrations(self) -> Iterable[dict[str, str]]:
        return [{"consumerGroup": self.group}]

    # -- rebalance ----------------------------------------------------------------------------------------

    def rebalance_soon(self) -> None:
        """The members, the routes or the subscriptions changed."""
        if self._rebalance is not None:
            self._rebalance.wake()

    async def _balance(self) -> float | None:
        """Take our share of every topic. Returns a shorter pause when that did not work out yet."""
        pause: float | None = None
        settings = self.settings
        for topic in list(self.wanted()):
            try:
                route = await self.instance.route(topic)
                complete = await self._balance_topic(topic, route)
            except RouteNotFound:
                complete, again = False, settings.missing_route_interval
                pause = again if pause is None else min(pause, again)
                continue
            except PenstockError as error:
                log.info("group %s can't share out %s now: %s", self.group, topic, error)
                complete = False
            if not complete:
                again = settings.rebalance_retry
                pause = again if pause is None else min(pause, again)
        return pause

    async def _balance_topic(self, topic: str, route: TopicRoute) -> bool:
        queues = sorted(route.subscribe_queues)
        mine, complete = queues, True
        if not self.broadcast:
            clients = await self._members(route)
            if self.instance.client_id not in clients:
                # The broker dropped us, and the others share our queues by now: join anew.
                await self.instance.heartbeat()
                complete = False
            mine = allocate_averagely(queues, clients, self.instance.client_id)
        async with self._assigning:
            if topic not in self.wanted():
                return True
            gone = [
                held for queue, held in self.queues.items() if queue.topic == topic and queue not in set(mine)
            ]
            await self._release(gone)
            fresh = [queue for queue in mine if queue not in self.queues]
            if fresh:
                taken = await asyncio.gather(*(self._take(queue) for queue in fresh))
                complete = complete and all(taken)
        return complete

    async def _members(self, route: TopicRoute) -> list[str]:
        addresses = sorted({address for ids in route.addresses.values() for address in ids.values()})
        answer = await self.instance.call(
            random.choice(addresses),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            {"consumerGroup": self.group},
        )
        return sorted(str(name) for name in decode_any(answer.body).get("consumerIdList") or [])

    async def _take(self, queue: MessageQueue) -> bool:
        """Make a queue ours; False when that has to wait."""
        try:
            locked_until = 0.0
            if self.orderly and not self.broadcast:
                locked_until = asyncio.get_running_loop().time() + self.settings.lock_lifetime
                if queue not in await self.locks.lock([queue]):
                    return False
            offset = await self.offsets.read(queue)
            if offset is None:
                offset = await self._first_offset(queue)
        except PenstockError as error:
            log.info("%s can't be taken now: %s", queue, error)
            return False
        held: ProcessQueue[M] = ProcessQueue(queue, offset, self.settings)
        held.locked_until = locked_until
        self.queues[queue] = held
        log.debug("%s is ours from %d on", queue, offset)
        self._start_pulling(held)
        return True

    async def _first_offset(self, queue: MessageQueue) -> int:
        """Where a group begins that never read this queue (protocol 7.4)."""
        start = self._start_at
        if start == "earliest" or (start == "latest" and is_retry_topic(queue.topic)):
            return 0
        if start == "latest" or is_retry_topic(queue.topic):
            return await self.places.max_offset(queue)
        assert not isinstance(start, str)
        moment = int(start.timestamp() * 1000) if isinstance(start, datetime) else start
        return await self.places.offset_by_time(queue, moment)

    async def _release(self, gone: list[ProcessQueue[M]]) -> None:
        for held in gone:
            held.drop()
            self.queues.pop(held.queue, None)
            self.released(held)
        if not gone:
            return
        await self.offsets.write(self._offsets(gone))
        if self.orderly and not self.broadcast:
            # A message that is being handled keeps its queue locked, or its successor could overtake it.
            idle = [held.queue for held in gone if held.busy is None]
            await self.locks.unlock(idle)

    async def _renew_locks(self) -> None:
        begin = asyncio.get_running_loop().time()
        held = list(self.queues.values())
        locked = await self.locks.lock([queue.queue for queue in held])
        for queue in held:
            if queue.queue in locked:
                queue.locked_until = begin + self.settings.lock_lifetime
        if len(locked) < len(held):
            self.rebalance_soon()
        for queue in held:
            self.arrived(queue, [])

    # -- offsets ------------------------------------------------------------------------------------------

    async def _keep_offsets(self) -> None:
        await self.offsets.write(self._offsets(self.queues.values()))

    def _offsets(self, queues: Iterable[ProcessQueue[M]]) -> dict[MessageQueue, int]:
        return {held.queue: self.commit_offset(held) for held in queues}

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Somebody moved the group: follow, in the queues that are ours."""
        async with self._assigning:
            for queue, offset in offsets.items():
                if held := self.queues.get(queue):
                    try:
                        await self._move(held, offset)
                    except PenstockError as error:
                        log.warning("offset %d of %s not kept yet: %s", offset, queue, error)

    # -- pulls --------------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run in the background until the close."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _start_pulling(self, held: ProcessQueue[M]) -> None:
        held.pull_task = asyncio.get_running_loop().create_task(
            self._pull_loop(held), name=f"penstock-pull-{held.queue}"
        )

    async def _pull_loop(self, held: ProcessQueue[M]) -> None:
        failures = 0
        while not held.dropped:
            await held.room()
            subscription = self.wanted().get(held.queue.topic)
            if held.dropped or subscription is None:
                return
            try:
                await self._pull_once(held, subscription)
                failures = 0
            except BrokerError as error:
                log.info("pulling %s: %s", held.queue, error)
                if error.code in _UNKNOWN_TO_BROKER:
                    await self.instance.heartbeat()
                await asyncio.sleep(
                    self.settings.pull_retry if failures else min(0.1, self.settings.pull_retry)
                )
                failures += 1
            except PenstockError as error:
                failures += 1
                pause = min(0.05 * 2 ** min(failures, 10), _MOST_BACK_OFF)
                log.info("pulling %s: %s; again in %.1f s", held.queue, error, pause)
                await asyncio.sleep(pause)
            except Exception:
                log.exception("pulling %s failed", held.queue)
                await asyncio.sleep(self.settings.pull_retry)

    async def _pull_once(self, held: ProcessQueue[M], subscription: Subscription) -> None:
        settings = self.settings
        loop = asyncio.get_running_loop()
        begin = loop.time()
        result = await pull(
            self.instance,
            self.group,
            held.queue,
            held.pull_offset,
            subscription,
            most=settings.pull_batch,
            hold=settings.pull_suspend,
            commit=None if self.broadcast else self.commit_offset(held),
            with_subscription=self.consume_type == "CONSUME_ACTIVELY" and subscription.kind == TAG,
            kind=self.kind,
        )
        if held.dropped:
            return
        if result.status is PullStatus.OFFSET_MOVED:
            log.info("%s goes on at %d, not %d", held.queue, result.next_offset, held.pull_offset)
            if self.queues.get(held.queue) is held:
                # In a task of its own: moving cancels this one.
                self.spawn(self.reset_offsets({held.queue: result.next_offset}))
                await asyncio.sleep(settings.pull_retry)
            return
        held.pull_offset = result.next_offset
        if result.messages:
            held.put(result.messages)
            self.arrived(held, result.messages)
        elif result.status is PullStatus.NO_NEW_MESSAGE and loop.time() - begin < 0.005:
            # A broker that does not hold pulls must not be asked without a pause.
            await asyncio.sleep(min(0.1, settings.pull_retry))
