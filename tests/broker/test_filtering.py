"""SQL92 filters in the broker: who is served what, what is refused, what bitmaps are for (protocol 5.6)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from broker.talking import Client, config, play, properties_text, pull_fields, records, until
from penstock.broker import Broker
from penstock.message.properties import parse_properties

HOLD = 6


async def subscribe(client: Client, group: str, topic: str, sql: str, version: int = 1, **more: Any) -> None:
    subscriptions = [
        {"topic": topic, "subString": sql, "subVersion": version, "expressionType": "SQL92"},
        {"topic": f"%RETRY%{group}", "subString": "*", "subVersion": version, "expressionType": "TAG"},
    ]
    data = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": subscriptions}
    beat = {"clientID": "c1", "consumerDataSet": [data], "producerDataSet": [], **more}
    assert (await client.call(34, body=json.dumps(beat).encode())).code == 0


async def send(client: Client, topic: str, *values: int | str) -> None:
    for value in values:
        answer = await client.send(topic, str(value).encode(), properties=properties_text(a=str(value)))
        assert answer.code == 0


async def pulled(client: Client, sql: str, offset: int = 0, **more: Any) -> tuple[int, list[bytes], int]:
    fields = {**pull_fields("T", offset, tags=sql, **more), "expressionType": "SQL92"}
    answer = await client.call(11, fields)
    found = [record.body for record in records(answer)] if answer.code == 0 else []
    return answer.code, found, int(answer.fields.get("nextBeginOffset", -1))


async def check(client: Client, sql: str, kind: str = "SQL92") -> tuple[int, str]:
    data = {"topic": "T", "subString": sql, "subVersion": 1, "expressionType": kind}
    answer = await client.call(
        46, body=json.dumps({"clientId": "c", "group": "G", "subscriptionData": data}).encode()
    )
    return answer.code, answer.remark or ""


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_pull_gets_the_messages_that_fit_and_goes_on_behind_the_others(tmp_path: Path, flush: str) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await send(client, "T", 1, 2, 3, "x", 2)
        assert await pulled(client, "a BETWEEN 2 AND 3") == (0, [b"2", b"3", b"2"], 5)
        assert await pulled(client, "a = 3") == (0, [b"3"], 5)
        assert await pulled(client, "a = 7") == (20, [], 5)
        assert await pulled(client, "a = 'x'", 4) == (20, [], 5)
        assert await pulled(client, "a IS NULL OR a IS NOT NULL", count=2) == (0, [b"1", b"2"], 2)

    play(tmp_path, scene, flush=flush)


def test_a_group_is_served_by_the_filter_it_registered_whatever_its_pulls_say(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await send(client, "T", 1, 2, 3)
        await subscribe(client, "G", "T", "a > 1")
        # Go's client says TAG and nothing in its pulls, also for an SQL subscription.
        answer = await client.pull("T", flags=0, tags="")
        assert [record.body for record in records(answer)] == [b"2", b"3"]
        await subscribe(client, "G", "T", "a > 2", version=2)
        answer = await client.pull("T", flags=0)
        assert [record.body for record in records(answer)] == [b"3"]
        # A retried message comes back whatever the filter says.
        await client.send("%RETRY%G", b"again", properties=properties_text(a="0"))
        answer = await client.pull("%RETRY%G", flags=0)
        assert [record.body for record in records(answer)] == [b"again"]

    play(tmp_path, scene)


def test_a_held_pull_waits_on_for_a_message_that_fits(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await send(client, "T", 0)
        await subscribe(client, "G", "T", "a > 5")
        held = asyncio.create_task(client.pull("T", 1, flags=2))
        other = asyncio.create_task(pulled(client, "a = 2", 1, flags=HOLD))
        await until(lambda: len(broker.holding) == 2)
        await send(client, "T", 1)
        assert len(broker.holding) == 2
        await send(client, "T", 2)
        assert await other == (0, [b"2"], 3)
        assert len(broker.holding) == 1
        await send(client, "T", 9)
        assert [record.body for record in records(await held)] == [b"9"]

    play(tmp_path, scene)


def test_what_is_no_filter_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await send(client, "T", 1)
        assert await check(client, "a > 1 AND b IN ('x')") == (0, "")
        assert await check(client, "*", "TAG") == (0, "")
        code, remark = await check(client, "a BETWEEN AND")
        assert code == 23 and "at character 11" in remark
        code, remark = await check(client, "(" * 10_000)
        assert code == 23 and "levels deep" in remark
        assert (await check(client, "x", "NONSENSE"))[0] == 23
        for sql in ("a >", "", "(" * 10_000, "a IN (" + ",".join(["'x'"] * 8000) + ")"):
            answer = await client.call(11, {**pull_fields("T", 0, tags=sql), "expressionType": "SQL92"})
            assert answer.code == 23 and answer.remark is not None
            assert answer.remark.startswith("parse the consumer's subscription failed")
            await subscribe(client, "G", "T", sql, version=len(sql))
            answer = await client.pull("T", flags=0)
            assert answer.code == 27 and answer.remark is not None
            assert answer.remark.startswith("The broker's consumer filter data is not exist!")
        await subscribe(client, "G", "T", "a = 1", version=1 << 40)
        assert (await client.pull("T", flags=0)).code == 0

    play(tmp_path, scene)


def test_filters_that_are_switched_off_are_refused_as_rocketmq_does(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await send(client, "T", 1)
        remark = "The broker does not support consumer to filter message by SQL92"
        assert await check(client, "a = 1") == (1, remark)
        answer = await client.call(11, {**pull_fields("T", 0, tags="a = 1"), "expressionType": "SQL92"})
        assert (answer.code, answer.remark) == (1, remark)
        await subscribe(client, "G", "T", "a = 1")
        answer = await client.pull("T", flags=0)
        assert (answer.code, answer.remark) == (1, remark)
        assert (await client.pull("T")).code == 0

    play(tmp_path, scene, enable_property_filter=False)


def test_a_costly_filter_ends_early_and_the_next_pull_goes_on(tmp_path: Path) -> None:
    """However long the properties and the filter: one pull never keeps the others waiting."""

    async def scene(broker: Broker, client: Client) -> None:
        value = "y" * 30_000
        for _ in range(6):
            await client.send("T", b"m", properties=properties_text(a=value))
        sql = " OR ".join(["a CONTAINS 'yx'"] * 500)
        offset = pulls = 0
        while offset < 6:
            code, _, offset = await pulled(client, sql, offset)
            assert code == 20
            pulls += 1
        assert pulls > 2

    play(tmp_path, scene, flush="async")


# -- bitmaps ------------------------------------------------------------------------------------------------

EXTENDED = {"enable_calc_filter_bit_map": True, "store": {"enable_consume_queue_ext": True}}


def ext_units(broker: Broker, count: int) -> list[bytes]:
    """The bitmaps of the first messages of T's first queue."""
    ext = broker.store._queues.extension("T", 0)
    units = [broker.store.queue_unit("T", 0, number) for number in range(count)]
    found = [ext.get(unit[2]) for unit in units if unit is not None]
    return [unit.bitmap for unit in found if unit is not None]


