"""A message in the hands of a consumer: it must be settled, once."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock._native.stored import StoredMessage
from penstock.client.queue import MessageQueue
from penstock.client.received import ReceivedMessage

if TYPE_CHECKING:
    from penstock.client.consumer import Consumer
    from penstock.client.processqueue import ProcessQueue


class Delivery(ReceivedMessage):
    """A message to be handled. Leaving its block acknowledges it; an exception has it tried again later.

        async for message in consumer:
            async with message:
                handle(message.body)

    The exception is logged and goes no further, so that the loop goes on; only what ends programs
    (KeyboardInterrupt, a cancelled task) does, and then the message is left as it is and somebody gets it
    again. ``with`` works too: a retry is then asked for in the background. Or call ``ack`` and ``retry``.
    """

    __slots__ = ("consumer", "entered", "home", "local_tries", "settled", "taken_at")

    def __init__(self, stored: StoredMessage, queue: MessageQueue) -> None:
        super().__init__(stored, queue)
        self.consumer: Consumer | None = None
        self.home: ProcessQueue[Delivery] | None = None
        self.local_tries = 0
        self.taken_at = 0.0
        self.entered = False
        self.settled = False

    @property
    def reconsume_times(self) -> int:
        """How often it was tried before; an orderly consumer's own tries count."""
        return self.stored.reconsume_times + self.local_tries

    def ack(self) -> None:
        """It is done with; the group's offset may pass it."""
        if not self.settled and self.consumer is not None:
            self.settled = True
            self.consumer.acknowledge(self)

    async def retry(self, delay_level: int = 0) -> None:
        """Have it tried again later; the broker chooses when unless a delay level says so.

        After ``max_reconsume_times`` tries it goes to the group's dead letters. In a broadcasting group there
        are no retries: it is done with.
        """
        if not self.settled and self.consumer is not None:
            self.settled = True
            await self.consumer.try_later(self, delay_level)

    def __enter__(self) -> Self:
        self.entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            self.ack()
            return False
        if not isinstance(error, Exception):
            return False
        if not self.settled and self.consumer is not None:
            self.settled = True
            self.consumer.failed(self, error)
            self.consumer.spawn(self.consumer.try_later(self, 0))
        return True

    async def __aenter__(self) -> Self:
        self.entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            self.ack()
            return False
        if not isinstance(error, Exception):
            return False
        if not self.settled and self.consumer is not None:
            self.consumer.failed(self, error)
            await self.retry()
        return True
