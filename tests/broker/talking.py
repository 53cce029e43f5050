"""A real broker on loopback, and a client that says exactly what it is told to."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.broker import Broker
from penstock.config import BrokerConfig, StoreConfig
from penstock.format.record import RecordFields, decode_record
from penstock.remoting import Command, Connection, RemotingClient

SMALL = StoreConfig(
    mapped_file_size_commit_log=16 << 20,
    mapped_file_size_consume_queue=6000 * 20,
    max_hash_slot_num=1000,
    max_index_num=4000,
)
SECONDS = 20.0


def config(
    path: Path, *, flush: str = "sync", store: dict[str, Any] | None = None, **settings: Any
) -> BrokerConfig:
    small = SMALL.replace(flush_disk_type=flush, **(store or {}))
    given = {"listen_port": 0, "namesrv_port": 0, **settings}
    return BrokerConfig(store_path=str(path / "store"), store=small, **given)


class Client:
    """One client: one connection, requests by number, and what the broker sent of its own accord."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.pushed: asyncio.Queue[Command] = asyncio.Queue()
        self.replies: Callable[[Command], Command | None] = lambda command: None
        codes = (39, 40, 326)
        self.remoting = RemotingClient(dict.fromkeys(codes, self._take))

    def _take(self, connection: Connection, command: Command) -> Command | None:
        self.pushed.put_nowait(command)
        return self.replies(command)

    async def call(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b"", **more: Any
    ) -> Command:
        command = Command.request(code, fields or {}, body)
        for name, value in more.items():
            setattr(command, name, value)
        return await self.remoting.call(self.address, command, SECONDS)

    async def oneway(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> None:
        await self.remoting.oneway(self.address, Command.request(code, fields or {}, body, oneway=True))

    async def send(
        self, topic: str, body: bytes = b"hello", *, queue: int = 0, properties: str = "", **more: str
    ) -> Command:
        return await self.call(310, send_fields(topic, queue=queue, properties=properties, **more), body)

    async def pull(self, topic: str, offset: int = 0, **more: Any) -> Command:
        return await self.call(11, pull_fields(topic, offset, **more))

    async def heartbeat(
        self,
        group: str,
        topic: str,
        *,
        tags: str = "*",
        version: int = 1,
        client: str = "c1",
        producers: tuple[str, ...] = (),
        model: str = "CLUSTERING",
        **more: Any,
    ) -> Command:

        subscriptions = [
            {"topic": topic, "subString": tags, "subVersion": version, "expressionType": "TAG"},
            {"topic": f"%RETRY%{group}", "subString": "*", "subVersion": version, "expressionType": "TAG"},
        ]
        consumers = [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": model,
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": subscriptions,
            }
        ]
        beat = {
            "clientID": client,
            "consumerDataSet": consumers if group else [],
            "producerDataSet": [{"groupName": name} for name in producers],
            **more,
        }
        return await self.call(34, body=json.dumps(beat).encode())

    async def next_push(self) -> Command:
        return await asyncio.wait_for(self.pushed.get(), SECONDS)

    async def close(self) -> None:
        await self.remoting.close()


def send_fields(topic: str, *, queue: int = 0, properties: str = "", **more: str) -> dict[str, str]:
    fields = {
        "a": "P",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "0",
        "g": "1794715869048",
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
    }
    return {**fields, **more}


def pull_fields(
    topic: str,
    offset: int,
    *,
    queue: int = 0,
    group: str = "G",
    flags: int = 4,
    tags: str = "*",
    hold_ms: int = 15_000,
    commit: int = 0,
    count: int = 32,
) -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": str(count),
        "sysFlag": str(flags),
        "commitOffset": str(commit),
        "suspendTimeoutMillis": str(hold_ms),
        "subscription": tags,
        "subVersion": "0",
        "expressionType": "TAG",
    }


def properties_text(**properties: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def records(answer: Command) -> list[RecordFields]:
    return list(_records(bytes(answer.body)))


def _records(body: bytes) -> Iterator[RecordFields]:
    at = 0
    while at < len(body):
        (size,) = struct.unpack_from(">i", body, at)
        yield decode_record(body[at : at + size])
        at += size


def batch(*items: tuple[bytes, bytes]) -> bytes:
    made = b""
    for body, properties in items:
        size = 22 + len(body) + len(properties)
        made += struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body
        made += struct.pack(">h", len(properties)) + properties
    return made


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that comes by itself."""
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.002)


def play(path: Path, scene: Callable[[Broker, Client], Awaitable[None]], **settings: Any) -> None:
    """A broker, a client and what they say to each other."""

    async def run() -> None:
        async with Broker(config(path, **settings)) as broker:
            client = Client(broker.address)
            try:
                async with asyncio.timeout(60):
                    await scene(broker, client)
            finally:
                await client.close()

    asyncio.run(run())
