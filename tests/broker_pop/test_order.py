"""Pops in order: a queue waits for whoever holds its messages (protocol 3.9, rule 7)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from broker_pop.popping import Client, Given, SetClock, ack, change, play, pop, pop_fields, records, until
from penstock.broker import Broker


async def pop_in_order(
    client: Client, attempt: str, clock: SetClock | None = None, **more: Any
) -> list[Given]:
    now = clock.now_ms if clock is not None else None
    return await pop(client, order="true", attemptId=attempt, now=now, **more)


async def send(client: Client, count: int) -> None:
    for number in range(count):
        assert (await client.send("T", f"m{number}".encode())).code == 0


def bodies(given: list[Given]) -> list[bytes]:
    return [each.body for each in given]


def test_nothing_overtakes_what_somebody_holds(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await send(client, 5)
        held = await pop_in_order(client, "A", maxMsgNums=2)
        assert bodies(held) == [b"m0", b"m1"]
        assert all(each.handle.split(" ")[3] == "999" for each in held)
        assert await pop_in_order(client, "B") == []
        waiting = asyncio.create_task(pop_in_order(client, "B", pollTime=30_000))
        await until(lambda: len(broker.popping.holding) == 1)
        assert await ack(client, held[0]) == [0]
        assert len(broker.popping.holding) == 1
        assert await ack(client, held[1]) == [0]
        assert bodies(await waiting) == [b"m2", b"m3", b"m4"]
        assert broker.consumer_offsets.query("G", "T", 0) == 2

    play(tmp_path, scene)


def test_the_attempt_that_holds_messages_may_have_them_again(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await send(client, 3)
        assert bodies(await pop_in_order(client, "A")) == [b"m0", b"m1", b"m2"]
        answer = await client.call(200050, pop_fields(order="true", attemptId="A"))
        assert [record.body for record in records(answer)] == [b"m0", b"m1", b"m2"]
        assert (answer.fields["orderCountInfo"], answer.fields["reviveQid"]) == ("0 0 0", "999")

    play(tmp_path, scene)


def test_what_is_not_acked_in_time_comes_again_first_and_is_counted(tmp_path: Path) -> None:
    clock = SetClock()

    async def scene(broker: Broker, client: Client) -> None:
        await send(client, 4)
        held = await pop_in_order(client, "A", maxMsgNums=3, invisibleTime=10_000)
        assert await ack(client, held[0], held[2]) == [0, 0]
        assert broker.consumer_offsets.query("G", "T", 0) == 1
        answer = await change(client, held[1], 2000)
        assert answer.fields["popTime"] == held[1].handle.split(" ")[1]
        assert int(answer.fields["invisibleTime"]) >= 2000
        waiting = asyncio.create_task(
            client.call(
                200050,
                pop_fields(order="true", attemptId="B", pollTime=30_000, now=clock.now_ms, maxMsgNums=3),
            )
        )
        await until(lambda: len(broker.popping.holding) == 1)
        clock.ahead_ms = 3000
        again = await waiting
        assert [record.body for record in records(again)] == [b"m1", b"m2", b"m3"]
        assert [record.reconsume_times for record in records(again)] == [0, 0, 0]
        assert again.fields["orderCountInfo"] == "0 qo0%1 1;0 qo0%2 1;0 0 0"

    play(tmp_path, scene, clock=clock)


def test_acks_that_are_late_or_of_nothing_move_nobody(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await send(client, 4)
        held = await pop_in_order(client, "A", maxMsgNums=2)
        await pop_in_order(client, "A", maxMsgNums=2)
        # The first pop's handles are void: the same attempt popped once more.
        forged = held[0]
        if forged.handle.split(" ")[1] != str(broker.popping.order.content()["table"]["T@G"][0]["popTime"]):
            assert await ack(client, forged) == [0]
            assert broker.consumer_offsets.query("G", "T", 0) == 0
        (now,) = broker.popping.order.content()["table"]["T@G"].values()
        fields = {
            "consumerGroup": "G",
            "topic": "T",
            "queueId": "0",
            "extraInfo": f"0 {now['popTime']} 60000 999 0 broker-a 0 3",
            "offset": "3",
        }
        answer = await client.call(200051, fields)
        assert (answer.code, (answer.remark or "").startswith("offset is illegal")) == (13, True)
        assert broker.consumer_offsets.query("G", "T", 0) == 0

    play(tmp_path, scene)


def test_who_holds_what_survives_a_restart(tmp_path: Path) -> None:
    async def hold(broker: Broker, client: Client) -> None:
        await send(client, 2)
        assert len(await pop_in_order(client, "A")) == 2

    async def look(broker: Broker, client: Client) -> None:
        assert await pop_in_order(client, "B") == []
        assert bodies(await pop_in_order(client, "A")) == [b"m0", b"m1"]

    play(tmp_path, hold)
    file = (tmp_path / "store" / "config" / "consumerOrderInfo.json").read_text()
    assert '"T@G"' in file and '"o":[0,1]' in file.replace("\n", "").replace("\t", "")
    play(tmp_path, look)
