"""How a send went."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import overload

import msgspec

from penstock._native.batchbody import BatchKeys
from penstock.client.queue import MessageQueue
from penstock.errors import RemotingError
from penstock.remoting import Command, ResponseCode


class SendStatus(StrEnum):
    """All of them mean stored. Only ``SEND_OK`` also means flushed and copied as the broker was told to."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


STATUSES = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
}


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message went.

    ``message_id`` is its unique key, by which it can be found and which consumers see; ``offset_message_id``
    its place in the broker's log. Of a delayed or transactional message the offsets are those of the system
    queue where it waits.
    """

    status: SendStatus
    message_id: str
    queue: MessageQueue
    queue_offset: int
    offset_message_id: str
    transaction_id: str | None = None
    recall_handle: str | None = None

    @property
    def ok(self) -> bool:
        return self.status is SendStatus.SEND_OK


def read_result(answer: Command, message_id: str, queue: MessageQueue) -> SendResult:
    """The result of one message from an answer whose code is among ``STATUSES``."""
    fields = answer.fields
    try:
        return SendResult(
            STATUSES[answer.code],
            message_id,
            queue,
            int(fields["queueOffset"]),
            fields["msgId"],
            fields.get("transactionId"),
            fields.get("recallHandle"),
        )
    except (KeyError, ValueError) as error:
        raise RemotingError(f"an answer to a send without its fields: {error}") from None


class SendResults(Sequence[SendResult]):
    """A result for each message of one request, made when looked at: many only look whether it was stored."""

    __slots__ = ("_first", "_head", "_keys", "_places", "_size")

    def __init__(self, head: SendResult, keys: BatchKeys, first: int, size: int) -> None:
        """``head`` is that of the first message, but with the places of all; ``keys[first]`` its key."""
        self._head = head
        self._keys = keys
        self._first = first
        self._size = size
        self._places: list[str] | None = None

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> SendResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[SendResult]: ...

    def __getitem__(self, index: int | slice) -> SendResult | list[SendResult]:
        numbers = range(self._size)[index]
        return self._made(numbers) if isinstance(numbers, int) else [self._made(each) for each in numbers]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SendResults | list) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def _made(self, number: int) -> SendResult:
        head, places = self._head, self._places
        if places is None:
            places = head.offset_message_id.split(",")
            if len(places) != self._size:
                places = [head.offset_message_id] * self._size
            self._places = places
        key = self._keys[self._first + number]
        return SendResult(head.status, key, head.queue, head.queue_offset + number, places[number])


def read_batch(answer: Command, keys: BatchKeys, first: int, size: int, queue: MessageQueue) -> SendResults:
    """The results of a batch, one a message, offsets counting up. ``keys[first]`` is its first key."""
    return SendResults(read_result(answer, "", queue), keys, first, size)
