"""From a message to a broker's answer: attempts, retries, and what they share."""

from __future__ import annotations

import asyncio
import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from penstock._native.batchbody import BatchKeys
from penstock.client.errors import BrokerError, ClientClosed, refusal
from penstock.client.inflight import InFlight
from penstock.client.instance import ClientInstance
from penstock.client.outgoing import SendTemplate, batch_writer
from penstock.client.queue import MessageQueue
from penstock.client.queuechoice import QueueChoice, queue_of_key, writable
from penstock.client.route import TopicRoute
from penstock.client.sendresult import STATUSES, SendResult, SendResults, read_batch, read_result
from penstock.errors import ConnectionLost, RemotingError, RemotingTimeout
from penstock.remoting import Command, Connection, ResponseCode

# Another attempt, best at another broker, may succeed (protocol 4.3).
_RETRIED = frozenset(
    {
        int(ResponseCode.SYSTEM_ERROR),
        int(ResponseCode.SYSTEM_BUSY),
        int(ResponseCode.SERVICE_NOT_AVAILABLE),
        int(ResponseCode.NO_PERMISSION),
        int(ResponseCode.TOPIC_NOT_EXIST),
        int(ResponseCode.NO_BUYER_ID),
        int(ResponseCode.NOT_IN_CURRENT_UNIT),
        int(ResponseCode.GO_AWAY),
    }
)
_BACK_OFF = 0.05
_MOST_BACK_OFF = 0.8


