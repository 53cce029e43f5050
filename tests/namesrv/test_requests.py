"""The name server's requests over a real connection, with what real brokers and tools sent."""

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable

import pytest

from golden_wire import conversation
from penstock.format.javajson import parse
from penstock.namesrv import NameServerService
from penstock.namesrv.registration import read_registration
from penstock.remoting import Command, RemotingClient, RequestCode
from penstock.remoting.command import decode

Ask = Callable[[Command], Awaitable[Command]]


def serve(scenario: Callable[[NameServerService, Ask], Awaitable[None]]) -> None:
    async def main() -> None:
        service = NameServerService()
        client = RemotingClient()
        address = await service.start("127.0.0.1", 0)

        async def ask(command: Command) -> Command:
            return await client.call(address, command, 10)

        try:
            await asyncio.wait_for(scenario(service, ask), 60)
        finally:
            await client.close()
            await service.stop()

    asyncio.run(main())


def request(code: int, body: bytes = b"", **fields: str) -> Command:
    return Command.request(code, fields, body)


BOOT = ("register-boot", "register-unregister")


@pytest.mark.parametrize("name", BOOT)
def test_rocketmq_broker_registers_as_recorded(name: str) -> None:
    _, frames = conversation(name)

    async def scenario(service: NameServerService, ask: Ask) -> None:
        asked: dict[int, Command] = {}
        for recorded in frames:
            command = decode(recorded.frame)
            if recorded.to == "namesrv" and command.code not in (105,):
                answer = await ask(command)
                asked[command.opaque] = answer
            elif recorded.to == "client" and command.opaque in asked:
                ours = asked[command.opaque]
                assert (ours.code, ours.remark) == (command.code, command.remark)
                if command.body:
                    assert parse(bytes(ours.body).decode().replace('"0":', "0:")) == parse(
                        bytes(command.body).decode()
                    )
        topics = (await ask(request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))).body
        names = json.loads(bytes(topics))["topicList"]
        if name == "register-boot":
            assert "TBW102" in names and "GoSync" in names
            route = await ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="GoSync"))
            assert bytes(route.body) == (
                b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:30911"},"brokerName":"broker-a",'
                b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},'
                b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,'
                b'"writeQueueNums":4}]}'
            )
        else:
            assert names == []

    serve(scenario)


def test_packed_registration_of_rocketmq_is_understood() -> None:
    _, frames = conversation("register-compressed")
    command = decode(frames[0].frame)
    assert command.code == RequestCode.REGISTER_BROKER
    body = read_registration(command.body)
    assert body.topics["TBW102"] == {
        "readQueueNums": 8,
        "writeQueueNums": 8,
        "perm": 7,
        "topicSysFlag": 0,
    }
    assert body.version.counter == 37

    async def scenario(service: NameServerService, ask: Ask) -> None:
        assert (await ask(command)).code == 0
        assert service.name_server.route("TBW102") is not None
        same = await ask(
            request(
                RequestCode.QUERY_DATA_VERSION,
                json.dumps(body.version.to_json()).encode(),
                brokerName="broker-a",
                brokerAddr="127.0.0.1:30911",
                clusterName="DefaultCluster",
                brokerId="0",
            )
        )
        assert same.fields == {"changed": "false"}

    serve(scenario)


