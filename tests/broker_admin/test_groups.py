"""Groups, their progress, their members, their offsets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from broker_admin.conftest import Operator, queue
from penstock.remoting import Command, Connection

Operate = Callable[..., None]


def test_group_is_created_listed_shown_and_deleted(operate: Operate, tmp_path: Path) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.done(200, b'{"groupName":"G","retryMaxTimes":5,"consumeBroadcastEnable":false}')
        config = await operator.done(352, group="G")
        assert (config["retryMaxTimes"], config["consumeBroadcastEnable"]) == (5, False)
        saved = json.loads((tmp_path / "store" / "config" / "subscriptionGroup.json").read_text())
        assert saved["subscriptionGroupTable"]["G"]["retryMaxTimes"] == 5
        assert (await operator.done(201))["subscriptionGroupTable"]["G"] == config
        page = await operator.ask(201, groupSeq=0, maxGroupNum=2, dataVersion="")
        assert len(json.loads(bytes(page.body))["subscriptionGroupTable"]) == 2
        assert int(page.fields["totalGroupNum"]) == len(operator.broker.groups)
        await operator.done(225, b'{"groupConfigList":[{"groupName":"H"}]}')
        assert "H" in operator.broker.groups
        operator.broker.commit_offset("G", "T", 0, 7)
        await operator.done(207, groupName="G", cleanOffset="true")
        assert "G" not in operator.broker.groups
        assert operator.broker.consumer_offsets.offsets("G", "T") == {}
        await operator.done(207, groupName="G")

    operate(scenario)


def test_wrong_groups_are_refused(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        illegal = (
            "The specified group: bad name, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        )
        assert await operator.refused(200, b'{"groupName":"bad name"}') == (29, illegal)
        for body in (b"", b"[]", b"{}", b'{"groupName":"G","retryMaxTimes":"x"}', b'{"groupName":5}x'):
            code, remark = await operator.refused(200, body)
            assert code in (1, 29) and remark
        assert "G" not in operator.broker.groups

    operate(scenario)


def test_unknown_group_is_made_only_where_groups_may_be(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        assert await operator.refused(352, group="G") == (26, "No group in this broker")

    operate(scenario, auto_create_subscription_group=False)


def test_progress_shows_every_queue(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 2)
        for number in range(3):
            await operator.send("T", b"%d" % number, 1)
        await operator.done(200, b'{"groupName":"G"}')
        assert (await operator.done(208, consumerGroup="G")) == {"consumeTps": 0, "offsetTable": {}}
        await operator.done(15, consumerGroup="G", topic="T", queueId=1, commitOffset=2)
        found = await operator.done(208, consumerGroup="G")
        rows = found["offsetTable"]
        assert rows[queue("T", 0)]["brokerOffset"] == 0
        assert (rows[queue("T", 1)]["brokerOffset"], rows[queue("T", 1)]["consumerOffset"]) == (3, 2)
        assert rows[queue("T", 1)]["lastTimestamp"] > 1_600_000_000_000
        everything = await operator.done(317, isOrder="false")
        assert everything["totalDiff"] == 1
        assert {"G": [found]} in everything["consumeStatsList"]
        spans = (await operator.done(303, topic="T", group="G"))["consumeTimeSpanSet"]
        assert len(spans) == 2 and spans[1]["maxTimeStamp"] >= spans[1]["minTimeStamp"] > 0
        assert await operator.refused(303, topic="Nope", group="G") == (17, "topic[Nope] not exist")
        assert (await operator.done(343, group="G"))["topicList"] == ["T"]
        assert (await operator.done(343, group="nobody"))["topicList"] == []

    operate(scenario)


def test_members_are_listed(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 1)
        assert await operator.refused(203, consumerGroup="G") == (206, "the consumer group[G] not online")
        assert await operator.refused(204, producerGroup="PG") == (1, "the producer group[PG] not exist")
        connection = await operator.heartbeat("G", "T", "10.0.0.5@8821#1")
        found = await operator.done(203, consumerGroup="G")
        address = f"127.0.0.1:{connection.local[1]}"
        member = {"clientAddr": address, "clientId": "10.0.0.5@8821#1", "language": "PYTHON", "version": 479}
        assert found["connectionSet"] == [member]
        assert found["subscriptionTable"]["T"]["subVersion"] == 5
        assert (await operator.done(204, producerGroup="PG"))["connectionSet"] == [member]
        rows = (await operator.done(328))["data"]["PG"]
        assert rows[0]["remoteIP"] == f"/{address}" and rows[0]["lastUpdateTimestamp"] > 1_600_000_000_000
        known = await operator.done(345, group="G", topic="T")
        assert known["subscriptionData"]["topic"] == "T"
        assert await operator.done(345, group="X", topic="T") == {"group": "X", "topic": "T"}

    operate(scenario)


def test_questions_are_passed_on_to_the_consumer(operate: Operate) -> None:
    seen: list[Command] = []

    def running_info(connection: Connection, command: Command) -> Command:
        seen.append(command)
        return command.answer(fields={"x": "y"}, body=b'{{"no":"json"}:1}', remark="mine")

    def consume(connection: Connection, command: Command) -> Command:
        seen.append(command)
        return command.answer(body=b'{"consumeResult":"CR_SUCCESS"}')

    def status(connection: Connection, command: Command) -> Command:
        return command.answer(body=b'{"messageQueueTable":{{"queueId":0,"topic":"T{\\"}"}:5}}')

    async def scenario(operator: Operator) -> None:
        operator.client.handlers = {40: lambda c, r: None, 307: running_info, 309: consume, 221: status}
        await operator.create("T", 1)
        sent = await operator.send("T", b"payload", 0)
        await operator.heartbeat("G", "T", "c1")
        answer = await operator.ask(307, consumerGroup="G", clientId="c1", jstackEnable="false")
        assert (answer.code, answer.remark, bytes(answer.body)) == (0, "mine", b'{{"no":"json"}:1}')
        assert seen[0].fields["jstackEnable"] == "false"
        direct = await operator.ask(309, consumerGroup="G", clientId="c1", msgId=sent.fields["msgId"])
        assert json.loads(bytes(direct.body)) == {"consumeResult": "CR_SUCCESS"}
        assert b"payload" in bytes(seen[1].body) and seen[1].fields["brokerName"] == "broker-a"
        states = await operator.ask(223, topic="T", group="G")
        assert bytes(states.body) == b'{"consumerTable":{"c1":{{"queueId":0,"topic":"T{\\"}"}:5}}}'
        for code in (307, 309):
            expected = (1, "The Consumer <G> <c2> not online")
            given = {"consumerGroup": "G", "clientId": "c2", "msgId": sent.fields["msgId"]}
            assert await operator.refused(code, **given) == expected
        assert (await operator.refused(309, consumerGroup="G", clientId="c1", msgId="zz"))[0] == 1
        assert (await operator.refused(223, topic="T", group="nobody"))[0] == 1

    operate(scenario)


def test_consumer_that_leaves_while_it_is_asked_is_an_answer(operate: Operate) -> None:
    def leave(connection: Connection, command: Command) -> None:
        connection.close("gone")

    async def scenario(operator: Operator) -> None:
        other = Operator(operator.broker)
        other.client.handlers = {40: lambda c, r: None, 307: leave}
        await other.heartbeat("G", "T", "c1")
        code, remark = await operator.refused(307, consumerGroup="G", clientId="c1")
        assert code == 1 and remark is not None and "Exception" in remark
        await other.client.close()

    operate(scenario)


def test_offsets_are_reset_and_a_held_pull_learns_of_it_at_once(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 2)
        for number in range(3):
            await operator.send("T", b"%d" % number, 0)
        await operator.heartbeat("G", "T")
        await operator.done(15, consumerGroup="G", topic="T", queueId=0, commitOffset=3)
        held = asyncio.ensure_future(
            operator.ask(
                11,
                consumerGroup="G",
                topic="T",
                queueId=0,
                queueOffset=3,
                maxMsgNums=32,
                sysFlag=2,
                commitOffset=0,
                suspendTimeoutMillis=30000,
                subVersion=5,
            )
        )
        while not len(operator.broker.holding):
            await asyncio.sleep(0.001)
        found = await operator.done(222, group="G", topic="T", timestamp=0, isForce="true")
        assert found == {"offsetTable": {queue("T", 0): 0, queue("T", 1): 0}}
        answer = await held
        assert (answer.code, answer.fields["nextBeginOffset"]) == (21, "0")
        assert (await operator.ask(14, consumerGroup="G", topic="T", queueId=0)).fields == {"offset": "0"}
        one = {"group": "G", "topic": "T", "queueId": 0, "timestamp": 0, "isForce": "true"}
        assert await operator.done(222, offset=2, **one) == {"offsetTable": {queue("T", 0): 2}}
        wrong = (1, "Target offset 99 not in consume queue range [0-3]")
        assert await operator.refused(222, offset=99, **one) == wrong
        last = await operator.done(222, group="G", topic="T", timestamp=-1, isForce="true")
        assert last["offsetTable"][queue("T", 0)] == 3
        assert await operator.refused(222, group="G", topic="X", timestamp=0) == (
            17,
            "Topic X does not exist",
        )
        assert await operator.refused(222, group="X", topic="T", timestamp=0) == (
            26,
            "Group X does not exist",
        )

    operate(scenario)


def test_offsets_are_cloned_and_shown(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 2)
        await operator.done(200, b'{"groupName":"G"}')
        await operator.done(15, consumerGroup="G", topic="T", queueId=1, commitOffset=9)
        await operator.done(314, srcGroup="G", destGroup="H", topic="T", offline="false")
        table = (await operator.done(43))["offsetTable"]
        assert table["T@H"] == table["T@G"] == {1: 9}
        assert (await operator.done(45))["offsetTable"] == {}

    operate(scenario)


def test_a_group_may_be_forbidden_a_topic_and_that_is_kept(operate: Operate, tmp_path: Path) -> None:
    pull = {"consumerGroup": "G", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 0}
    pull |= {"commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}

    async def forbid(operator: Operator) -> None:
        await operator.create("T", 1)
        await operator.send("T", b"one")
        await operator.heartbeat("G", "T")
        assert (await operator.ask(11, **pull)).code == 0
        allowed = {"group": "G", "readable": True, "topic": "T"}
        assert await operator.done(353, group="G", topic="T") == allowed
        assert not (await operator.done(353, group="G", topic="T", readable="false"))["readable"]
        assert (await operator.ask(11, **pull)).code == 16
        assert (await operator.refused(353, group="G", topic="no topic", readable="false"))[0] == 29

    async def allow(operator: Operator) -> None:
        saved = json.loads((tmp_path / "store" / "config" / "subscriptionGroup.json").read_text())
        assert saved["forbiddenTable"] == {"G": {"T": 4}}
        await operator.heartbeat("G", "T")
        assert (await operator.ask(11, **pull)).code == 16
        assert (await operator.done(353, group="G", topic="T", readable="true"))["readable"]
        assert (await operator.ask(11, **pull)).code == 0
        assert operator.broker.groups.forbidden == {}

    operate(forbid)
    operate(allow)
