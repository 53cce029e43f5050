"""Popped messages that come back: into the group's retry topic, and out of it again (protocol 3.9)."""

from __future__ import annotations

from functools import lru_cache

from penstock.format.record import encode_record
from penstock.message import Message, encode_properties
from penstock.message.properties import (
    PROPERTY_FIRST_POP_TIME,
    PROPERTY_ORIGIN_GROUP,
    PROPERTY_POP_CK,
)
from penstock.message.topic import RETRY_TOPIC_PREFIX
from penstock.store.face import StoredRecord
from penstock.store.retry import pop_retry_topic
from penstock.store.rewrite import copy_record

RETRY_QUEUE = 0


@lru_cache(4096)
def retry_topics(topic: str, group: str) -> tuple[str, str]:
    """Where a group's messages of a topic come back: where we put them, and where others may have."""
    return pop_retry_topic(group, topic, separator="_"), pop_retry_topic(group, topic)


def normal_topic(topic: str, group: str) -> str:
    """The topic that a pop retry topic belongs to; any other topic is its own."""
    for separator in "_+":
        prefix = f"{RETRY_TOPIC_PREFIX}{group}{separator}"
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def revived(
    record: StoredRecord, topic: str, group: str, pop_time: int, address: str, *, counted: bool = True
) -> Message:
    """The message to put for one that ``group`` was given and did not ack in time."""
    properties = dict(record.properties)
    if record.reconsume_times == 0:
        properties[PROPERTY_FIRST_POP_TIME] = str(pop_time)
    properties.setdefault(PROPERTY_FIRST_POP_TIME, str(pop_time))
    properties[PROPERTY_ORIGIN_GROUP] = group
    # It stays in a retry topic it is in already.
    target = topic if topic.startswith(RETRY_TOPIC_PREFIX) else retry_topics(topic, group)[0]
    message = copy_record(record, topic=target, queue_id=RETRY_QUEUE, properties=properties)
    return Message(
        message.topic,
        message.body,
        queue_id=RETRY_QUEUE,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=address,
        reconsume_times=record.reconsume_times + counted,
        raw_properties=message.raw_properties,
    )


def shown(record: StoredRecord, topic: str, handle: str) -> bytes:
    """A record of a retry topic as a consumer sees it: of the topic it subscribed to, with its handle."""
    properties = dict(record.properties)
    properties.setdefault(PROPERTY_POP_CK, handle)
    return encode_record(
        topic,
        record.body,
        encode_properties(properties),
        queue_id=record.queue_id,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        store_timestamp=record.store_timestamp,
    )
