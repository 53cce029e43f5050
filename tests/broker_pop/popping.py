"""A consumer that pops: says exactly what it is told to, and keeps what it was given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from broker.talking import Client, config, records, until
from penstock.broker import Broker
from penstock.clock import Clock
from penstock.format.record import RecordFields
from penstock.remoting import Command


class Given:
    """One message that was popped, and its handle."""

    def __init__(self, answer: Command, record: RecordFields) -> None:
        self.record = record
        self.body = record.body
        self.reconsume_times = record.reconsume_times
        fields = answer.fields
        kept = record.properties.get("POP_CK")
        if kept is None:
            starts = {
                (kind, int(queue)): start
                for kind, queue, start in (each.split(" ") for each in fields["startOffsetInfo"].split(";"))
            }
            start = starts["0", record.queue_id]
            kept = (
                f"{start} {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} 0 broker-a "
                f"{record.queue_id} {record.queue_offset}"
            )
        self.handle = kept

    @property
    def is_retry(self) -> bool:
        return self.handle.split(" ")[4] != "0"


async def pop(
    client: Client, topic: str = "T", group: str = "G", *, now: Callable[[], int] | None = None, **more: Any
) -> list[Given]:
    """Pop, and nothing but messages or the end of the time may come of it."""
    answer = await client.call(200050, pop_fields(topic, group, now=now, **more))
    assert answer.code in (0, 210), (answer.code, answer.remark)
    return [Given(answer, record) for record in records(answer)]


def pop_fields(
    topic: str = "T", group: str = "G", *, now: Callable[[], int] | None = None, **more: Any
) -> dict[str, str]:
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": -1,
        "maxMsgNums": 32,
        "invisibleTime": 60_000,
        "pollTime": 0,
        "bornTime": 0 if now is None else now(),
        "initMode": 0,
        "expType": "TAG",
        "exp": "*",
        "order": "false",
        **more,
    }
    return {name: str(value) for name, value in fields.items()}


def _place(given: Given, topic: str, group: str) -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": f"%RETRY%{group}_{topic}" if given.is_retry else topic,
        "queueId": str(given.record.queue_id),
        "extraInfo": given.handle,
        "offset": str(given.record.queue_offset),
    }


async def ack(client: Client, *given: Given, topic: str = "T", group: str = "G") -> list[int]:
    """Ack messages one by one, all at once on the wire."""
    calls = [client.call(200051, _place(each, topic, group)) for each in given]
    return [answer.code for answer in await asyncio.gather(*calls)]


async def change(
    client: Client, given: Given, invisible_ms: int, topic: str = "T", group: str = "G"
) -> Command:
    fields = {**_place(given, topic, group), "invisibleTime": str(invisible_ms)}
    return await client.call(200053, fields)


def play(
    path: Path,
    scene: Callable[[Broker, Client], Awaitable[None]],
    *,
    clock: Clock | None = None,
    queues: int = 1,
    **settings: Any,
) -> None:
    """A broker with topic T and a client that talks to it. The timer is a quick one."""

    async def run() -> None:
        store = {"timer_precision_ms": 100, **settings.pop("store", {})}
        async with Broker(config(path, store=store, **settings), clock=clock) as broker:
            client = Client(broker.address)
            try:
                async with asyncio.timeout(60):
                    await make_topic(client, "T", queues)
                    await scene(broker, client)
            finally:
                await client.close()

    asyncio.run(run())


async def make_topic(client: Client, name: str, queues: int = 1) -> None:
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    assert (await client.call(17, fields)).code == 0


class SetClock:
    """The time of day as somebody set it: a test that sets it ahead need not wait."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def monotonic(self) -> float:
        return time.monotonic()


__all__ = [
    "Client",
    "Given",
    "SetClock",
    "ack",
    "change",
    "make_topic",
    "play",
    "pop",
    "pop_fields",
    "records",
    "until",
]