def test_bitmaps_know_the_filters_that_were_there_when_a_message_came(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await send(client, "T", 1, 5)
        await subscribe(client, "G", "T", "a > 3")
        asked: list[int] = []
        ask = broker.filters.may_match

        def counted(data: Any, offset: int, unit: Any) -> bool:
            answer = ask(data, offset, unit)
            asked.append(int(answer))
            return answer

        broker.filters.may_match = counted  # type: ignore[method-assign]
        assert [record.body for record in records(await client.pull("T", flags=0))] == [b"5"]
        assert asked == [1, 1]  # both came before the filter: it has to look itself
        await send(client, "T", 2, 7)
        assert [record.body for record in records(await client.pull("T", 2, flags=0))] == [b"7"]
        assert asked == [1, 1, 0, 1]
        bits = broker.filters.bloom.positions("G#T")
        assert [len(bitmap) for bitmap in ext_units(broker, 4)] == [0, 0, 14, 14]
        assert [sum(bin(byte).count("1") for byte in bitmap) for bitmap in ext_units(broker, 4)] == [
            *(0, 0, 0),
            len(set(bits)),
        ]
        # Another expression: what its bits say of older messages is not what it says.
        await subscribe(client, "G", "T", "a < 3", version=2)
        assert [record.body for record in records(await client.pull("T", flags=0))] == [b"1", b"2"]

    play(tmp_path, scene, **EXTENDED)


def test_filters_are_kept_in_rocketmq_s_file_and_serve_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "store" / "config" / "consumerFilter.json"

    async def first(broker: Broker, client: Client) -> None:
        await subscribe(client, "G", "T", "a > 3", version=77)
        await send(client, "T", 1, 5)
        assert len(records(await client.pull("T", flags=0))) == 1
        broker.filters.refresh(broker.consumers)

    play(tmp_path, first, **EXTENDED)
    kept = json.loads(file.read_text())
    data = kept["filterDataByTopic"]["T"]["groupFilterData"]["G"]
    assert kept["filterDataByTopic"]["T"]["topic"] == "T"
    assert data["bornTime"] > 0
    assert {name: value for name, value in data.items() if name != "bornTime"} == {
        "bloomFilterData": {"bitNum": 112, "bitPos": data["bloomFilterData"]["bitPos"]},
        "clientVersion": 77,
        "consumerGroup": "G",
        "dead": False,
        "deadTime": 0,
        "expression": "a > 3",
        "expressionType": "SQL92",
        "topic": "T",
    }
    assert len(data["bloomFilterData"]["bitPos"]) == 3

    async def second(broker: Broker, client: Client) -> None:
        found = broker.filters.find("T", "G")
        assert found is not None and found.is_dead
        await send(client, "T", 2, 6)  # nobody is there, the bitmaps are made all the same
        assert [any(bitmap) for bitmap in ext_units(broker, 4)][2:] == [False, True]
        await subscribe(client, "G", "T", "a > 3", version=78)
        assert [record.body for record in records(await client.pull("T", flags=0))] == [b"5", b"6"]
        assert not found.is_dead and found.version == 78
        await client.call(35, {"clientID": "c1", "consumerGroup": "G"})
        broker.filters.refresh(broker.consumers)
        assert found.is_dead
        broker.filters._keep_dead_ms = 0
        broker.filters.refresh(broker.consumers)
        assert broker.filters.find("T", "G") is None

    play(tmp_path, second, **EXTENDED)
    assert json.loads(file.read_text()) == {"filterDataByTopic": {}}


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"filterDataByTopic":7}',
        '{"filterDataByTopic":{"T":{"groupFilterData":{"G":{"bornTime":"x"}}}}}',
    ],
)
def test_a_foreign_filter_file_does_no_harm(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    (folder / "consumerFilter.json").write_text(content)

    async def start() -> None:
        async with Broker(config(tmp_path)) as broker:
            assert list(broker.filters) == []

    if content.startswith('{"filterDataByTopic":{'):
        asyncio.run(start())
    else:
        with pytest.raises(Exception, match=r"consumerFilter\.json"):
            asyncio.run(start())


def test_properties_are_what_a_filter_sees(tmp_path: Path) -> None:
    """Also those that the broker added, and the client's keys and tags."""

    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T", b"m", properties=properties_text(TAGS="x", KEYS="k1 k2"))
        answer = await client.pull("T")
        stored = parse_properties(records(answer)[0].properties_bytes)
        for name, value in stored.items():
            assert (await pulled(client, f"{name} = '{value}'"))[0] == 0
        assert (await pulled(client, "KEYS CONTAINS 'k2' AND TAGS IN ('x') AND other IS NULL"))[0] == 0

    play(tmp_path, scene)
