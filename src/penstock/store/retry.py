"""Retry and dead-letter topics, and what becomes of a message that is sent back (store format, section 17).

Pure functions: they say what to store, the broker stores it.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.message import Message, encode_properties
from penstock.message.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from penstock.message.topic import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from penstock.store.face import StoredRecord
from penstock.store.rewrite import copy_record, property_map

DEFAULT_MAX_RECONSUME_TIMES = 16
FIRST_RETRY_LEVEL = 3
DLQ_QUEUE_ID = 0


def retry_topic(group: str) -> str:
    """Where a group's messages wait to be tried again."""
    return RETRY_TOPIC_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Where a group's messages end that were tried too often."""
    return DLQ_TOPIC_PREFIX + group


def pop_retry_topic(group: str, topic: str, *, separator: str = "+") -> str:
    """The retry topic of one topic under pop consumption.

    RocketMQ 5.x joins with ``+``, older brokers with ``_``.
    """
    return f"{RETRY_TOPIC_PREFIX}{group}{separator}{topic}"


def group_of(topic: str) -> str | None:
    """The group of a retry or dead-letter topic, or None for any other topic."""
    for prefix in (RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return None


def goes_to_dead_letters(reconsume_times: int, delay_level: int, max_reconsume_times: int) -> bool:
    """Whether a message that is sent back has used up its tries, or its consumer gave up on it."""
    return reconsume_times >= max_reconsume_times or delay_level < 0


def send_back(
    record: StoredRecord,
    group: str,
    *,
    delay_level: int = 0,
    max_reconsume_times: int = DEFAULT_MAX_RECONSUME_TIMES,
    queue_id: int = 0,
) -> Message:
    """The message to put for a record that ``group`` could not consume.

    ``queue_id`` is the caller's choice among the retry topic's queues. The delay hook moves the result on to
    ``SCHEDULE_TOPIC_XXXX``: the first retry waits level 3, each further one a level more.
    """
    properties = dict(record.properties)
    properties.setdefault(PROPERTY_RETRY_TOPIC, record.topic)
    properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, record.message_id)
    properties[PROPERTY_WAIT_STORE_MSG_OK] = "false"
    if goes_to_dead_letters(record.reconsume_times, delay_level, max_reconsume_times):
        topic, queue_id, level = dead_letter_topic(group), DLQ_QUEUE_ID, 0
    else:
        topic = retry_topic(group)
        level = delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
    properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
    message = copy_record(record, topic=topic, queue_id=queue_id, properties=properties, wait=False)
    return replace(message, reconsume_times=record.reconsume_times + 1)


def redirect_exhausted(
    message: Message,
    group: str,
    *,
    max_reconsume_times: int = DEFAULT_MAX_RECONSUME_TIMES,
    ordered: bool = False,
) -> Message:
    """A plain send to a retry topic: the message itself, or its way to the dead letters (section 17.3).

    ``ordered``: the group holds queue locks, so a retry out of order makes no sense. A level of -1 is stored:
    it says that no delay applies.
    """
    if message.reconsume_times <= max_reconsume_times and not ordered:
        return message
    properties = property_map(message)
    properties[PROPERTY_DELAY_TIME_LEVEL] = "-1"
    return replace(
        message,
        topic=dead_letter_topic(group),
        queue_id=DLQ_QUEUE_ID,
        raw_properties=encode_properties(properties),
    )
