"""Finding single messages: by id, by key, by place (protocol 3.4)."""

from __future__ import annotations

import time

from penstock.client.admin import Admin
from penstock.client.pulling import pull
from penstock.client.queue import MessageQueue
from penstock.client.received import ReceivedMessage, decode_messages
from penstock.client.subscription import ALL, Subscription
from penstock.errors import UsageError
from penstock.message import decode_message_id
from penstock.remoting import RequestCode, ResponseCode

TOOLS_GROUP = "TOOLS_CONSUMER"
_FOREVER = (1 << 63) - 1
_DAY_AND_A_HALF_MS = 36 * 3600 * 1000


async def by_offset_id(admin: Admin, message_id: str) -> ReceivedMessage:
    """The message that an offset message id names, from the broker inside the id."""
    try:
        address, offset = decode_message_id(message_id)
    except ValueError as error:
        raise UsageError(str(error)) from None
    names = {address: name for name, address in (await admin.masters()).items()}
    if address not in names:
        raise UsageError(
            f"{message_id} names no broker of this cluster ({address})",
            hint="a unique key, which senders and consumers show, needs its topic: --topic",
        )
    answer = await admin.instance.call(address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
    return decode_messages(answer.body, names[address])[0]


async def by_key(
    admin: Admin, topic: str, key: str, *, most: int = 64, unique: bool = False
) -> list[ReceivedMessage]:
    """Messages of a topic with a key, or with a unique key; what only shares its hash is left out."""
    route = await admin.instance.route(topic)
    now = time.time_ns() // 1_000_000
    fields = {
        "topic": topic,
        "key": key,
        "maxNum": str(most),
        "beginTimestamp": str(now - _DAY_AND_A_HALF_MS if unique else 0),
        "endTimestamp": str(now + _DAY_AND_A_HALF_MS if unique else _FOREVER),
        "_UNIQUE_KEY_QUERY": str(unique).lower(),
    }
    found: list[ReceivedMessage] = []
    for name in sorted(route.addresses):
        answer = await admin.instance.call(
            admin.instance.broker_address(name),
            RequestCode.QUERY_MESSAGE,
            fields,
            timeout=10.0,
            also=(ResponseCode.QUERY_NOT_FOUND,),
        )
        if answer.code == ResponseCode.SUCCESS:
            found += decode_messages(answer.body, name)
    if unique:
        return [message for message in found if key in (message.unique_key, message.offset_message_id)]
    return [message for message in found if key in (message.keys or "").split(" ")][:most]


async def peek(
    admin: Admin, queue: MessageQueue, offset: int, *, most: int, tags: str = ALL
) -> tuple[list[ReceivedMessage], int]:
    """Up to ``most`` messages of a queue from an offset on, and the offset behind them. Moves nothing."""
    found: list[ReceivedMessage] = []
    while len(found) < most:
        result = await pull(
            admin.instance,
            TOOLS_GROUP,
            queue,
            offset,
            Subscription(queue.topic, tags),
            most=min(32, most - len(found)),
            hold=0.0,
            with_subscription=True,
        )
        if result.next_offset <= offset:
            break
        found += result.messages
        offset = result.next_offset
        if offset >= result.max_offset:
            break
    return found, offset