@pytest.mark.parametrize(
    "body",
    [
        b"\x78\x9c",
        b"[]",
        b"{",
        b'{"topicConfigSerializeWrapper":[]}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":5}}}',
        zlib.compress(b"\x00\x00\x00\x02{}\x7f\xff\xff\xff"),
        zlib.compress(b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x01T"),
        zlib.compress(b"\xff\xff\xff\xff"),
        zlib.compress(bytes(65 << 20)),
    ],
)
def test_damaged_registration_is_refused_with_an_answer(body: bytes) -> None:
    async def scenario(service: NameServerService, ask: Ask) -> None:
        answer = await ask(
            request(
                103,
                body,
                brokerName="b",
                brokerAddr="127.0.0.1:1",
                clusterName="C",
                brokerId="0",
                haServerAddr="",
            )
        )
        assert answer.code == 1
        assert answer.remark
        assert service.name_server.brokers() == {}

    serve(scenario)


def test_answers_of_rocketmq_to_an_operators_requests_are_ours_too() -> None:
    _, frames = conversation("mqadmin-raw-errors")
    _, boot = conversation("register-boot")
    asked: dict[tuple[int, int], Command] = {}
    compared = 0

    async def scenario(service: NameServerService, ask: Ask) -> None:
        nonlocal compared
        assert (await ask(decode(boot[0].frame))).code == 0
        assert (
            await ask(request(100, namespace="ORDER_TOPIC_CONFIG", key="AdmOrd", value="broker-a:2"))
        ).code == 0
        for recorded in frames:
            command = decode(recorded.frame)
            if recorded.to == "namesrv":
                asked[recorded.connection, command.opaque] = command
                continue
            question = asked.get((recorded.connection, command.opaque))
            if recorded.to != "client" or question is None or question.fields.get("topic") == "GoSync":
                continue
            ours = await ask(question)
            assert (ours.code, ours.remark) == (command.code, command.remark), question
            if question.code in (101, 219, 304, 311) and command.body:
                mine, theirs = json.loads(bytes(ours.body)), json.loads(bytes(command.body))
                if question.code == 304:
                    assert sorted(mine.pop("topicList")) == sorted(theirs.pop("topicList"))
                assert mine == theirs
            assert ours.fields.keys() >= command.fields.keys()
            compared += 1

    serve(scenario)
    assert compared >= 14


def test_key_value_configuration_is_kept_and_listed() -> None:
    async def scenario(service: NameServerService, ask: Ask) -> None:
        assert (await ask(request(100, namespace="N", key="k", value="v"))).code == 0
        assert (await ask(request(101, namespace="N", key="k"))).fields == {"value": "v"}
        assert json.loads(bytes((await ask(request(219, namespace="N"))).body)) == {"table": {"k": "v"}}
        assert (await ask(request(102, namespace="N", key="k"))).code == 0
        assert (await ask(request(101, namespace="N", key="k"))).code == 22
        assert (await ask(request(102, namespace="M", key="k"))).code == 0

    serve(scenario)


def test_settings_that_name_files_can_not_be_set_from_afar() -> None:
    async def scenario(service: NameServerService, ask: Ask) -> None:
        for key in ("kvConfigPath", "configStorePath", "configBlackList", "rocketmqHome"):
            answer = await ask(request(318, f"{key}=/tmp/x\n".encode()))
            assert (answer.code, answer.remark) == (16, "Can not update config in black list.")
        lines = bytes((await ask(request(319))).body).decode().splitlines()
        assert all("=" in line for line in lines)

    serve(scenario)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"listenPort=1\n", "listenPort can't be set from afar"),
        (b"scanNotActiveBrokerInterval=6000\nnosuchkey=1\n", "nosuchkey can't be set from afar"),
        (b"scanNotActiveBrokerInterval=5\n", "scanNotActiveBrokerInterval is not between 1000 and 600000"),
        (b"scanNotActiveBrokerInterval=soon\n", "scanNotActiveBrokerInterval is no number of milliseconds"),
        (b"orderMessageEnable=maybe\n", "orderMessageEnable is neither true nor false"),
    ],
)
def test_other_settings_are_refused_whole_and_with_the_reason(text: bytes, why: str) -> None:
    async def scenario(service: NameServerService, ask: Ask) -> None:
        before = service.name_server.settings.lines()
        answer = await ask(request(318, text))
        assert answer.code == 16
        assert (answer.remark or "").startswith(why)
        assert service.name_server.settings.lines() == before

    serve(scenario)


