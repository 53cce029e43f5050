"""Figures, settings and the page for monitoring."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from broker_admin.conftest import SMALL, Operator
from golden_wire import conversation
from penstock.format.javajson import parse
from penstock.remoting.command import decode

Operate = Callable[..., None]


def test_runtime_info_has_every_key_that_tools_print(operate: Operate) -> None:
    _, frames = conversation("mqadmin-brokerStatus")
    theirs = parse(bytes(decode(frames[-1].frame).body).decode())["table"]

    async def scenario(operator: Operator) -> None:
        await operator.create("T", 1)
        await operator.send("T", b"one")
        ours = (await operator.done(28))["table"]
        missing = {key for key in theirs if "_" not in key} - ours.keys()
        # There are no queues before pools of threads that could be full, and reads are not timed.
        assert {key for key in missing if not key.endswith("ThreadPoolQueueCapacity")} == {
            "getMessageEntireTimeMax"
        }
        assert all(isinstance(value, str) for value in ours.values())
        assert ours["msgPutTotalTodayNow"] == "1"
        assert int(ours["commitLogMaxOffset"]) > 0
        assert float(ours["putTps"].split(" ")[0]) >= 0

    operate(scenario)


def test_runtime_info_tells_how_long_sends_waited_for_the_disk(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 1)
        for number in range(20):
            await operator.send("T", b"%d" % number)
        found = (await operator.done(28))["table"]
        counts = [int(part.rpartition(":")[2]) for part in found["putMessageDistributeTime"].split()]
        assert sum(counts) == int(found["putMessageTimesTotal"]) == 20
        assert 0 < float(found["putLatency99"]) <= float(found["putLatency999"])
        assert found["sendThreadPoolQueueSize"] == "0"

    operate(scenario, store=dataclasses.replace(SMALL, flush_disk_type="sync"))


def test_the_timer_says_how_far_it_is_and_what_waits(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 1)
        later = operator.broker.clock.now_ms() + 3_600_000
        await operator.send("T", b"later", properties=f"TIMER_DELIVER_MS\x01{later}\x02")
        found: dict[str, Any] = {}
        while not found:
            found = (await operator.done(61))["timingCount"]
        assert found["T"]["count"] == 1
        assert (await operator.done(28))["table"]["timerCongestNum"] == "1"
        answer = await operator.ask(60)
        assert answer.code == 0
        assert len(answer.body) == 56

    operate(scenario, store=dataclasses.replace(SMALL, timer_wheel_enable=True))


def test_a_broker_without_a_timer_has_no_checkpoint_of_one(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        assert await operator.refused(60) == (1, "The checkpoint is null")
        assert (await operator.done(61))["timingCount"] == {}

    operate(scenario)


def test_statistics_of_topics_and_groups(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 1)
        await operator.send("T", b"one")
        found = await operator.done(315, statsName="TOPIC_PUT_NUMS", statsKey="T")
        assert found["statsMinute"]["sum"] == 1
        missing = await operator.refused(315, statsName="GROUP_GET_NUMS", statsKey="T@G")
        assert missing == (1, "The stats <GROUP_GET_NUMS> <T@G> not exist")
        await operator.done(907)
        await operator.done(2003)
        await operator.done(306)
        await operator.done(329)

    operate(scenario)


def test_settings_are_shown_by_rocketmqs_names(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        answer = await operator.ask(26)
        lines = dict(line.split("=", 1) for line in bytes(answer.body).decode().splitlines())
        assert lines["brokerName"] == "broker-a"
        assert lines["flushDiskType"] == "ASYNC_FLUSH"
        assert lines["longPollingEnable"] == "true"
        assert parse(answer.fields["version"])["counter"] == 0

    operate(scenario)


def test_only_harmless_settings_can_be_set_from_afar(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.done(25, b"longPollingEnable=false\nshortPollingTimeMills=250\n")
        assert operator.broker.config.long_polling_enable is False
        assert operator.broker.config.short_polling_time_ms == 250
        assert parse((await operator.ask(26)).fields["version"])["counter"] == 1
        await operator.done(25, b"")
        # RocketMQ says yes to a setting it does not know, and nothing happens.
        assert await operator.refused(25, b"nosuchkey=1\n") == (16, "nosuchkey is no setting of this broker")
        assert (await operator.refused(25, b"waitTimeMillsInSendQueue=300\n"))[0] == 16
        assert (await operator.refused(25, b"x=\\u00zz"))[0] == 1

    operate(scenario)


@pytest.mark.parametrize(
    "line",
    [
        b"brokerConfigPath=/x",
        b"rocketmqHome=/tmp/x",
        b"storePathRootDir=/tmp/x",
        b"storePathCommitLog=/tmp/x",
        b"store_path=/tmp/x",
        b"filterServerNums=1\nrocketmqHome=-c $@|sh . echo touch /tmp/x",
        b"namesrvAddr=10.0.0.1:9876",
        b"brokerName=other",
        b"listenPort=1",
        b"brokerIP1=10.0.0.1",
        b"configBlackList=",
        b"longPollingEnable=false\nbrokerName=other",
    ],
)
def test_settings_with_paths_addresses_or_names_are_refused_whole(operate: Operate, line: bytes) -> None:
    async def scenario(operator: Operator) -> None:
        before = operator.broker.config
        assert await operator.refused(25, line) == (16, "Can not update config in black list.")
        assert operator.broker.config == before

    operate(scenario)


@pytest.mark.parametrize(
    "line",
    [
        b"longPollingEnable=5",
        b"shortPollingTimeMills=-1",
        b"shortPollingTimeMills=99999999999999999999999",
        b"brokerPermission=9",
    ],
)
def test_settings_out_of_range_are_refused(operate: Operate, line: bytes) -> None:
    async def scenario(operator: Operator) -> None:
        before = operator.broker.config
        assert (await operator.refused(25, line))[0] == 29
        assert operator.broker.config == before

    operate(scenario)


def test_key_value_configuration_of_the_embedded_name_server_survives_a_restart(operate: Operate) -> None:
    async def put(operator: Operator) -> None:
        await operator.done(100, namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4")

    async def get(operator: Operator) -> None:
        answer = await operator.ask(101, namespace="ORDER_TOPIC_CONFIG", key="T")
        assert answer.fields == {"value": "broker-a:4"}

    operate(put)
    operate(get)


def test_auto_creation_can_be_switched_off_while_the_broker_runs(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.send("Made", b"one")
        await operator.done(25, b"autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false\n")
        answer = await operator.ask(
            310, b"two", a="P", b="NotMade", c="TBW102", d=4, e=0, f=0, g=1, h=0, i="", j=0, k="false"
        )
        assert answer.code == 17
        assert "NotMade" not in operator.broker.topics
        assert (await operator.refused(352, group="nobody"))[0] == 26

    operate(scenario)


def test_broker_that_is_closed_for_writing_says_so_and_opens_again(operate: Operate) -> None:
    async def perm(operator: Operator, topic: str) -> int:
        return int((await operator.done(105, topic=topic))["queueDatas"][0]["perm"])

    async def scenario(operator: Operator) -> None:
        await operator.create("Ordered", 1, order="true")
        await operator.send("Ordered", b"one")
        await operator.send("Ordered", b"two")
        await operator.done(25, b"brokerPermission=4\n")
        assert await perm(operator, "Ordered") == 4
        with pytest.raises(AssertionError, match="sending message is forbidden"):
            await operator.send("Ordered", b"three")
        await operator.done(25, b"brokerPermission=6\n")
        assert await perm(operator, "Ordered") == 6
        await operator.send("Ordered", b"four")

    operate(scenario)
