"""How a send went."""

from __future__ import annotations

from enum import StrEnum
from itertools import repeat

import msgspec

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


def read_batch(answer: Command, message_ids: list[str], queue: MessageQueue) -> list[SendResult]:
    """The results of a batch: one a message, offsets counting up."""
    first = read_result(answer, message_ids[0], queue)
    places = first.offset_message_id.split(",")
    if len(places) != len(message_ids):
        places = [first.offset_message_id] * len(message_ids)
    offsets = range(first.queue_offset, first.queue_offset + len(message_ids))
    # By map, all of it in C: a third less than a comprehension.
    return list(map(SendResult, repeat(first.status), message_ids, repeat(queue), offsets, places))
