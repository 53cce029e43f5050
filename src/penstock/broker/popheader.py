"""Headers of the POP requests, and the handles that popped messages carry (protocol 3.9)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from penstock.broker.header import flag, long_number, number, optional_long, word
from penstock.broker.popcheckpoint import ORDER_QUEUE, REVIVE_QUEUES
from penstock.errors import RequestRefused
from penstock.message.topic import RETRY_TOPIC_PREFIX
from penstock.remoting import ResponseCode

MAX_DIGITS = 18
WORDS = 8
"""Of a handle: begin of the pop, pop time, invisible time, revive queue, kind of topic, broker, queue,
offset."""


@dataclass(slots=True)
class PopHeader:
    """What a pop asks for."""

    group: str
    topic: str
    queue_id: int
    count: int
    invisible_ms: int
    poll_ms: int
    born_ms: int
    from_end: bool
    order: bool
    attempt_id: str | None
    expression: str | None
    expression_type: str | None


def pop_header(fields: dict[str, str]) -> PopHeader:
    """Raises RequestRefused when a field is missing or no number."""
    return PopHeader(
        word(fields, "consumerGroup"),
        word(fields, "topic"),
        number(fields, "queueId"),
        number(fields, "maxMsgNums"),
        long_number(fields, "invisibleTime"),
        long_number(fields, "pollTime"),
        long_number(fields, "bornTime"),
        number(fields, "initMode") == 1,
        flag(fields, "order"),
        fields.get("attemptId"),
        fields.get("exp"),
        fields.get("expType"),
    )


def notification_header(fields: dict[str, str]) -> PopHeader:
    """A question whether there is anything to pop."""
    return PopHeader(
        word(fields, "consumerGroup"),
        word(fields, "topic"),
        number(fields, "queueId"),
        1,
        0,
        long_number(fields, "pollTime"),
        optional_long(fields, "bornTime", 0),
        False,
        flag(fields, "order"),
        fields.get("attemptId"),
        fields.get("exp"),
        fields.get("expType"),
    )


class Handle(msgspec.Struct, frozen=True):
    """What a consumer shows to prove that it was given a message."""

    start: int
    pop_time: int
    invisible_ms: int
    revive_queue: int
    broker_name: str
    queue_id: int

    @property
    def order(self) -> bool:
        return self.revive_queue == ORDER_QUEUE

    @property
    def due_ms(self) -> int:
        return self.pop_time + self.invisible_ms


def read_handle(text: str) -> Handle:
    """A handle without or with its last word, the message's offset. Raises RequestRefused for any other text.

    Nobody signs handles: one that was made up reaches nothing but the group's own messages, and only while
    its numbers are those of a real checkpoint. What could do harm is refused here: a queue of the revive
    topic that nobody reads, and times before all time.
    """
    words = text.split(" ")
    if len(words) not in (WORDS - 1, WORDS):
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"getBrokerName fail, extraInfoStrs length {len(words)}"
        )
    handle = Handle(
        _whole(words[0]), _whole(words[1]), _whole(words[2]), _whole(words[3]), words[5], _whole(words[6])
    )
    if not handle.order and not 0 <= handle.revive_queue < REVIVE_QUEUES:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"reviveQid[{handle.revive_queue}] is illegal")
    if min(handle.start, handle.pop_time, handle.invisible_ms) < 0:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "a number of the handle is negative")
    return handle


def _whole(text: str) -> int:
    """A number as Java's ``Long.parseLong`` takes it."""
    if len(text) <= MAX_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return long_number({"extraInfo": text}, "extraInfo")


def topic_kind(topic: str) -> str:
    """How answers and handles tell a retry topic from others: 0 for others, 1 and 2 for its two spellings."""
    if not topic.startswith(RETRY_TOPIC_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"
