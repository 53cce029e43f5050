"""Consumers' pulls: what is found, what is held, what is refused (protocol section 5)."""

import asyncio
import threading
from pathlib import Path

import pytest

from broker.talking import Client, play, properties_text, pull_fields, records, until
from penstock.broker import Broker
from penstock.store.coldread import Place

HOLD = 6  # may be held, brings its own subscription


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_held_pull_is_answered_by_the_message_it_waits_for(tmp_path: Path, flush: str) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T", b"old")
        held = asyncio.create_task(client.pull("T", 1, flags=HOLD))
        await until(lambda: len(broker.holding) == 1)
        await client.send("T", b"new")
        answer = await held
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert [record.body for record in records(answer)] == [b"new"]
        assert answer.fields == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": "2",
            "minOffset": "0",
            "maxOffset": "2",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }
        assert len(broker.holding) == 0

    play(tmp_path, scene, flush=flush)


def test_a_hold_that_ends_says_what_it_would_have_said(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        answer = await client.pull("T", 1, flags=HOLD, hold_ms=50)
        assert (answer.code, answer.remark) == (19, "OFFSET_OVERFLOW_ONE")
        answer = await client.pull("T", 0, queue=3, flags=HOLD, hold_ms=50)
        assert (answer.code, answer.remark) == (19, "NO_MESSAGE_IN_QUEUE")

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("queue", "offset", "code", "remark", "next_offset"),
    [
        (0, 0, 0, "FOUND", "2"),
        (0, 2, 19, "OFFSET_OVERFLOW_ONE", "2"),
        (0, 9, 21, "OFFSET_OVERFLOW_BADLY", "2"),
        (0, -1, 21, "OFFSET_TOO_SMALL", "0"),
        (3, 0, 19, "NO_MESSAGE_IN_QUEUE", "0"),
        (3, 5, 21, "NO_MESSAGE_IN_QUEUE", "0"),
    ],
)
def test_each_place_of_a_queue_has_its_status(
    tmp_path: Path, queue: int, offset: int, code: int, remark: str, next_offset: str
) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        await client.send("T")
        answer = await client.pull("T", offset, queue=queue)
        assert (answer.code, answer.remark) == (code, remark)
        assert answer.fields["nextBeginOffset"] == next_offset

    play(tmp_path, scene)


