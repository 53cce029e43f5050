"""What each record of a message's life means, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock._native.stored import StoredMessage
from penstock.message.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    parse_number,
)
from penstock.message.sysflag import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    transaction_type,
)
from penstock.message.topic import (
    DLQ_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)


@dataclass(frozen=True, slots=True)
class Step:
    """One record. ``message`` says whose life it belongs to: a unique key, else the id of the first record.

    ``kind`` is one of stored, half, op, committed, rolled-back, delayed, timer, delivered, retry,
    dead-letter and unanswered. ``consumed_by`` are groups that committed an offset behind it.
    """

    message: str
    kind: str
    meaning: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    message_id: str
    store_ms: int
    born_ms: int
    size: int
    reconsume_times: int
    keys: str | None
    tags: str | None
    consumed_by: list[str]


def identity(record: StoredMessage) -> str:
    """What all records of one message share: its unique key; without one, the id of the first record."""
    return record.unique_key or record.properties.get(PROPERTY_ORIGIN_MESSAGE_ID) or record.message_id


def describe(
    record: StoredMessage, message: str, earlier: Sequence[Step], delays_ms: Sequence[int], committed: bool
) -> tuple[str, str]:
    """Kind and meaning of a record, knowing the steps of the same message before it.

    ``committed``: of an op message, whether the message it ends stands in its topic.
    """
    topic, properties = record.topic, record.properties
    real = _real_place(properties)
    if topic == TRANS_HALF_TOPIC:
        return "half", _half(properties, real)
    if topic == TRANS_OP_HALF_TOPIC:
        verdict = "it was committed" if committed else "no message of it is in its topic: it was rolled back"
        return "op", f"the transaction is over: {verdict}"
    if topic == TRANS_CHECK_MAX_TIME_TOPIC:
        return "unanswered", "the producer never said what becomes of the transaction; it is not asked again"
    if topic == SCHEDULE_TOPIC:
        return "delayed", _delay(record, real, delays_ms)
    if topic == TIMER_TOPIC:
        due = parse_number(properties.get(PROPERTY_TIMER_OUT_MS))
        return "timer", f"waits{'' if due is None else f' until {_time(due)}'} to be delivered to {real}"
    if topic.startswith(RETRY_TOPIC_PREFIX):
        group = topic.removeprefix(RETRY_TOPIC_PREFIX)
        return "retry", f"group {group} gets it again, after {_tries(record.reconsume_times)}"
    if topic.startswith(DLQ_TOPIC_PREFIX):
        group = topic.removeprefix(DLQ_TOPIC_PREFIX)
        return (
            "dead-letter",
            f"group {group} gave up after {_tries(record.reconsume_times)}; nobody gets it again",
        )
    kind = transaction_type(record.sys_flag)
    if kind == TRANSACTION_COMMIT_TYPE:
        return "committed", f"the transaction was committed: consumers of {topic} can read it"
    if kind == TRANSACTION_PREPARED_TYPE:
        return "half", f"prepared in {topic} itself: no queue points to it, nobody can consume it"
    if kind == TRANSACTION_ROLLBACK_TYPE:
        return "rolled-back", "the record of a rollback: no queue points to it"
    if any(step.kind in ("delayed", "timer") and step.message == message for step in earlier):
        return "delivered", f"its delay is over: consumers of {topic} can read it"
    return "stored", f"stored: consumers of {topic} can read it"


def _half(properties: dict[str, str], real: str) -> str:
    group = properties.get(PROPERTY_PRODUCER_GROUP, "unknown")
    checks = parse_number(properties.get(PROPERTY_TRANSACTION_CHECK_TIMES))
    again = f"put again when its producer was asked ({_times(checks)}); " if checks else ""
    return f"{again}half message of producer group {group} for {real}: invisible until it is committed"


def _delay(record: StoredMessage, real: str, delays_ms: Sequence[int]) -> str:
    properties = record.properties
    level = parse_number(properties.get(PROPERTY_DELAY_TIME_LEVEL)) or record.queue_id + 1
    delay = delays_ms[level - 1] if 0 < level <= len(delays_ms) else None
    wait = "" if delay is None else f" {delay / 1000:g} s, until {_time(record.store_timestamp + delay)},"
    goal = properties.get(PROPERTY_REAL_TOPIC, "")
    if goal.startswith(RETRY_TOPIC_PREFIX):
        group, origin = (
            goal.removeprefix(RETRY_TOPIC_PREFIX),
            properties.get(PROPERTY_RETRY_TOPIC, "its topic"),
        )
        return (
            f"group {group} could not consume it from {origin} ({_tries(record.reconsume_times)}):"
            f" waits{wait} to be tried again (level {level})"
        )
    return f"waits{wait} to be delivered to {real} (level {level})"


def _real_place(properties: dict[str, str]) -> str:
    topic = properties.get(PROPERTY_REAL_TOPIC)
    if topic is None:
        return "an unknown topic"
    queue = properties.get(PROPERTY_REAL_QUEUE_ID)
    return topic if queue is None else f"{topic}-{queue}"


def _tries(count: int) -> str:
    return "1 failed try" if count == 1 else f"{count} failed tries"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _time(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
