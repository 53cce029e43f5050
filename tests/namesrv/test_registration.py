"""Our broker registers with name servers: the one in its process, and others over the network."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.broker import Broker
from penstock.broker.registration import Registration
from penstock.broker.topics import TopicConfig, Topics
from penstock.clock import SystemClock
from penstock.config import BrokerConfig
from penstock.namesrv import NameServer, NameServerService
from penstock.remoting import RemotingServer

ADDRESS = "127.0.0.1:10911"


def topics_of(config: BrokerConfig) -> Topics:
    topics = Topics(config, SystemClock())
    topics.add_boot_topics(18, [])
    return topics


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(scenario(), 60)

    asyncio.run(main())


def test_embedded_name_server_knows_topics_as_they_come_and_go() -> None:
    async def scenario() -> None:
        server, config = NameServer(), BrokerConfig()
        topics = topics_of(config)
        registration = Registration(config, topics, ADDRESS, embedded=server)
        registration.start()
        assert server.route("TBW102") is not None
        topics.put(TopicConfig("T", 4, 4))
        route = server.route("T")
        assert route is not None
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": ADDRESS}
        topics.delete("T")
        assert server.route("T") is None
        await registration.stop()
        assert server.brokers() == {}

    run(scenario)


def test_other_name_servers_learn_of_new_topics_at_once_and_of_the_leaving() -> None:
    async def scenario() -> None:
        first, second = NameServerService(), NameServerService()
        addresses = [await each.start("127.0.0.1", 0) for each in (first, second)]
        config = BrokerConfig(namesrv_addr=";".join(addresses), namesrv_embedded=False)
        topics = topics_of(config)
        registration = Registration(config, topics, ADDRESS)
        registration.start()
        for service in (first, second):
            await until(lambda server=service.name_server: server.route("TBW102") is not None)  # type: ignore[misc]
        topics.put(TopicConfig("A", 4, 4))
        topics.put(TopicConfig("B", 2, 2))
        for service in (first, second):
            known = service.name_server
            await until(lambda known=known: None not in (known.route("A"), known.route("B")))  # type: ignore[misc]
            assert known.version_of("DefaultCluster", ADDRESS) == topics.version
        await registration.stop()
        assert first.name_server.brokers() == second.name_server.brokers() == {}
        await first.stop()
        await second.stop()

    run(scenario)


def test_name_server_that_comes_back_empty_gets_everything_again() -> None:
    async def scenario() -> None:
        service = NameServerService()
        address = await service.start("127.0.0.1", 0)
        config = BrokerConfig(namesrv_addr=address, namesrv_embedded=False)
        topics = topics_of(config)
        registration = Registration(config, topics, ADDRESS)
        registration.start()
        await until(lambda: service.name_server.route("TBW102") is not None)
        await service.stop()
        again = NameServerService()
        await again.start("127.0.0.1", int(address.rpartition(":")[2]))
        topics.put(TopicConfig("A", 4, 4))
        await until(lambda: again.name_server.route("A") is not None)
        assert again.name_server.route("TBW102") is not None
        await registration.stop()
        await again.stop()

    run(scenario)


def test_broker_that_may_not_be_written_to_registers_so() -> None:
    async def scenario() -> None:
        server, config = NameServer(), BrokerConfig(broker_permission=4)
        topics = topics_of(config)
        registration = Registration(config, topics, ADDRESS, embedded=server)
        registration.start()
        route = server.route("TBW102")
        assert route is not None and route["queueDatas"][0]["perm"] == 5
        await registration.stop()

    run(scenario)


def test_whoever_finds_the_broker_finds_its_name_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    listen = RemotingServer.start

    async def start(server: RemotingServer, host: str, port: int) -> int:
        opened.append(await listen(server, host, port))
        return opened[-1]

    async def scenario() -> None:
        config = BrokerConfig(store_path=str(tmp_path / "store"), listen_port=0, namesrv_port=0)
        async with Broker(config) as broker:
            ports = [int(each.rpartition(":")[2]) for each in (broker.namesrv_address, broker.address)]
            assert opened == ports

    monkeypatch.setattr(RemotingServer, "start", start)
    run(scenario)
