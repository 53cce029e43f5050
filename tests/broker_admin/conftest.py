"""A real broker on a free port and a client that asks it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.broker import Broker
from penstock.config import BrokerConfig, StoreConfig
from penstock.format.javajson import parse
from penstock.remoting import Command, Connection, RemotingClient

SMALL = StoreConfig(
    flush_disk_type="async",
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=20 * 1000,
    max_hash_slot_num=1000,
    max_index_num=4000,
    timer_wheel_enable=False,
)


class Operator:
    """Asks a broker as an operator's tool does."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.client = RemotingClient({40: lambda connection, command: None})

    async def ask(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        given = {key: str(value) for key, value in fields.items()}
        return await self.client.call(self.broker.address, Command.request(code, given, body), 20)

    async def done(self, code: int, body: bytes = b"", **fields: Any) -> Any:
        """The body of an answer that must be a success, read as RocketMQ's tools read it."""
        answer = await self.ask(code, body, **fields)
        assert answer.code == 0, answer
        return parse(str(answer.body, "utf-8")) if answer.body else None

    async def refused(self, code: int, body: bytes = b"", **fields: Any) -> tuple[int, str | None]:
        answer = await self.ask(code, body, **fields)
        assert answer.code != 0, answer
        return answer.code, answer.remark

    async def create(self, topic: str, queues: int = 2, **changes: Any) -> None:
        fields = {"readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "order": "false"}
        fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
        await self.done(17, topic=topic, **{**fields, **changes})

    async def send(self, topic: str, body: bytes, queue: int = 0, properties: str = "") -> Command:
        answer = await self.ask(
            310, body, a="P", b=topic, c="TBW102", d=4, e=queue, f=0, g=1, h=0, i=properties, j=0, k="false"
        )
        assert answer.code == 0, answer
        return answer

    async def heartbeat(self, group: str, topic: str, client_id: str = "me@1") -> Connection:
        """Be a consumer of a group; the connection that the broker knows us by."""
        beat = (
            f'{{"clientID":"{client_id}","consumerDataSet":[{{"groupName":"{group}",'
            '"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
            '"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":['
            f'{{"topic":"{topic}","subString":"*","subVersion":5}}]}}],'
            '"producerDataSet":[{"groupName":"PG"}]}'
        )
        await self.done(34, beat.encode())
        return self.client.connections[self.broker.address]


Scenario = Callable[[Operator], Awaitable[None]]


@pytest.fixture
def operate(tmp_path: Path) -> Callable[..., None]:
    """Run a scenario against a broker of its own."""

    def run(scenario: Scenario, seconds: float = 60, **changes: Any) -> None:
        async def main() -> None:
            given: dict[str, Any] = {"listen_port": 0, "namesrv_port": 0, "store": SMALL}
            config = BrokerConfig(store_path=str(tmp_path / "store"), **{**given, **changes})
            async with Broker(config) as broker:
                operator = Operator(broker)
                try:
                    await asyncio.wait_for(scenario(operator), seconds)
                finally:
                    await operator.client.close()

        asyncio.run(main())

    return run


def queue(topic: str, number: int) -> tuple[tuple[str, Any], ...]:
    """A queue as a key of a parsed map."""
    return (("brokerName", "broker-a"), ("queueId", number), ("topic", topic))
