"""Brokers and name servers of both kinds find each other (needs Java and Maven)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.bench.peer import VERSIONS, Version, missing_tools
from penstock.bench.rocketmq import RocketMQ
from penstock.broker import Broker
from penstock.broker.topics import TopicConfig
from penstock.config import BrokerConfig, StoreConfig
from penstock.namesrv import NameServerService
from penstock.remoting import Command, RemotingClient, RequestCode

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(missing_tools()), reason=f"{' and '.join(missing_tools())} not found"),
]


async def route(client: RemotingClient, server: str, topic: str) -> dict[str, Any] | None:
    question = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    answer = await client.call(server, question, 10)
    return json.loads(bytes(answer.body)) if answer.code == 0 else None


async def eventually(look: Callable[[], Any]) -> None:
    """Wait until a condition, plain or awaited, is true."""
    while True:
        found = look()
        if await found if asyncio.iscoroutine(found) else found:
            return
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("version", VERSIONS)
def test_both_kinds_register_with_both_kinds(version: Version, tmp_path: Path) -> None:
    async def scenario(ours: NameServerService, peer: RocketMQ) -> None:
        client = RemotingClient()
        await asyncio.to_thread(peer.start)
        known = ours.name_server
        await eventually(lambda: known.route("TBW102") is not None)
        found = known.route("TBW102")
        assert found is not None
        assert found["brokerDatas"][0]["brokerAddrs"] == {"0": peer.address}

        async def theirs(topic: str) -> list[str]:
            answer = await route(client, peer.namesrv, topic)
            return [] if answer is None else sorted(each["brokerName"] for each in answer["queueDatas"])

        async def theirs_is(topic: str, names: list[str]) -> bool:
            return await theirs(topic) == names

        config = BrokerConfig(
            broker_name="broker-p",
            listen_port=0,
            namesrv_addr=f"{peer.namesrv};{ours.address}",
            namesrv_embedded=False,
            store_path=str(tmp_path / "ours"),
            store=StoreConfig(mapped_file_size_commit_log=1 << 20, flush_disk_type="async"),
        )
        async with Broker(config) as broker:
            await eventually(lambda: theirs_is("TBW102", ["broker-a", "broker-p"]))
            broker.topics.put(TopicConfig("NewTopic", 3, 3))
            await eventually(lambda: theirs_is("NewTopic", ["broker-p"]))
            answer = await route(client, peer.namesrv, "NewTopic")
            assert answer is not None
            assert answer["brokerDatas"][0]["brokerAddrs"] == {"0": broker.address}
            assert answer["queueDatas"][0]["writeQueueNums"] == 3
            await eventually(lambda: known.route("NewTopic") is not None)
        assert known.route("NewTopic") is None
        # RocketMQ's name server answers first, and a thread of its own removes later.
        await eventually(lambda: theirs_is("NewTopic", []))
        await eventually(lambda: theirs_is("TBW102", ["broker-a"]))
        await asyncio.to_thread(peer.stop)
        await eventually(lambda: known.route("TBW102") is None)
        await client.close()

    async def main() -> None:
        ours = NameServerService()
        address = await ours.start("127.0.0.1", 0)
        peer = RocketMQ(tmp_path / "peer", version)
        peer._settings["namesrvAddr"] = f"{peer.namesrv};{address}"
        try:
            await asyncio.wait_for(scenario(ours, peer), 240)
        finally:
            await asyncio.to_thread(peer.close)
            await ours.stop()

    asyncio.run(main())
