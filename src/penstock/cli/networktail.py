"""``penstock tail`` of a running broker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

from penstock.cli.output import write_message
from penstock.client import Consumer, MessageQueue, PullConsumer, ReceivedMessage
from penstock.client.lookup import TOOLS_GROUP
from penstock.errors import RemotingError

_HOLD_SECONDS = 10.0
_AGAIN_SECONDS = 1.0


async def tail_group(
    namesrv: str | None, topic: str, group: str, *, start: str, tags: str, count: int | None, as_json: bool
) -> None:
    """As a member of a group: each message is acknowledged when it was printed."""
    shown = 0
    async with Consumer(group, topic, tags=tags, namesrv=namesrv, start=start) as consumer:
        async for message in consumer:
            write_message(message, as_json=as_json)
            sys.stdout.flush()
            message.ack()
            shown += 1
            if shown == count:
                break


async def tail_queues(
    namesrv: str | None,
    topic: str,
    *,
    start: int | str,
    queue: int | None,
    tags: str,
    count: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    """All queues, or one, without a group of one's own. Nothing remembers that we were here."""
    shown = 0
    async with PullConsumer(TOOLS_GROUP, namesrv=namesrv) as consumer:
        queues = [each for each in await consumer.topic_queues(topic) if queue in (None, each.queue_id)]
        async for message in _merged(consumer, queues, start, tags, follow):
            write_message(message, as_json=as_json)
            sys.stdout.flush()
            shown += 1
            if shown == count:
                break


async def _merged(
    consumer: PullConsumer, queues: list[MessageQueue], start: int | str, tags: str, follow: bool
) -> AsyncIterator[ReceivedMessage]:
    arrived: asyncio.Queue[ReceivedMessage | None] = asyncio.Queue(1000)

    async def read(place: MessageQueue) -> None:
        offset = start if isinstance(start, int) else await _end(consumer, place, start)
        while True:
            try:
                result = await consumer.pull(place, offset, tags=tags, wait=_HOLD_SECONDS if follow else 0.0)
            except RemotingError:
                if not follow:
                    raise
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            for message in result.messages:
                await arrived.put(message)
            done = result.next_offset >= result.max_offset
            if result.next_offset == offset and not result.messages and not follow:
                done = True
            offset = result.next_offset
            if done and not follow:
                return

    async def read_all() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for place in queues:
                    group.create_task(read(place))
        finally:
            await arrived.put(None)

    reader = asyncio.create_task(read_all())
    try:
        while (message := await arrived.get()) is not None:
            yield message
        try:
            await reader
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


async def _end(consumer: PullConsumer, place: MessageQueue, start: str) -> int:
    return await (consumer.min_offset(place) if start == "earliest" else consumer.max_offset(place))
