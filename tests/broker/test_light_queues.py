"""Light queues (LMQ): one message in many queues, each pulled by itself (store format 7.7)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.talking import Client, play, properties_text, records
from penstock.broker import Broker

LIGHT: dict[str, Any] = {"enable_lmq": True, "enable_multi_dispatch": True}


def named(*names: str, **more: str) -> str:
    return properties_text(INNER_MULTI_DISPATCH=",".join(names), **more)


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_message_is_pulled_from_every_light_queue_it_names(tmp_path: Path, flush: str) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T", b"0", properties=named("%LMQ%a", "%LMQ%b", UNIQ_KEY="K0"))
        await client.send("T", b"1", properties=named("%LMQ%b", UNIQ_KEY="K1"))
        answer = await client.pull("%LMQ%b", group="%LMQ%g")
        assert (answer.code, answer.fields["maxOffset"], answer.fields["nextBeginOffset"]) == (0, "2", "2")
        first, second = records(answer)
        assert (first.body, second.body, first.topic) == (b"0", b"1", "T")
        assert first.properties["INNER_MULTI_QUEUE_OFFSET"] == "0,0"
        assert second.properties["INNER_MULTI_QUEUE_OFFSET"] == "1"
        assert [record.body for record in records(await client.pull("%LMQ%a"))] == [b"0"]
        assert [record.body for record in records(await client.pull("T"))] == [b"0", b"1"]
        place = {"consumerGroup": "%LMQ%g", "topic": "%LMQ%b", "queueId": "0"}
        assert (await client.call(15, {**place, "commitOffset": "1"})).code == 0
        assert (await client.call(14, place)).fields == {"offset": "1"}
        assert (await client.call(30, {"topic": "%LMQ%b", "queueId": "0"})).fields == {"offset": "2"}

    async def again(broker: Broker, client: Client) -> None:
        assert [record.body for record in records(await client.pull("%LMQ%b"))] == [b"0", b"1"]
        place = {"consumerGroup": "%LMQ%g", "topic": "%LMQ%b", "queueId": "0"}
        assert (await client.call(14, place)).fields == {"offset": "1"}
        # Neither is a topic or a group that anybody has to look after.
        assert not [topic.name for topic in broker.topics if topic.name.startswith("%LMQ%")]
        assert not [group.name for group in broker.groups if group.name.startswith("%LMQ%")]

    play(tmp_path, scene, flush=flush, store=LIGHT)
    play(tmp_path, again, flush=flush, store=LIGHT)


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_whoever_waits_at_a_light_queue_is_told(tmp_path: Path, flush: str) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T", b"0", properties=named("%LMQ%a"))
        held = asyncio.create_task(client.pull("%LMQ%a", 1, flags=6, hold_ms=15_000))
        while not broker.dispatching.eager:
            await asyncio.sleep(0)
        await client.send("T", b"1", properties=named("%LMQ%a"))
        answer = await held
        assert [record.body for record in records(answer)] == [b"1"]

    play(tmp_path, scene, flush=flush, store=LIGHT)


def test_a_light_queue_is_no_way_into_another_topic(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("Other", b"theirs")
        answer = await client.send("T", b"mine", properties=named("%LMQ%a", "Other"))
        assert answer.code == 13
        assert len(records(await client.pull("Other"))) == 1

    play(tmp_path, scene, store=LIGHT)


def test_too_many_light_queues_take_no_more(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        for number in range(3):
            assert (await client.send("T", properties=named(f"%LMQ%{number}"))).code == 0
        answer = await client.send("T", properties=named("%LMQ%3"))
        assert answer.code == 1
        assert answer.remark is not None and answer.remark.startswith("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]")

    play(tmp_path, scene, store={**LIGHT, "max_lmq_consume_queue_num": 2})


def test_without_light_queues_the_property_is_only_a_property(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        assert (await client.send("T", properties=named("%LMQ%a"))).code == 0
        assert (await client.pull("%LMQ%a")).code == 17

    play(tmp_path, scene)
