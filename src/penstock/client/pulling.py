"""One pull: what is asked and what comes back (protocol section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.client.errors import refusal
from penstock.client.instance import ClientInstance
from penstock.client.queue import MessageQueue
from penstock.client.received import ReceivedMessage, decode_messages
from penstock.client.subscription import TAG, Subscription
from penstock.errors import RemotingError
from penstock.remoting import Command, RequestCode, ResponseCode

COMMIT_OFFSET = 1
SUSPEND = 2
WITH_SUBSCRIPTION = 4


class PullStatus(StrEnum):
    """What a pull found."""

    FOUND = "FOUND"
    NO_NEW_MESSAGE = "NO_NEW_MESSAGE"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    OFFSET_MOVED = "OFFSET_MOVED"


_STATUSES = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MESSAGE,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MESSAGE,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_MOVED,
}


@dataclass(frozen=True)
class PullResult:
    """The messages of one pull, and where to go on."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[Any]


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """An answer as it came: ``body`` is records end to end, ``remark`` the status in the broker's words."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes | memoryview
    remark: str


async def pull(
    instance: ClientInstance,
    group: str,
    queue: MessageQueue,
    offset: int,
    subscription: Subscription,
    *,
    most: int,
    hold: float,
    commit: int | None = None,
    with_subscription: bool = False,
    kind: type[ReceivedMessage] = ReceivedMessage,
) -> PullResult:
    """Ask for messages from an offset on; ``hold`` lets the broker wait so long for the first.

    Tags are compared once more here: brokers compare hashes.
    """
    answer = await ask_records(
        instance,
        group,
        queue,
        offset,
        subscription,
        most=most,
        hold=hold,
        commit=commit,
        with_subscription=with_subscription,
    )
    messages: list[ReceivedMessage] = []
    if answer.status is PullStatus.FOUND:
        messages = decode_messages(answer.body, queue.broker_name, queue, kind)
        if subscription.kind == TAG and subscription.tags:
            messages = [message for message in messages if subscription.wants(message.tags)]
    return PullResult(answer.status, answer.next_offset, answer.min_offset, answer.max_offset, messages)


async def ask_records(
    instance: ClientInstance,
    group: str,
    queue: MessageQueue,
    offset: int,
    subscription: Subscription,
    *,
    most: int,
    hold: float,
    commit: int | None = None,
    with_subscription: bool = False,
    bulk: bool = False,
) -> PullAnswer:
    """As ``pull``, for those who read the records themselves; tags were compared by their hashes only.

    ``bulk``: not only the few messages that brokers give at once. Penstock's then fill the answer, if there
    is no filter; RocketMQ's do as ever.
    """
    flags = (SUSPEND if hold > 0 else 0) | (COMMIT_OFFSET if commit else 0)
    fields = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(most),
        "commitOffset": str(commit or 0),
        "suspendTimeoutMillis": str(int(hold * 1000)),
        "subVersion": str(subscription.version),
        "expressionType": subscription.kind,
        "maxMsgBytes": "2147483647",
        "bname": queue.broker_name,
    }
    if bulk:
        fields["bulk"] = "true"
    if with_subscription:
        flags |= WITH_SUBSCRIPTION
        fields["subscription"] = subscription.expression
    fields["sysFlag"] = str(flags)
    address = instance.broker_address(queue.broker_name)
    timeout = max(instance.settings.pull_timeout, hold + 10.0) if hold > 0 else instance.settings.call_timeout
    connection = await instance.connection(address)
    answer = await connection.call(Command.request(RequestCode.PULL_MESSAGE, fields), timeout)
    status = _STATUSES.get(answer.code)
    if status is None:
        raise refusal(answer, address)
    try:
        following, first, end = (
            int(answer.fields[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset")
        )
    except (KeyError, ValueError) as error:
        raise RemotingError(f"an answer to a pull of {queue} without its fields: {error}") from None
    return PullAnswer(status, following, first, end, answer.body, answer.remark or "")
