"""Answers for those who read in bulk: records as bytes, units of queues as numbers (protocol 3.4)."""

from __future__ import annotations

from penstock.client.instance import ClientInstance
from penstock.client.queue import MessageQueue
from penstock.client.wirejson import decode_any
from penstock.remoting import RequestCode, ResponseCode

MOST_FOUND = 64
"""Brokers find no more messages of a key at once: the newest."""
BLANK_SIZE = 0x7FFFFFFF
"""Size of a unit without a message."""


async def records_by_key(
    instance: ClientInstance, broker_name: str, topic: str, key: str, *, begin: int, end: int
) -> bytes | memoryview:
    """Records whose key or unique key has the hash of ``key``, stored between two times, the newest of them.

    In the order of the log. The caller compares topic and key.
    """
    fields = {
        "topic": topic,
        "key": key,
        "maxNum": str(MOST_FOUND),
        "beginTimestamp": str(begin),
        "endTimestamp": str(end),
        "_UNIQUE_KEY_QUERY": "false",
    }
    answer = await instance.call(
        instance.broker_address(broker_name),
        RequestCode.QUERY_MESSAGE,
        fields,
        also=(ResponseCode.QUERY_NOT_FOUND,),
    )
    return answer.body if answer.code == ResponseCode.SUCCESS else b""


async def queue_units(
    instance: ClientInstance, group: str, queue: MessageQueue, offset: int, count: int
) -> list[tuple[int, int, int]]:
    """Queue offset, place in the log and size of messages from an offset on; size 0 where there is none."""
    fields = {
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "index": str(offset),
        "count": str(count),
        "consumerGroup": group,
        "bname": queue.broker_name,
    }
    address = instance.broker_address(queue.broker_name)
    answer = await instance.call(address, RequestCode.QUERY_CONSUME_QUEUE, fields)
    body = decode_any(answer.body)
    first = max(offset, int(body.get("minQueueIndex") or 0))
    found: list[tuple[int, int, int]] = []
    for number, unit in enumerate(body.get("queueData") or []):
        place, size = int(unit["physicOffset"]), int(unit["physicSize"])
        found.append((first + number, place, 0 if size == BLANK_SIZE else size))
    return found


async def group_offset(instance: ClientInstance, group: str, queue: MessageQueue) -> int | None:
    """Where a group is in a queue, None when it never said so; a broker would take such a one for 0."""
    fields = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "bname": queue.broker_name,
        "setZeroIfNotFound": "false",
    }
    answer = await instance.call(
        instance.broker_address(queue.broker_name),
        RequestCode.QUERY_CONSUMER_OFFSET,
        fields,
        also=(ResponseCode.QUERY_NOT_FOUND,),
    )
    offset = int(answer.fields["offset"]) if answer.code == ResponseCode.SUCCESS else -1
    return offset if offset >= 0 else None