class Sender:
    """Sends requests of one producer group, between the start and the close of its instance."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self.instance = instance
        self.group = group
        self.settings = instance.settings
        self.choice = QueueChoice(self.settings.avoid_broker)
        self.window = InFlight(self.settings.max_in_flight, self.settings.max_in_flight_bytes)
        self.batches = batch_writer()
        self._templates: dict[MessageQueue, SendTemplate] = {}
        self._turns: dict[str, tuple[TopicRoute, itertools.cycle[SendTemplate]]] = {}
        self._connections: dict[str, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ready_connection(self, broker_name: str) -> Connection | None:
        """The connection to a broker if it can be used without waiting."""
        connection = self._connections.get(broker_name)
        if connection is not None and not connection.closed:
            return connection
        connection = self.instance.ready_connection(self.instance.broker_address(broker_name))
        if connection is not None:
            self._connections[broker_name] = connection
        return connection

    def next_template(self, route: TopicRoute) -> SendTemplate:
        """The header for the next queue of a topic: they take turns."""
        turns = self._turns.get(route.topic)
        if turns is None or turns[0] is not route:
            queues = writable(route)
            # Not all producers start with the first queue.
            first = random.randrange(len(queues))
            templates = [self.template(queue) for queue in (*queues[first:], *queues[:first])]
            turns = self._turns[route.topic] = (route, itertools.cycle(templates))
        return next(turns[1])

    def template(self, queue: MessageQueue) -> SendTemplate:
        """The header of sends to a queue."""
        template = self._templates.get(queue)
        if template is None:
            template = self._templates[queue] = SendTemplate(
                self.group, queue, self.settings.default_queues, self.instance.sign
            )
        return template

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run in the background; ``close`` ends it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for what is under way, as long as ``close_timeout``; fail the rest."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.close_timeout
        while (self.window.count or self._tasks) and loop.time() < deadline:
            await asyncio.sleep(0.005)
        self.window.close(ClientClosed("the producer was closed before the answer came"))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Send(ABC):
    """One send from its first attempt to its end, in the connection's table of calls while it is under way.

    While all is well it is the only object of its send beside the future: no task, no timer, no callback.
    A subclass says what travels.
    """

    __slots__ = (
        "attempts",
        "connection",
        "deadline",
        "future",
        "opaque",
        "order_key",
        "queue",
        "sender",
        "settled",
        "size",
        "target",
        "topic",
        "tried",
    )

    def __init__(
        self,
        sender: Sender,
        future: asyncio.Future[Any],
        topic: str,
        queue: MessageQueue | None,
        order_key: str | None,
        size: int,
        deadline: float,
    ) -> None:
        self.sender = sender
        self.future = future
        self.topic = topic
        self.queue = queue
        self.order_key = order_key
        self.size = size
        self.deadline = deadline
        self.attempts = 0
        self.settled = True
        self.tried: tuple[str, ...] = ()

    @abstractmethod
    def write(self, connection: Connection, template: SendTemplate, opaque: int) -> None:
        """Write the request for the template's queue. What one pass of the loop writes leaves together."""

    @abstractmethod
    def read(self, answer: Command, queue: MessageQueue) -> Any:
        """What the future gets for an answer that means stored."""

    # -- leaving ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The first attempt: at once if route and connection are there, else in a task that makes them."""
        sender = self.sender
        route = sender.instance.routes.get(self.topic)
        if route is not None and sender.window.has_room:
            try:
                if self.queue is None and self.order_key is None and not sender.choice.careful:
                    template = sender.next_template(route)
                else:
                    template = sender.template(self._choose(route))
                connection = sender.ready_connection(template.queue.broker_name)
            except RemotingError as error:
                self.future.set_exception(error)
                return
            if connection is not None:
                self._launch(connection, template)
                return
        sender.spawn(self._prepare_and_launch(0.0))

    def _choose(self, route: TopicRoute) -> MessageQueue:
        if self.queue is not None:
            return self.queue
        if self.order_key is not None:
            return queue_of_key(route, self.order_key)
        sender = self.sender
        if self.tried or sender.choice.careful:
            return sender.choice.next(route, self.tried)
        return sender.next_template(route).queue

    def _launch(self, connection: Connection, template: SendTemplate) -> None:
        self.target = template.queue
        self.connection = connection
        self.attempts += 1
        opaque = self.opaque = connection.expect(self)
        self.settled = False
        self.sender.window.enter(self)
        self.write(connection, template, opaque)

    async def _prepare_and_launch(self, pause: float) -> None:
        sender = self.sender
        loop = asyncio.get_running_loop()
        queue: MessageQueue | None = None
        try:
            async with asyncio.timeout_at(self.deadline):
                if pause:
                    await asyncio.sleep(pause)
                route = await sender.instance.route(self.topic, publish=True)
                await sender.window.room(self.deadline)
                queue = self._choose(route)
                address = sender.instance.broker_address(queue.broker_name)
                connection = await sender.instance.connection(address)
                self._launch(connection, sender.template(queue))
        except TimeoutError:
            where = f" to {queue.broker_name}" if queue else f" of topic {self.topic!r}"
            self._fail(RemotingTimeout(f"a send{where} could not leave in time"))
        except ConnectionLost as error:
            if queue is None or loop.time() >= self.deadline:
                self._fail(error)
            else:
                self._again(queue, error)
        except Exception as error:
            self._fail(error)
        except asyncio.CancelledError:
            self._fail(ClientClosed("the producer was closed before the message left"))
            raise

    # -- the answer ---------------------------------------------------------------------------------------

    def done(self) -> bool:
        return self.settled

    def set_result(self, answer: Command) -> None:
        """The connection has the answer."""
        self._settle()
        future = self.future
        if future.done():
            return
        if answer.code in STATUSES:
            try:
                future.set_result(self.read(answer, self.target))
            except RemotingError as unreadable:
                future.set_exception(unreadable)
            return
        refused = refusal(answer, self.connection.peer_text)
        if answer.code in _RETRIED and self.attempts <= self.sender.settings.send_retries:
            self._again(self.target, refused)
        else:
            self._fail(refused)

    def set_exception(self, error: Exception) -> None:
        """The connection broke, or the time is over."""
        self._settle()
        if self.future.done():
            return
        if isinstance(error, ConnectionLost):
            self._again(self.target, error)
        else:
            self.sender.choice.failed(self.target.broker_name)
            self._fail(error)

    def _settle(self) -> None:
        self.settled = True
        self.connection.withdraw(self.opaque)
        self.sender.window.leave(self)

    def _again(self, queue: MessageQueue, error: Exception) -> None:
        """Another attempt, after a pause that grows; the message keeps its unique key."""
        loop = asyncio.get_running_loop()
        sender = self.sender
        sender.choice.failed(queue.broker_name)
        self.tried = (*self.tried, queue.broker_name)
        pause = min(_BACK_OFF * 2 ** len(self.tried), _MOST_BACK_OFF) if len(self.tried) > 1 else 0.0
        if isinstance(error, BrokerError):
            pause = max(pause, _BACK_OFF)
        if sender.instance.closed or loop.time() + pause >= self.deadline:
            self._fail(error)
        else:
            sender.spawn(self._prepare_and_launch(pause))

    def _fail(self, error: Exception) -> None:
        if not self.future.done():
            if len(self.tried) > 1:
                error.add_note(f"after {len(self.tried)} attempts, at {', '.join(self.tried)}")
            self.future.set_exception(error)


class SingleSend(Send):
    """One message."""

    __slots__ = ("body", "flag", "key", "properties", "reconsume_times", "sys_flag")

    body: bytes
    properties: bytes
    sys_flag: int
    flag: int
    key: str
    reconsume_times: int

    def write(self, connection: Connection, template: SendTemplate, opaque: int) -> None:
        connection.write(
            template.single(
                opaque, self.body, self.properties, self.sys_flag, self.flag, self.reconsume_times
            )
        )

    def read(self, answer: Command, queue: MessageQueue) -> SendResult:
        return read_result(answer, self.key, queue)


class BatchSend(Send):
    """Messages in one request."""

    __slots__ = ("body", "count", "first", "keys")

    body: bytes
    keys: BatchKeys
    first: int
    count: int

    def write(self, connection: Connection, template: SendTemplate, opaque: int) -> None:
        connection.write(template.batch_head(opaque, self.body))
        connection.write(self.body)

    def read(self, answer: Command, queue: MessageQueue) -> SendResults:
        return read_batch(answer, self.keys, self.first, self.count, queue)
