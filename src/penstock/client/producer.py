"""Sending messages."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from penstock._native.batchbody import BatchKeys
from penstock.client.instance import ClientInstance
from penstock.client.outgoing import check_topic, prepare
from penstock.client.queue import MessageQueue
from penstock.client.queuechoice import queue_of_key, writable
from penstock.client.sender import BatchSend, Sender, SingleSend
from penstock.client.sendresult import SendResult, SendResults
from penstock.client.settings import ClientSettings
from penstock.client.transaction import CheckListener, Transaction, TransactionChecks, TransactionState
from penstock.errors import MessageRejected, RemotingError, RemotingTimeout, UsageError
from penstock.message import Message
from penstock.message.ids import reserve_unique_ids
from penstock.message.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
)
from penstock.message.recall import decode_handle
from penstock.message.sysflag import TRANSACTION_PREPARED_TYPE
from penstock.message.topic import RETRY_TOPIC_PREFIX
from penstock.remoting import RequestCode

_HEADER_BYTES = 512

Delay = float | timedelta


class Producer:
    """Sends messages of one producer group. A context manager; all its methods belong to one event loop.

        async with Producer("shop", namesrv="127.0.0.1:9876") as producer:
            result = await producer.send(Message("orders", b"two espressos", keys="order-1"))

    Brokers' addresses come from the name servers. A send that fails is tried again, at another broker if
    there is one, until its timeout; a message may be stored twice when an answer got lost, under the same
    unique key.
    """

    def __init__(
        self,
        group: str = "PENSTOCK_PRODUCER",
        *,
        namesrv: str | Sequence[str] | None = None,
        settings: ClientSettings | None = None,
        check: CheckListener | None = None,
        instance_name: str | None = None,
    ) -> None:
        """``check`` tells how a transaction of ours ended, when a broker asks; see ``transaction``."""
        self.group = group
        self.settings = settings or ClientSettings()
        self._checks = TransactionChecks(self, check)
        names = namesrv if namesrv is None or isinstance(namesrv, str) else list(namesrv)
        self.instance = ClientInstance(
            names,
            self.settings,
            instance_name=instance_name,
            handlers={int(RequestCode.CHECK_TRANSACTION_STATE): self._checks.handle},
        )
        self._topics: set[str] = set()
        self._sender: Sender | None = None

    # -- life ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Ready to send. Brokers are connected by the first send."""
        await self.instance.start(self)
        self._sender = Sender(self.instance, self.group)

    async def close(self) -> None:
        """Wait for what is under way, as long as ``close_timeout``, and take leave."""
        if self._sender is not None and not self.instance.closed:
            await self._sender.close()
        await self.instance.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- sending ------------------------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        order_key: str | None = None,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send one message and wait until the broker has stored it.

        The queues of the topic take turns (``message.queue_id`` is not looked at); ``queue`` names one, and
        ``order_key`` takes the same one for the same key: messages of a key keep their order if each is sent
        after the one before was answered. ``delay`` (seconds) or ``deliver_at`` hold the message back for any
        time up to three days, ``message.delay_level`` for one of RocketMQ's 18 levels.

        Raises RouteNotFound, MessageRejected, BrokerError, RemotingTimeout or ConnectionLost.
        """
        if not self._usable().window.has_room:
            await self._room(timeout)
        plain = order_key is None and delay is None and deliver_at is None
        extra = None if plain else _extra(order_key, delay, deliver_at)
        return await self._submit(message, queue, order_key, extra, 0, timeout)

    def send_soon(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        order_key: str | None = None,
        timeout: float | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send without waiting: the future of the result. The way to keep many messages in flight.

        All messages of one pass of the loop leave in one write. Without a bound of your own, await ``send``
        now and then: it waits for room.
        """
        extra = None if order_key is None else _extra(order_key, None, None)
        return self._submit(message, queue, order_key, extra, 0, timeout)

    async def send_one_way(
        self, message: Message, *, queue: MessageQueue | None = None, order_key: str | None = None
    ) -> None:
        """Send and hear nothing of it: as fast as it gets, and a message may be lost without a word."""
        sender = self._usable()
        check_topic(message.topic)
        body, properties, sys_flag, _ = prepare(message, self.settings, _extra(order_key, None, None))
        route = await self.instance.route(message.topic, publish=True)
        chosen = queue or (
            sender.next_template(route).queue if order_key is None else queue_of_key(route, order_key)
        )
        connection = await self.instance.connection(self.instance.broker_address(chosen.broker_name))
        frame = sender.template(chosen).single(0, body, properties, sys_flag, message.flag, oneway=True)
        connection.write(frame)
        deadline = asyncio.get_running_loop().time() + self.settings.send_timeout
        while not connection.writable and not connection.closed:
            if asyncio.get_running_loop().time() > deadline:
                raise RemotingTimeout(f"{connection.peer_text} takes no messages")
            await asyncio.sleep(0.005)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        order_key: str | None = None,
        timeout: float | None = None,
    ) -> Sequence[SendResult]:
        """Send messages of one topic to one queue, in one request: a result for each, made when looked at.

        More than ``max_message_size`` go as several requests, one after the other. Batches are not
        compressed, delayed or transactional.
        """
        sender = self._usable()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (timeout or self.settings.send_timeout)
        most = self.settings.max_message_size
        given = list(messages)  # the caller's may change while this waits
        results: list[SendResult] = []
        if not given:
            return results
        topic = given[0].topic
        self._check_topic(topic)
        if topic.startswith(RETRY_TOPIC_PREFIX):
            raise MessageRejected("MESSAGE_ILLEGAL", "a retry topic takes no batches")
        keys = BatchKeys(*reserve_unique_ids(len(given)), len(given))
        first = 0
        while first < len(given):
            body, following = sender.batches.join(given, first, keys, topic, most)
            if len(body) > most:
                raise MessageRejected("MESSAGE_ILLEGAL", f"a message of {len(body)} bytes is too large")
            if not sender.window.has_room:
                await sender.window.room(deadline)
            sent: asyncio.Future[SendResults] = loop.create_future()
            send = BatchSend(sender, sent, topic, queue, order_key, len(body) + _HEADER_BYTES, deadline)
            send.body = body
            send.keys, send.first, send.count = keys, first, following - first
            send.begin()
            answered = await sent
            if following - first == len(given):
                return answered
            results += answered
            first = following
        return results

    async def recall(self, topic: str, handle: str | None, *, timeout: float | None = None) -> str:
        """Take back a message that is not due yet; its message id. ``handle`` is its ``recall_handle``.

        It is never delivered once this has returned. Raises UsageError for what is no handle, BrokerError
        when it is too late, or when the broker does not allow it (``recall_message_enable``).
        """
        decoded = None if handle is None else decode_handle(handle)
        if handle is None or decoded is None:
            raise UsageError("no recall handle: only messages with a delay or a time have one")
        await self.instance.route(topic, publish=True)
        address = self.instance.broker_address(decoded.broker_name)
        fields = {
            "producerGroup": self.group,
            "topic": topic,
            "recallHandle": handle,
            "bname": decoded.broker_name,
        }
        answer = await self.instance.call(address, RequestCode.RECALL_MESSAGE, fields, timeout=timeout)
        return answer.fields.get("msgId", decoded.unique_key)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that take messages."""
        return writable(await self.instance.route(topic, publish=True))

    # -- transactions -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def transaction(
        self, message: Message, *, timeout: float | None = None
    ) -> AsyncIterator[Transaction]:
        """Send a message that consumers see only if the block ends well.

            async with producer.transaction(Message("orders", b"...")) as transaction:
                await database.commit()

        An exception in the block takes the message back and goes on. ``transaction.leave_open()`` decides
        nothing: the broker then asks the ``check`` of a producer of this group, again and again, as it does
        when this process dies inside the block.
        """
        extra = {PROPERTY_TRANSACTION_PREPARED: "true", PROPERTY_PRODUCER_GROUP: self.group}
        if message.delay_level:
            raise UsageError("a transactional message can't be delayed")
        result = await self._submit(message, None, None, extra, TRANSACTION_PREPARED_TYPE, timeout)
        half = Transaction(self, message, result)
        if not result.ok:  # stored, but not as safely as the broker was told to: don't build on it
            await half.end(TransactionState.ROLLBACK)
            raise RemotingError(f"the half message was stored with {result.status}; it was rolled back")
        try:
            yield half
        except BaseException:
            await asyncio.shield(half.end_quietly(TransactionState.ROLLBACK))
            raise
        await half.end(half.state)

    async def send_in_transaction(
        self,
        message: Message,
        local: Callable[[Message], TransactionState | Awaitable[TransactionState]],
        *,
        timeout: float | None = None,
    ) -> tuple[SendResult, TransactionState]:
        """``transaction`` for a function that says how it ended; UNKNOWN leaves it to ``check``."""
        async with self.transaction(message, timeout=timeout) as half:
            found = local(message)
            half.state = await found if isinstance(found, Awaitable) else found
        return half.result, half.state

    # -- inside -------------------------------------------------------------------------------------------

    def producer_data(self) -> list[dict[str, Any]]:
        return [{"groupName": self.group}]

    def consumer_data(self) -> list[dict[str, Any]]:
        return []

    def unregistrations(self) -> Iterable[dict[str, str]]:
        return [{"producerGroup": self.group}]

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run in the background until the close."""
        self._usable().spawn(work)

    def _usable(self) -> Sender:
        self.instance.require_open()
        assert self._sender is not None
        return self._sender

    def _check_topic(self, topic: str) -> None:
        """MessageRejected for a name that no broker takes; each is looked at once."""
        if topic not in self._topics:
            check_topic(topic)
            self._topics.add(topic)

    async def _room(self, timeout: float | None) -> None:
        limit = self.settings.send_timeout if timeout is None else timeout
        await self._usable().window.room(asyncio.get_running_loop().time() + limit)

    def _submit(
        self,
        message: Message,
        queue: MessageQueue | None,
        order_key: str | None,
        extra: dict[str, str] | None,
        transaction: int,
        timeout: float | None,
    ) -> asyncio.Future[SendResult]:
        sender = self._usable()
        topic = message.topic
        self._check_topic(topic)
        body, properties, sys_flag, key = prepare(message, self.settings, extra)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[SendResult] = loop.create_future()

        deadline = loop.time() + (self.settings.send_timeout if timeout is None else timeout)
        send = SingleSend(sender, future, topic, queue, order_key, len(body) + _HEADER_BYTES, deadline)
        send.body = body
        send.properties = properties
        send.sys_flag = sys_flag | transaction
        send.flag = message.flag
        send.key = key
        send.reconsume_times = 0
        send.begin()
        return future


def _extra(order_key: str | None, delay: Delay | None, deliver_at: datetime | None) -> dict[str, str] | None:
    if order_key is None and delay is None and deliver_at is None:
        return None
    extra: dict[str, str] = {}
    if order_key is not None:
        extra[PROPERTY_SHARDING_KEY] = order_key
    if delay is not None and deliver_at is not None:
        raise UsageError("a message is delayed by a time or until one, not both")
    if delay is not None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if seconds < 0:
            raise UsageError(f"a delay of {seconds} seconds")
        extra[PROPERTY_TIMER_DELAY_MS] = str(math.ceil(seconds * 1000))
    if deliver_at is not None:
        extra[PROPERTY_TIMER_DELIVER_MS] = str(math.ceil(deliver_at.timestamp() * 1000))
    return extra
