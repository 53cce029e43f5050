"""One queue that was given to us: what was pulled of it and is not settled yet."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from penstock.client.queue import MessageQueue
from penstock.client.received import ReceivedMessage
from penstock.client.settings import ClientSettings

M = TypeVar("M", bound=ReceivedMessage)


class ProcessQueue(Generic[M]):
    """Messages between their pull and their end, in queue order.

    ``dropped`` says that the queue is no longer ours (or was moved elsewhere by a seek): what is left of it
    counts for nothing. A new assignment of the same queue is a new object.
    """

    def __init__(self, queue: MessageQueue, offset: int, settings: ClientSettings) -> None:
        self.queue = queue
        self.pull_offset = offset
        self.dropped = False
        self.bytes = 0
        self.locked_until = 0.0
        self.pull_task: asyncio.Task[None] | None = None
        # For orderly consumers: the message that is being handled, and whether the queue waits for its turn.
        self.busy: M | None = None
        self.queued = False
        self._settings = settings
        self._messages: OrderedDict[int, M] = OrderedDict()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def commit_offset(self) -> int:
        """Everything before this is settled."""
        for offset in self._messages:
            return offset
        return self.pull_offset

    @property
    def first(self) -> M | None:
        """The earliest message that is not settled."""
        for message in self._messages.values():
            return message
        return None

    def messages(self) -> Iterable[M]:
        """What is not settled, in queue order."""
        return self._messages.values()

    def put(self, messages: Sequence[M]) -> None:
        """Take what a pull brought."""
        for message in messages:
            self._messages[message.queue_offset] = message
            self.bytes += message.size
        self._look()

    def holds(self, message: M) -> bool:
        """Whether this very message waits here to be settled."""
        return self._messages.get(message.queue_offset) is message

    def settle(self, message: M) -> None:
        """This message is done with, in whatever way."""
        if self._messages.pop(message.queue_offset, None) is not None:
            self.bytes -= message.size
            self._look()

    def drop(self) -> None:
        """Stop everything about this queue."""
        self.dropped = True
        if self.pull_task is not None:
            self.pull_task.cancel()
        self._room.set()

    async def room(self) -> None:
        """Wait until so little is unsettled that more may be pulled."""
        await self._room.wait()

    def _look(self) -> None:
        settings = self._settings
        if len(self._messages) < settings.queue_max_messages and self.bytes < settings.queue_max_bytes:
            self._room.set()
        else:
            self._room.clear()
