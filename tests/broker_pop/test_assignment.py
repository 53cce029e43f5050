"""Who consumes which queue, as the broker says it (protocol 3.9)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.talking import config
from broker_pop.popping import Client, ack, make_topic, play, pop, until
from penstock.broker import Broker
from penstock.broker.popassign import STRATEGIES
from penstock.broker.topicroutes import TopicRoutes
from penstock.config import BrokerConfig
from penstock.remoting import Command, Connection, RemotingClient, RemotingServer


async def places(client: Client, client_id: str, **more: Any) -> Any:
    """Broker, queue and mode of everything that the client is given."""
    asked = {
        "clientId": client_id,
        "consumerGroup": "G",
        "messageModel": "CLUSTERING",
        "strategyName": "AVG",
        "topic": "T",
        **more,
    }
    answer = await client.call(400, body=json.dumps(asked).encode())
    assert answer.code == 0
    found = json.loads(bytes(answer.body))
    if not found:
        return None
    return [
        (each["messageQueue"]["brokerName"], each["messageQueue"]["queueId"], each["mode"])
        for each in found["messageQueueAssignments"]
    ]


async def assigned(client: Client, client_id: str, **more: Any) -> Any:
    """The same of a topic that one broker has."""
    found = await places(client, client_id, **more)
    return None if found is None else [place[1:] for place in found]


async def set_mode(client: Client, mode: str, share: int = 0, topic: str = "T") -> int:
    body = {"consumerGroup": "G", "mode": mode, "popShareQueueNum": share, "topic": topic}
    return (await client.call(401, body=json.dumps(body).encode())).code


def test_a_group_is_told_to_pull_or_to_pop_and_that_is_kept(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        assert await assigned(client, "c1") is None
        await client.heartbeat("G", "T", client="c1")
        assert await assigned(client, "c1") == [(0, "PULL"), (1, "PULL"), (2, "PULL"), (3, "PULL")]
        assert await assigned(client, "c1", strategyName="NONSENSE") is None
        assert await assigned(client, "c1", topic="Nope") is None
        assert await assigned(client, "stranger") == []
        assert await set_mode(client, "POP") == 0
        assert await assigned(client, "c1") == [(-1, "POP")]
        assert await set_mode(client, "POP", 1) == 0
        assert await assigned(client, "c1") == [(queue, "POP") for queue in range(4)]
        assert await assigned(client, "c1", topic="%RETRY%G", messageModel="BROADCASTING") in (
            None,
            [(0, "PULL")],
        )
        assert await set_mode(client, "POP", topic="%RETRY%G") == 16
        assert await set_mode(client, "POP", topic="Nope") == 17

    async def later(broker: Broker, client: Client) -> None:
        await client.heartbeat("G", "T", client="c1")
        assert await assigned(client, "c1") == [(queue, "POP") for queue in range(4)]
        modes = json.loads(bytes((await client.call(402)).body))
        assert modes["messageRequestModeMap"]["T"]["G"]["popShareQueueNum"] == 1

    play(tmp_path, scene, queues=4)
    play(tmp_path, later, queues=4)


Pair = dict[tuple[str, str], Client]
"""A connection of each consumer to each broker."""


@asynccontextmanager
async def two_brokers(path: Path) -> AsyncIterator[tuple[Broker, Pair]]:
    """The broker with the name server, and consumers c1 and c2: T has 2 queues on broker a, 3 on b."""
    async with AsyncExitStack() as running:
        first = await running.enter_async_context(Broker(config(path / "a", broker_name="a")))
        names = first.name_server
        assert names is not None
        settings = {"namesrv_addr": first.namesrv_address, "namesrv_embedded": False, "broker_name": "b"}
        second = await running.enter_async_context(Broker(config(path / "b", **settings)))
        clients: Pair = {}
        for name, broker, queues in (("a", first, 2), ("b", second, 3)):
            for consumer in ("c1", "c2"):
                client = clients[consumer, name] = Client(broker.address)
                running.push_async_callback(client.close)
                await make_topic(client, "T", queues)
                await client.heartbeat("G", "T", client=consumer)
        await until(lambda: len((names.route("T") or {"queueDatas": []})["queueDatas"]) == 2)
        yield first, clients


def test_a_topic_of_two_brokers_is_shared_out_whole_whichever_is_asked(tmp_path: Path) -> None:
    async def scene() -> None:
        whole = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
        async with two_brokers(tmp_path) as (_, clients), asyncio.timeout(60):
            for name in ("a", "b"):
                shares = [await places(clients[each, name], each) for each in ("c1", "c2")]
                assert shares == [
                    [(*place, "PULL") for place in whole[:3]],
                    [(*place, "PULL") for place in whole[3:]],
                ]
                everything = await places(clients["c1", name], "c1", messageModel="BROADCASTING")
                assert everything == [(*place, "PULL") for place in whole]
                assert await set_mode(clients["c1", name], "POP", 1) == 0
                shared = await places(clients["c1", name], "c1")
                assert shared == [(*place, "POP") for place in whole]
                assert await set_mode(clients["c1", name], "POP") == 0
                assert await places(clients["c1", name], "c1") == [("a", -1, "POP"), ("b", -1, "POP")]

    asyncio.run(scene())


def test_a_group_that_pops_where_it_is_told_to_gets_the_messages_of_both_brokers(tmp_path: Path) -> None:
    async def scene() -> None:
        async with two_brokers(tmp_path) as (_, clients), asyncio.timeout(60):
            sent = set()
            for name, queues in (("a", 2), ("b", 3)):
                assert await set_mode(clients["c1", name], "POP") == 0
                for queue in range(queues):
                    body = f"{name}{queue}"
                    assert (await clients["c1", name].send("T", body.encode(), queue=queue)).code == 0
                    sent.add(body)
            got = []
            for broker, queue, _ in await places(clients["c2", "b"], "c2"):
                given = await pop(clients["c2", broker], queueId=queue)
                assert await ack(clients["c2", broker], *given) == [0] * len(given)
                got += [each.body.decode() for each in given]
            assert sorted(got) == sorted(sent)

    asyncio.run(scene())


def test_a_name_server_that_does_not_answer_takes_no_queues_away() -> None:
    def route(connection: Connection, command: Command) -> Command:
        asked.append(command.fields["topic"])
        parts = [{"brokerName": "b", "perm": 6, "readQueueNums": 2, "writeQueueNums": 2, "topicSysFlag": 0}]
        return command.answer(0, body=json.dumps({"brokerDatas": [], "queueDatas": parts}).encode())

    async def scene() -> None:
        server = RemotingServer({105: route})
        port = await server.start("127.0.0.1", 0)
        settings = BrokerConfig(broker_name="a", namesrv_addr=f"127.0.0.1:{port}", namesrv_embedded=False)
        client = RemotingClient()
        routes = TopicRoutes(settings, client, lambda: now[0])
        try:
            whole = [("a", 0), ("b", 0), ("b", 1)]
            assert await asyncio.gather(*(routes.queues("T", 1) for _ in range(3))) == [whole] * 3
            assert asked == ["T"]
            await server.stop()
            now[0] += 60
            assert await routes.queues("T", 1) == whole
            assert await routes.queues("U", 1) == [("a", 0)]
        finally:
            await client.close()

    asked: list[str] = []
    now = [0.0]
    asyncio.run(scene())


@pytest.mark.parametrize(
    "route",
    [[], {}, {"queueDatas": 3}, {"queueDatas": [3]}, {"queueDatas": [{"readQueueNums": -1}]}],
)
def test_an_answer_that_is_no_route_is_passed_over(route: object) -> None:
    async def scene() -> None:
        server = RemotingServer({105: lambda _, command: command.answer(0, body=json.dumps(route).encode())})
        port = await server.start("127.0.0.1", 0)
        settings = BrokerConfig(broker_name="a", namesrv_addr=f"127.0.0.1:{port}", namesrv_embedded=False)
        client = RemotingClient()
        try:
            assert await TopicRoutes(settings, client, lambda: 0.0).queues("T", 2) == [("a", 0), ("a", 1)]
        finally:
            await client.close()
            await server.stop()

    asyncio.run(scene())


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(sorted(STRATEGIES)))
def test_every_queue_has_one_owner(queues: int, clients: int, strategy: str) -> None:
    shares = [STRATEGIES[strategy](list(range(queues)), clients, index) for index in range(clients)]
    assert sorted(queue for share in shares for queue in share) == list(range(queues))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
