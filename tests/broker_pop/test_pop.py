"""Pops: who is given what, for how long, and what becomes of it (protocol 3.9)."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest

from broker_pop.popping import (
    Client,
    SetClock,
    ack,
    change,
    make_topic,
    play,
    pop,
    pop_fields,
    records,
    until,
)
from penstock.broker import Broker
from penstock.store.coldread import Place

HOUR = 3_600_000


async def send(client: Client, count: int, *, topic: str = "T", queue: int = 0, tags: str = "a") -> None:
    for number in range(count):
        answer = await client.send(
            topic, f"m{number}".encode(), queue=queue, properties=f"TAGS\x01{tags}\x02KEYS\x01k{number}\x02"
        )
        assert answer.code == 0


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_popped_messages_are_nobody_elses_until_their_time_is_over(tmp_path: Path, flush: str) -> None:
    clock = SetClock()

    async def scene(broker: Broker, client: Client) -> None:
        await send(client, 5)
        given = await pop(client)
        assert [each.body for each in given] == [b"m0", b"m1", b"m2", b"m3", b"m4"]
        assert await pop(client) == []
        assert await ack(client, given[0], given[2], given[3]) == [0, 0, 0]
        assert broker.popping.inflight.of_groups() == {("T", "G"): 2}
        clock.ahead_ms = 70_000
        again = await pop(client, pollTime=20_000, now=clock.now_ms)
        assert [(each.body, each.reconsume_times, each.is_retry) for each in again] == [
            (b"m1", 1, True),
            (b"m4", 1, True),
        ]
        assert again[0].record.topic == "T"
        assert again[0].record.properties["1ST_POP_TIME"] == given[0].handle.split(" ")[1]
        assert again[0].record.properties["ORIGIN_GROUP"] == "G"
        assert await ack(client, *again) == [0, 0]
        assert broker.popping.inflight.of_groups() == {}
        clock.ahead_ms += HOUR
        await until(lambda: broker.popping.revive.waiting == 0)
        assert await pop(client) == []
        assert broker.popping.revive.revived == 2

    play(tmp_path, scene, clock=clock, flush=flush)


def test_a_held_pop_is_answered_by_the_message_it_waits_for(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        held = asyncio.create_task(pop(client, pollTime=30_000))
        await until(lambda: len(broker.popping.holding) == 1)
        answer = await client.call(200055, {"consumerGroup": "G", "topic": "T", "queueId": "-1"})
        assert answer.fields["pollingNum"] == "1"
        await send(client, 1)
        assert [each.body for each in await held] == [b"m0"]
        assert len(broker.popping.holding) == 0

    play(tmp_path, scene)


def test_of_many_who_wait_each_message_wakes_one(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        held = [asyncio.create_task(pop(client, pollTime=30_000)) for _ in range(3)]
        await until(lambda: len(broker.popping.holding) == 3)
        await send(client, 1)
        done, waiting = await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1 and len(broker.popping.holding) == 2
        await send(client, 2)
        await asyncio.wait(waiting)
        assert sorted(each.body for task in held for each in task.result()) == [b"m0", b"m0", b"m1"]

    play(tmp_path, scene)


def test_a_pop_that_waits_gets_what_comes_back(tmp_path: Path) -> None:
    clock = SetClock()

    async def scene(broker: Broker, client: Client) -> None:
        await send(client, 1)
        assert len(await pop(client, invisibleTime=5000)) == 1
        held = asyncio.create_task(pop(client, pollTime=60_000, now=clock.now_ms))
        await until(lambda: len(broker.popping.holding) == 1)
        clock.ahead_ms = 7000
        assert [each.is_retry for each in await held] == [True]

    play(tmp_path, scene, clock=clock)


def test_another_invisible_time_replaces_the_first(tmp_path: Path) -> None:
    clock = SetClock()

    async def scene(broker: Broker, client: Client) -> None:
        await send(client, 2)
        given = await pop(client, invisibleTime=10_000)
        answer = await change(client, given[0], 600_000)
        assert (answer.code, answer.fields["invisibleTime"]) == (0, "600000")
        assert int(answer.fields["popTime"]) >= int(given[0].handle.split(" ")[1])
        assert await ack(client, given[1]) == [0]
        clock.ahead_ms = 15_000
        # The old handle's time is over, and nothing comes back: the new one holds.
        await send(client, 1, topic="Other")
        marker = await pop(client, "Other", invisibleTime=1)
        assert len(marker) == 1
        assert len(await pop(client, "Other", pollTime=20_000, now=clock.now_ms)) == 1
        assert await pop(client) == []
        # The old handle acks nothing any more, the new one does.
        assert await ack(client, given[0]) == [0]
        clock.ahead_ms = 700_000
        back = await pop(client, pollTime=20_000, now=clock.now_ms)
        assert [(each.body, each.reconsume_times) for each in back] == [(b"m0", 1)]

    play(tmp_path, scene, clock=clock)


def test_a_batch_ack_names_messages_by_their_bits(tmp_path: Path) -> None:
    clock = SetClock()

    async def scene(broker: Broker, client: Client) -> None:
        await send(client, 4)
        given = await pop(client)
        start, pop_time, invisible, revive, *_ = given[0].handle.split(" ")
        entry = {
            "c": "G",
            "t": "T",
            "r": "0",
            "so": int(start),
            "q": 0,
            "rq": int(revive),
            "pt": int(pop_time),
            "it": int(invisible),
            "b": base64.b64encode(bytes([0b1011])).decode(),
        }
        body = json.dumps({"brokerName": "broker-a", "acks": [entry]}).encode()
        assert (await client.call(200151, body=body)).code == 0
        clock.ahead_ms = 70_000
        assert [each.body for each in await pop(client, pollTime=20_000, now=clock.now_ms)] == [b"m2"]

    play(tmp_path, scene, clock=clock)


def test_only_what_matches_is_given_and_the_rest_is_passed_over(tmp_path: Path) -> None:
    clock = SetClock()

    async def scene(broker: Broker, client: Client) -> None:
        for tag in "abab":
            await send(client, 1, tags=tag)
        given = await pop(client, exp="b")
        assert [each.record.queue_offset for each in given] == [1, 3]
        assert await pop(client, exp="b") == []
        assert await ack(client, given[0]) == [0]
        clock.ahead_ms = 70_000
        back = await pop(client, exp="b", pollTime=20_000, now=clock.now_ms)
        assert [each.record.properties["TAGS"] for each in back] == ["b"]

    play(tmp_path, scene, clock=clock)


def test_a_pop_may_bring_an_sql_filter(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        for number in range(4):
            answer = await client.send("T", b"m%d" % number, properties=f"price\x01{number}\x02")
            assert answer.code == 0
        given = await pop(client, expType="SQL92", exp="price > 1")
        assert [each.body for each in given] == [b"m2", b"m3"]
        assert await pop(client, expType="SQL92", exp="price > 1") == []

    play(tmp_path, scene)


def test_all_queues_are_read_and_counts_are_kept(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        for queue in range(4):
            await send(client, 3, queue=queue)
        answer = await client.call(200050, pop_fields(maxMsgNums=5))
        assert len(records(answer)) == 5
        assert answer.fields["restNum"] == "7"
        assert len(await pop(client, queueId=2)) + len(await pop(client)) == 7
        assert await pop(client) == []
        answer = await client.call(
            200052, {"consumerGroup": "H", "topic": "T", "queueId": "1", "maxMsgNums": "2"}
        )
        assert (answer.code, answer.fields["restNum"], len(records(answer))) == (0, "3", 2)

    play(tmp_path, scene, queues=4)


def test_a_group_that_is_moved_pops_from_there(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await send(client, 3)
        assert len(await pop(client)) == 3
        fields = {
            "topic": "T",
            "group": "G",
            "queueId": "0",
            "offset": "1",
            "timestamp": "0",
            "isForce": "true",
        }
        assert (await client.call(222, fields)).code == 0
        assert [each.body for each in await pop(client)] == [b"m1", b"m2"]

    play(tmp_path, scene)


def test_a_notification_says_when_there_is_something(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        fields = {"consumerGroup": "G", "topic": "T", "queueId": "-1", "pollTime": "100", "bornTime": "0"}
        assert (await client.call(200054, fields)).fields["hasMsg"] == "false"
        held = asyncio.create_task(client.call(200054, {**fields, "pollTime": "30000"}))
        await until(lambda: len(broker.popping.holding) == 1)
        await send(client, 1)
        assert (await held).fields == {"hasMsg": "true", "pollingFull": "false"}
        assert len(await pop(client)) == 1
        assert (await client.call(200054, fields)).fields["hasMsg"] == "false"

    play(tmp_path, scene)


@pytest.mark.parametrize("step_ms", [-HOUR, HOUR])
def test_a_clock_that_is_set_loses_nothing(tmp_path: Path, step_ms: int) -> None:
    clock = SetClock()

    async def scene(broker: Broker, client: Client) -> None:
        await send(client, 3)
        given = await pop(client, invisibleTime=30_000)
        assert await ack(client, given[1]) == [0]
        clock.ahead_ms = step_ms
        await send(client, 1, topic="Other")
        assert len(await pop(client, "Other", invisibleTime=10_000)) == 1
        assert await ack(client, given[0]) == [0]
        clock.ahead_ms = step_ms + 2 * HOUR
        seen: set[bytes] = set()
        while b"m2" not in seen:
            seen |= {each.body for each in await pop(client, pollTime=20_000, now=clock.now_ms)}
        # A clock that is set ahead may end the time of the first before its ack comes.
        assert seen <= {b"m0", b"m2"}
        assert len(await pop(client, "Other", pollTime=20_000, now=clock.now_ms)) == 1

    play(tmp_path, scene, clock=clock)


def test_what_is_in_flight_is_among_the_metrics(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        from penstock.broker.metrics import render_metrics

        await send(client, 3)
        given = await pop(client)
        await ack(client, given[0])
        lines = [line for line in render_metrics(broker).splitlines() if "inflight" in line and "G" in line]
        assert any(
            line.startswith("rocketmq_consumer_inflight_messages{") and line.endswith(" 2") for line in lines
        )
        assert "penstock_held_pops" in render_metrics(broker)

    play(tmp_path, scene)


def test_a_topic_that_goes_takes_its_pops_with_it(tmp_path: Path) -> None:
    clock = SetClock()

    async def scene(broker: Broker, client: Client) -> None:
        await send(client, 2)
        assert len(await pop(client)) == 2
        assert (await client.call(215, {"topic": "T"})).code == 0
        clock.ahead_ms = 70_000
        await make_topic(client, "Later")
        await send(client, 1, topic="Later")
        assert len(await pop(client, "Later", invisibleTime=1)) == 1
        assert len(await pop(client, "Later", pollTime=20_000, now=clock.now_ms)) == 1
        assert broker.topics.find("%RETRY%G_T") is None
        assert broker.popping.inflight.of_groups().get(("T", "G")) is None

    play(tmp_path, scene, clock=clock)


def test_old_messages_are_fetched_from_the_disk_before_they_are_popped_or_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SetClock()

    async def scene(broker: Broker, client: Client) -> None:
        await send(client, 3)
        cold = broker.store.cold_reads
        cold.hot_bytes = 0
        fetched: list[int] = []
        fetch = cold.fetch
        size = sum(found.size for found in broker.store.get("T", 0, 0, 3))

        def noted(places: list[Place]) -> None:
            fetched.append(sum(place.size for place in places))
            fetch(places)

        monkeypatch.setattr(cold, "fetch", noted)
        monkeypatch.setattr(cold, "_is_cached", lambda place: False)
        given = await pop(client)
        assert [each.body for each in given] == [b"m0", b"m1", b"m2"]
        assert fetched == [size]
        assert await ack(client, given[1]) == [0]
        clock.ahead_ms = 70_000
        back = await pop(client, pollTime=20_000, now=clock.now_ms)
        assert [each.body for each in back] == [b"m0", b"m2"]
        assert len(fetched) > 1

    play(tmp_path, scene, clock=clock)
