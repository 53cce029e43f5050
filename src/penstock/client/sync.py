"""The same clients for programs without an event loop: calls block, one background thread does the work.

    from penstock.client.sync import Consumer, Producer

    with Producer(namesrv="127.0.0.1:9876") as producer:
        producer.send(Message("orders", b"two espressos"))

Every method takes what its asynchronous counterpart takes and may be called from any thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.client import consumer as _consumer
from penstock.client import producer as _producer
from penstock.client import pullconsumer as _pullconsumer
from penstock.client.delivery import Delivery
from penstock.client.errors import ClientClosed
from penstock.client.group import GroupMember
from penstock.client.loopthread import LoopThread
from penstock.client.pulling import PullResult
from penstock.client.queue import MessageQueue
from penstock.client.received import ReceivedMessage
from penstock.client.sendresult import SendResult
from penstock.client.transaction import Transaction
from penstock.message import Message

T = TypeVar("T")


async def _made(make: Callable[[], T]) -> T:
    return make()


class _Face:
    """Starts and closes an asynchronous client in its thread."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._thread: LoopThread | None = None
        self._client: Any = None

    def start(self) -> None:
        thread = LoopThread(f"penstock-{type(self).__name__.lower()}")
        try:
            self._client = thread.run(_made(self._make))
            thread.run(self._client.start())
        except BaseException:
            thread.stop()
            raise
        self._thread = thread

    def close(self) -> None:
        if self._thread is not None:
            thread, self._thread = self._thread, None
            try:
                thread.run(self._client.close())
            finally:
                thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise ClientClosed("the client is not started, or closed", hint="use it in `with`")
        return self._thread

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._running().run(work())


class Producer(_Face):
    """Blocking face of :class:`penstock.client.Producer`."""

    _client: _producer.Producer

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(lambda: _producer.Producer(*arguments, **options))

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        order_key: str | None = None,
        delay: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        return self._run(
            lambda: self._client.send(
                message,
                queue=queue,
                order_key=order_key,
                delay=delay,
                deliver_at=deliver_at,
                timeout=timeout,
            )
        )

    def send_many(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[SendResult]:
        """Send one by one, all in flight together; a result each, in order. The first error is raised."""

        async def work() -> list[SendResult]:
            sends = (self._client.send(message, timeout=timeout) for message in messages)
            return list(await asyncio.gather(*sends))

        return self._run(work)

    def send_soon(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        order_key: str | None = None,
        timeout: float | None = None,
    ) -> concurrent.futures.Future[SendResult]:
        """Send without waiting; the future may be waited for from any thread."""
        work = self._client.send(message, queue=queue, order_key=order_key, timeout=timeout)
        return asyncio.run_coroutine_threadsafe(work, self._running().loop)

    def send_one_way(
        self, message: Message, *, queue: MessageQueue | None = None, order_key: str | None = None
    ) -> None:
        self._run(lambda: self._client.send_one_way(message, queue=queue, order_key=order_key))

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        order_key: str | None = None,
        timeout: float | None = None,
    ) -> Sequence[SendResult]:
        return self._run(
            lambda: self._client.send_batch(messages, queue=queue, order_key=order_key, timeout=timeout)
        )

    def recall(self, topic: str, handle: str | None, *, timeout: float | None = None) -> str:
        return self._run(lambda: self._client.recall(topic, handle, timeout=timeout))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return self._run(lambda: self._client.queues(topic))

    @contextmanager
    def transaction(self, message: Message, *, timeout: float | None = None) -> Iterator[Transaction]:
        """Committed when the block ends, rolled back when it raises."""
        entered: Any = self._client.transaction(message, timeout=timeout)
        half: Transaction = self._run(entered.__aenter__)
        try:
            yield half
        except BaseException as error:
            told = (type(error), error, error.__traceback__)
            if not self._run(lambda: entered.__aexit__(*told)):
                raise
        else:
            self._run(lambda: entered.__aexit__(None, None, None))


class Received:
    """A message of a blocking consumer: a :class:`penstock.client.Delivery` whose ``with`` settles it."""

    def __init__(self, face: Consumer, delivery: Delivery) -> None:
        self._face = face
        self._delivery = delivery

    def __getattr__(self, name: str) -> Any:
        return getattr(self._delivery, name)

    def ack(self) -> None:
        async def work() -> None:
            self._delivery.ack()

        self._face._run(work)

    def retry(self, delay_level: int = 0) -> None:
        self._face._run(lambda: self._delivery.retry(delay_level))

    def __enter__(self) -> Self:
        self._face._run(self._delivery.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._face._run(lambda: self._delivery.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self._delivery)


class _GroupFace(_Face):
    _client: GroupMember[Any]

    def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> None:
        self._run(lambda: self._client.subscribe(topic, tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        self._run(lambda: self._client.unsubscribe(topic))

    @property
    def assignment(self) -> list[MessageQueue]:
        return self._client.assignment

    def wait_assigned(self, timeout: float | None = None) -> list[MessageQueue]:
        return self._run(lambda: self._client.wait_assigned(timeout))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        self._run(lambda: self._client.seek(queue, offset))

    def seek_to_time(self, when: datetime | int, topic: str | None = None) -> None:
        self._run(lambda: self._client.seek_to_time(when, topic))

    def seek_to_beginning(self, topic: str | None = None) -> None:
        self._run(lambda: self._client.seek_to_beginning(topic))

    def seek_to_end(self, topic: str | None = None) -> None:
        self._run(lambda: self._client.seek_to_end(topic))

    def commit(self) -> None:
        self._run(lambda: self._client.commit())


class Consumer(_GroupFace):
    """Blocking face of :class:`penstock.client.Consumer`: iterate, and settle each message in a ``with``."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(lambda: _consumer.Consumer(*arguments, **options))

    def __iter__(self) -> Iterator[Received]:
        while (message := self.next()) is not None:
            yield message

    def next(self, timeout: float | None = None) -> Received | None:
        """The next message, or None when the time is over or the consumer was closed."""

        async def work() -> Delivery | None:
            try:
                async with asyncio.timeout(timeout):
                    found: Delivery = await self._client.__anext__()  # type: ignore[attr-defined]
                    return found
            except (TimeoutError, StopAsyncIteration):
                return None

        delivery = self._run(work)
        return None if delivery is None else Received(self, delivery)


class PullConsumer(_GroupFace):
    """Blocking face of :class:`penstock.client.PullConsumer`."""

    _client: _pullconsumer.PullConsumer

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(lambda: _pullconsumer.PullConsumer(*arguments, **options))

    def poll(self, timeout: float = 0.0, most: int = 32) -> list[ReceivedMessage]:
        return self._run(lambda: self._client.poll(timeout, most))

    def pull(self, queue: MessageQueue, offset: int, **options: Any) -> PullResult:
        return self._run(lambda: self._client.pull(queue, offset, **options))

    def assign(self, queues: Iterable[MessageQueue], tags: str = "*") -> None:
        self._run(lambda: self._client.assign(queues, tags))

    def topic_queues(self, topic: str) -> list[MessageQueue]:
        return self._run(lambda: self._client.topic_queues(topic))

    def committed(self, queue: MessageQueue) -> int | None:
        return self._run(lambda: self._client.committed(queue))

    def min_offset(self, queue: MessageQueue) -> int:
        return self._run(lambda: self._client.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        return self._run(lambda: self._client.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, milliseconds: int) -> int:
        return self._run(lambda: self._client.offset_by_time(queue, milliseconds))