def test_harmless_settings_take_effect_at_once() -> None:
    _, boot = conversation("register-boot")

    async def scenario(service: NameServerService, ask: Ask) -> None:
        assert (await ask(decode(boot[0].frame))).code == 0
        for topic, order in (("TBW102", "broker-a:2"), ("SELF_TEST_TOPIC", "no order at all")):
            await ask(request(100, namespace="ORDER_TOPIC_CONFIG", key=topic, value=order))
        assert "orderTopicConf" not in json.loads(bytes((await ask(request(105, topic="TBW102"))).body))
        changes = b"scanNotActiveBrokerInterval=6000\norderMessageEnable=true\nenableAllTopicList=false\n"
        assert (await ask(request(318, changes))).code == 0
        assert b"scanNotActiveBrokerInterval=6000\n" in bytes((await ask(request(319))).body)
        assert service.name_server.settings.scan_seconds == 6
        ordered = json.loads(bytes((await ask(request(105, topic="TBW102"))).body))
        assert ordered["orderTopicConf"] == "broker-a:2"
        # A text that makes clients fail stays here.
        other = json.loads(bytes((await ask(request(105, topic="SELF_TEST_TOPIC"))).body))
        assert "orderTopicConf" not in other
        listed = await ask(request(206))
        assert (listed.code, listed.remark) == (1, "disable")

    serve(scenario)


def test_topics_of_brokers_are_closed_opened_moved_and_removed() -> None:
    _, boot = conversation("register-boot")
    cluster = {"clusterName": "DefaultCluster", "brokerName": "broker-a"}

    async def scenario(service: NameServerService, ask: Ask) -> None:
        async def names(code: int, **fields: str) -> list[str]:
            return list(json.loads(bytes((await ask(request(code, **fields))).body))["topicList"])

        async def perm(topic: str) -> int:
            route = json.loads(bytes((await ask(request(105, topic=topic))).body))
            return int(route["queueDatas"][0]["perm"])

        assert (await ask(decode(boot[0].frame))).code == 0
        before = await perm("SELF_TEST_TOPIC")
        assert int((await ask(request(205, brokerName="broker-a"))).fields["wipeTopicCount"]) > 0
        assert await perm("SELF_TEST_TOPIC") == before & ~2
        assert int((await ask(request(327, brokerName="broker-a"))).fields["addTopicCount"]) > 0
        assert await perm("SELF_TEST_TOPIC") == before | 2
        route = b'{"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":1,"writeQueueNums":1}]}'
        assert (await ask(request(217, route, topic="New"))).code == 0
        assert "New" in await names(224, cluster="DefaultCluster")
        assert (await ask(request(216, topic="New"))).code == 0
        assert "New" not in await names(224, cluster="DefaultCluster")
        assert "broker-a" in await names(304)
        for code in (311, 312, 313):
            assert await names(code) == []
        group = json.loads(bytes((await ask(request(901, **cluster))).body))
        assert group["brokerMemberGroup"]["brokerName"] == "broker-a"
        assert (await ask(request(904, brokerAddr="127.0.0.1:30911", **cluster))).code == 0

    serve(scenario)


def test_broker_whose_connection_breaks_is_out_of_the_routes() -> None:
    _, boot = conversation("register-boot")

    async def scenario(service: NameServerService, ask: Ask) -> None:
        broker = RemotingClient()
        assert (await broker.call(service.address, decode(boot[0].frame))).code == 0
        assert service.name_server.route("TBW102") is not None
        await broker.close()
        while service.name_server.route("TBW102") is not None:
            await asyncio.sleep(0.001)

    serve(scenario)


@pytest.mark.parametrize("code", [100, 101, 102, 103, 104, 205, 216, 217, 219, 224, 322, 327, 901, 904])
def test_missing_header_fields_are_answered(code: int) -> None:
    async def scenario(service: NameServerService, ask: Ask) -> None:
        answer = await ask(request(code))
        assert answer.code == 1 and answer.remark

    serve(scenario)
