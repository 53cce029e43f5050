"""Sends of those who make the bodies of batches themselves, and who decide themselves what is sent again."""

from __future__ import annotations

import struct
import time

from penstock.client.instance import ClientInstance
from penstock.client.queue import MessageQueue
from penstock.client.sendresult import STATUSES
from penstock.message.topic import AUTO_CREATE_TOPIC_KEY_TOPIC
from penstock.remoting import RequestCode

_BLOCK = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">h")
_BATCH_PROPERTIES = "WAIT\x01true\x02"


def block(body: bytes | memoryview, properties: bytes, flag: int) -> bytes:
    """One message of a batch (protocol 4.6)."""
    size = _BLOCK.size + len(body) + _LENGTH.size + len(properties)
    return b"".join(
        (_BLOCK.pack(size, 0, 0, flag, len(body)), body, _LENGTH.pack(len(properties)), properties)
    )


async def send_once(
    instance: ClientInstance,
    group: str,
    queue: MessageQueue,
    body: bytes,
    *,
    properties: str | None = None,
    flag: int = 0,
    sys_flag: int = 0,
    born: int | None = None,
    default_queues: int = 4,
) -> int:
    """One attempt to store a message, or without ``properties`` a batch of blocks. The broker's code, one of
    those that mean stored; others are raised as their errors.
    """
    is_batch = properties is None
    fields = {
        "a": group,
        "b": queue.topic,
        "c": AUTO_CREATE_TOPIC_KEY_TOPIC,
        "d": str(default_queues),
        "e": str(queue.queue_id),
        "f": str(sys_flag),
        "g": str(time.time_ns() // 1_000_000 if born is None else born),
        "h": str(flag),
        "i": _BATCH_PROPERTIES if properties is None else properties,
        "j": "0",
        "k": "false",
        "m": str(is_batch).lower(),
        "n": queue.broker_name,
    }
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    address = instance.broker_address(queue.broker_name)
    answer = await instance.call(address, code, fields, body, also=tuple(STATUSES))
    return answer.code