def test_a_filter_lets_only_its_tags_through_and_a_held_pull_waits_on(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        for tag in ("A", "B", "A"):
            await client.send("T", tag.encode(), properties=properties_text(TAGS=tag))
        answer = await client.pull("T", tags="A || C")
        assert [record.body for record in records(answer)] == [b"A", b"A"]
        answer = await client.pull("T", tags="Z")
        assert (answer.code, answer.remark, answer.fields["nextBeginOffset"]) == (
            20,
            "NO_MATCHED_MESSAGE",
            "3",
        )
        held = asyncio.create_task(client.pull("T", 3, tags="C", flags=HOLD))
        await until(lambda: len(broker.holding) == 1)
        await client.send("T", properties=properties_text(TAGS="B"))
        assert len(broker.holding) == 1
        broker.holding.sweep(skipped=False)
        assert not held.done()
        await client.send("T", b"C", properties=properties_text(TAGS="C"))
        assert [record.body for record in records(await held)] == [b"C"]

    play(tmp_path, scene)


def test_a_pull_that_saw_only_other_tags_is_swept_out_with_a_new_offset(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T", properties=properties_text(TAGS="B"))
        held = asyncio.create_task(client.pull("T", 1, tags="C", flags=HOLD))
        await until(lambda: len(broker.holding) == 1)
        await client.send("T", properties=properties_text(TAGS="B"))
        broker.holding.sweep(skipped=True)
        answer = await held
        assert (answer.code, answer.fields["nextBeginOffset"]) == (20, "2")

    play(tmp_path, scene)


def test_two_pulls_of_one_client_on_one_queue_are_both_answered(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        first = asyncio.create_task(client.pull("T", 1, flags=HOLD))
        second = asyncio.create_task(client.pull("T", 1, flags=HOLD))
        await until(lambda: len(broker.holding) == 2)
        await client.send("T", b"both")
        assert [len(records(answer)) for answer in (await first, await second)] == [1, 1]

    play(tmp_path, scene)


def test_a_lost_connection_takes_its_held_pulls_along(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        other = Client(broker.address)
        held = asyncio.create_task(other.pull("T", 1, flags=HOLD))
        await until(lambda: len(broker.holding) == 1)
        await other.close()
        await until(lambda: len(broker.holding) == 0)
        assert not broker.dispatching.eager
        await asyncio.gather(held, return_exceptions=True)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        (
            {"queueId": "99"},
            29,
            "queueId[99] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/",
        ),
        ({"queueId": "-1"}, 29, "queueId[-1] is illegal, topic:[T]"),
        ({"topic": "No"}, 17, "topic[No] not exist, apply first please! \nSee"),
        ({"consumerGroup": "bad group!"}, 26, "subscription group [bad group!] does not exist, \nSee"),
        ({"sysFlag": "0"}, 24, "the consumer's group info not exist\nSee"),
        ({"expressionType": "SQL92"}, 23, "parse the consumer's subscription failed"),
        ({"queueOffset": "x"}, 1, "the header field queueOffset is no number"),
    ],
)
def test_a_wrong_pull_is_refused_in_rocketmqs_words(
    tmp_path: Path, change: dict[str, str], code: int, remark: str
) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        answer = await client.call(11, {**pull_fields("T", 0), **change})
        assert answer.code == code
        assert answer.remark is not None and answer.remark.startswith(remark)
        assert answer.fields == {}

    play(tmp_path, scene)


def test_lite_pulls_are_served_as_pulls(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T", b"x")
        answer = await client.call(361, pull_fields("T", 0, flags=22))
        assert [record.body for record in records(answer)] == [b"x"]

    play(tmp_path, scene)


def test_large_answers_carry_every_record_whole(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        for number in range(6):
            await client.send("T", bytes([number]) * 40_000)
        answer = await client.pull("T")
        assert [record.body[:1] for record in records(answer)] == [bytes([number]) for number in range(6)]

    play(tmp_path, scene)


def test_offsets_are_kept_in_rocketmqs_words_and_over_a_restart(tmp_path: Path) -> None:
    async def first(broker: Broker, client: Client) -> None:
        place = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
        await client.send("T")
        assert (await client.call(15, {**place, "commitOffset": "1"})).remark == "Group G not exist!"
        await client.pull("T", flags=5, commit=0)
        assert (await client.call(14, place)).fields == {"offset": "0"}
        assert (await client.call(15, {**place, "commitOffset": "1"})).code == 0
        assert (await client.call(15, {**place, "commitOffset": "-1"})).code == 0
        assert (await client.call(14, place)).fields == {"offset": "1"}
        answer = await client.call(15, {**place, "topic": "No", "commitOffset": "1"})
        assert (answer.code, answer.remark) == (17, "Topic No not exist!")
        assert (await client.call(15, place)).remark == "Offset is null, topic is T"

    async def second(broker: Broker, client: Client) -> None:
        place = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
        assert (await client.call(14, place)).fields == {"offset": "1"}

    play(tmp_path, first)
    play(tmp_path, second)


def test_a_group_without_an_offset_begins_at_a_young_queue_and_asks_elsewhere(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        place = {"consumerGroup": "New", "topic": "T", "queueId": "0"}
        assert (await client.call(14, place)).fields == {"offset": "0"}
        answer = await client.call(14, {**place, "setZeroIfNotFound": "false"})
        assert (answer.code, answer.remark) == (
            22,
            "Not found, do not set to zero, maybe this group boot first",
        )
        for change in ({"queueId": "2"}, {"topic": "No"}):
            answer = await client.call(14, {**place, **change})
            assert answer.code == 22
            assert answer.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"

    play(tmp_path, scene)


def test_queues_say_where_they_begin_and_end_and_what_came_when(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        await client.send("T")
        place = {"topic": "T", "queueId": "0"}
        assert (await client.call(30, {**place, "committed": "true"})).fields == {"offset": "2"}
        assert (await client.call(31, place)).fields == {"offset": "0"}
        times = [record.store_timestamp for record in records(await client.pull("T"))]
        assert (await client.call(32, place)).fields == {"timestamp": str(times[0])}
        early = {**place, "timestamp": str(times[0] - 1000), "boundaryType": "LOWER"}
        late = {**place, "timestamp": str(times[1] + 1000)}
        assert (await client.call(29, early)).fields == {"offset": "0"}
        assert (await client.call(29, late)).fields == {"offset": "2"}
        nowhere = {"topic": "No", "queueId": "0", "timestamp": "1"}
        answers = [(await client.call(code, nowhere)).fields for code in (29, 30, 31, 32)]
        assert answers == [{"offset": "0"}, {"offset": "0"}, {"offset": "0"}, {"timestamp": "-1"}]

    play(tmp_path, scene)


def test_messages_that_left_memory_are_fetched_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    async def scene(broker: Broker, client: Client) -> None:
        for number in range(20):
            await client.send("T", bytes([number]) * 20_000)
        await client.pull("T")  # dispatched
        broker.store.flush()
        cold = broker.store.cold_reads
        cold.hot_bytes = 0
        fetch = cold.fetch

        def noted(places: list[Place]) -> None:
            fetched.append(threading.current_thread().name)
            fetch(places)

        monkeypatch.setattr(cold, "fetch", noted)
        monkeypatch.setattr(cold, "_is_cached", lambda place: False)
        answer = await client.pull("T", 3, count=4)
        assert [record.body[0] for record in records(answer)] == [3, 4, 5, 6]

    play(tmp_path, scene)
    assert len(fetched) == 1
    assert fetched[0].startswith("penstock-reader")


def test_what_is_in_memory_is_told_from_what_is_not(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T", b"x" * 50_000)
        await client.pull("T")
        broker.store.flush()
        cold = broker.store.cold_reads
        assert cold.missing("T", 0, 0, 32) == []
        cold.hot_bytes = 0
        assert cold.missing("T", 0, 0, 32) == []  # just written, so it is cached
        assert cold.missing("T", 0, 5, 32) == cold.missing("No", 0, 0, 32) == []

    play(tmp_path, scene)


def test_old_messages_that_follow_each_other_in_the_log_are_looked_for_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        for number in range(6):
            await client.send("T", b"x" * 1000)
            if number == 3:
                await client.send("Between", b"y")
        await client.pull("T")
        cold = broker.store.cold_reads
        cold.hot_bytes = 0
        monkeypatch.setattr(cold, "_is_cached", lambda place: False)
        sizes = [found.size for found in broker.store.get("T", 0, 0, 6)]
        assert [place.size for place in cold.missing("T", 0, 0, 32)] == [sum(sizes[:4]), sum(sizes[4:])]
        assert [place.size for place in cold.missing("T", 0, 1, 2)] == [sum(sizes[1:3])]

    play(tmp_path, scene)


def test_a_held_pull_is_woken_when_the_transient_pool_lets_its_message_go(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T", b"old")
        assert [record.body for record in records(await client.pull("T", 0, flags=HOLD))] == [b"old"]
        held = asyncio.create_task(client.pull("T", 1, flags=HOLD, hold_ms=60_000))
        await until(lambda: len(broker.holding) == 1)
        await client.send("T", b"new")
        assert [record.body for record in records(await held)] == [b"new"]

    pool = {"transient_store_pool_enable": True, "transient_store_pool_size": 2}
    play(tmp_path, scene, flush="async", store={**pool, "commit_interval_commit_log_ms": 200})
