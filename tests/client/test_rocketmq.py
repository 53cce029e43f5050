"""Our client and our commands against RocketMQ's own broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Message
from penstock.bench.peer import missing_tools
from penstock.bench.rocketmq import RocketMQ
from penstock.cli import main
from penstock.client import ClientSettings, Consumer, Delivery, Producer, PullConsumer, TransactionState
from penstock.client.admin import Admin
from penstock.client.received import ReceivedMessage

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(missing_tools()), reason="needs Java and Maven"),
]

SETTINGS = ClientSettings(rebalance_retry=0.2, send_timeout=20.0, call_timeout=10.0, suspend_queue=0.2)
LIMIT = 120.0


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    settings = {
        "mappedFileSizeCommitLog": 64 << 20,
        "transactionTimeOut": 1000,
        "transactionCheckInterval": 3000,
        "messageDelayLevel": "1s 1s 1s 1s 1s 1s",
    }
    options = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    with RocketMQ(tmp_path_factory.mktemp("rocketmq"), settings=settings, options=options) as running:
        asyncio.run(_until_ready(running))
        yield running


async def _until_ready(running: RocketMQ) -> None:
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                async with Admin(running.namesrv) as admin:
                    await admin.runtime(running.address)
                    await admin.create_topic("ready", queues=1)
                    return
            except Exception:
                await asyncio.sleep(0.2)


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, LIMIT))


async def take(consumer: Consumer, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    async for message in consumer:
        async with message:
            found.append(message)
        if len(found) == count:
            break
    return found


def test_every_way_of_sending_arrives(rocketmq: RocketMQ) -> None:
    async def work() -> None:
        async with Producer("senders", namesrv=rocketmq.namesrv, settings=SETTINGS) as producer:
            assert (await producer.send(Message("ways", b"single", tags="t", keys="k"))).ok
            await producer.send(Message("ways", b"large" * 2000))
            await producer.send_batch(
                [Message("ways", b"batch-%d" % number, tags="t") for number in range(3)]
            )
            await producer.send_one_way(Message("ways", b"one-way"))
            await producer.send(Message("ways", b"keyed"), order_key="alice")
            await producer.send(Message("ways", b"delayed", delay_level=1))
            await producer.send(Message("ways", b"timed"), delay=1.0)
            async with producer.transaction(Message("ways", b"committed")):
                pass
            with pytest.raises(ValueError, match="no"):
                async with producer.transaction(Message("ways", b"rolled back")):
                    raise ValueError("no")
        async with Consumer(
            "readers", "ways", namesrv=rocketmq.namesrv, settings=SETTINGS, start="earliest"
        ) as consumer:
            found = {message.body for message in await take(consumer, 10)}
        assert found == {
            *(b"single", b"large" * 2000, b"batch-0", b"batch-1", b"batch-2"),
            *(b"one-way", b"keyed", b"delayed", b"timed", b"committed"),
        }

    run(work())


def test_a_failed_message_is_tried_again_and_dies(rocketmq: RocketMQ) -> None:
    async def work() -> None:
        async with Producer(namesrv=rocketmq.namesrv, settings=SETTINGS) as producer:
            await producer.send(Message("failing", b"bad"))
        tries = []
        async with Consumer(
            "unlucky",
            "failing",
            namesrv=rocketmq.namesrv,
            settings=SETTINGS,
            start="earliest",
            max_reconsume_times=1,
        ) as consumer:
            async for message in consumer:
                async with message:
                    tries.append((message.topic, message.reconsume_times))
                    raise ValueError("no")
                if len(tries) == 2:
                    break
        assert tries == [("failing", 0), ("failing", 1)]
        async with PullConsumer("gravedigger", namesrv=rocketmq.namesrv, settings=SETTINGS) as consumer:
            (queue,) = await consumer.topic_queues("%DLQ%unlucky")
            result = await consumer.pull(queue, 0, wait=10.0)
            assert [message.body for message in result.messages] == [b"bad"]

    run(work())


def test_an_orderly_consumer_keeps_the_order(rocketmq: RocketMQ) -> None:
    async def work() -> None:
        async with Admin(rocketmq.namesrv) as admin:
            await admin.create_topic("steps", queues=2)
        async with Producer(namesrv=rocketmq.namesrv, settings=SETTINGS) as producer:
            for number in range(10):
                await producer.send(Message("steps", b"%d" % number), order_key=str(number % 2))
        handled: list[tuple[int, int]] = []
        failed: set[bytes] = set()
        async with Consumer(
            "walkers",
            "steps",
            namesrv=rocketmq.namesrv,
            settings=SETTINGS,
            orderly=True,
            start="earliest",
        ) as consumer:
            async for message in consumer:
                async with message:
                    if message.body in (b"2", b"5") and message.body not in failed:
                        failed.add(message.body)
                        raise ValueError("not yet")
                    handled.append((message.queue_id, int(message.body)))
                if len(handled) == 10:
                    break
        for queue in {queue for queue, _ in handled}:
            numbers = [number for place, number in handled if place == queue]
            assert numbers == sorted(numbers)

    run(work())


def test_members_share_and_take_over(rocketmq: RocketMQ) -> None:
    def member() -> Consumer:
        return Consumer("sharers", "shared", namesrv=rocketmq.namesrv, settings=SETTINGS)

    async def until(first: Consumer, second: Consumer | None, shares: set[int]) -> None:
        while True:
            counts = [
                len([queue for queue in each.assignment if queue.topic == "shared"])
                for each in (first, second)
                if each is not None
            ]
            if set(counts) == shares:
                return
            await asyncio.sleep(0.02)

    async def work() -> None:
        async with Admin(rocketmq.namesrv) as admin:
            await admin.create_topic("shared", queues=5)
        async with member() as first:
            await until(first, None, {5})
            async with member() as second:
                await until(first, second, {3, 2})
                both = {*first.assignment} & {*second.assignment}
                assert not [queue for queue in both if queue.topic == "shared"]
            await until(first, None, {5})

    run(work())


def test_the_broker_asks_how_a_transaction_ended(rocketmq: RocketMQ) -> None:
    asked: list[str] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.message_id)
        return TransactionState.COMMIT

    async def work() -> None:
        async with Producer("askers", namesrv=rocketmq.namesrv, settings=SETTINGS, check=check) as producer:
            async with producer.transaction(Message("asked", b"open")) as transaction:
                transaction.leave_open()
            async with Consumer(
                "listeners", "asked", namesrv=rocketmq.namesrv, settings=SETTINGS, start="earliest"
            ) as consumer:
                (message,) = await take(consumer, 1)
            assert message.body == b"open"
            assert transaction.result.message_id in asked

    run(work())


def test_polling_seeking_and_broadcasting(rocketmq: RocketMQ, tmp_path: Path) -> None:
    async def work() -> None:
        async with Producer(namesrv=rocketmq.namesrv, settings=SETTINGS) as producer:
            await producer.send_batch([Message("polled", b"%d" % number) for number in range(5)])
        async with PullConsumer(
            "pollers", "polled", namesrv=rocketmq.namesrv, settings=SETTINGS, start="earliest"
        ) as puller:
            found: list[bytes] = []
            while len(found) < 5:
                found += [message.body for message in await puller.poll(30)]
            assert found == [b"%d" % number for number in range(5)]
            await puller.seek_to_beginning("polled")
            assert (await puller.poll(30))[0].body == b"0"
        async with Consumer(
            "everyone",
            "polled",
            namesrv=rocketmq.namesrv,
            settings=SETTINGS,
            broadcast=True,
            start="earliest",
            offsets_folder=tmp_path,
        ) as consumer:
            assert len(await take(consumer, 5)) == 5

    run(work())


def test_the_commands_work_there(rocketmq: RocketMQ, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    def command(*arguments: str) -> Any:
        capfdbinary.readouterr()
        code = main([*arguments, "--json", "--namesrv", rocketmq.namesrv])
        out, err = capfdbinary.readouterr()
        assert code == 0, err.decode()
        return [json.loads(line) for line in out.splitlines()]

    command("topic", "create", "shown", "--queues", "2")
    (sent,) = command("send", "shown", "tea", "--keys", "k1", "--tags", "hot")
    assert "shown" in command("topic", "list")[0]["topics"]
    assert sum(queue["max_offset"] for queue in command("topic", "show", "shown")[0]["queues"]) == 1
    assert len(command("tail", "shown", "--no-follow")) == 1
    assert len(command("tail", "shown", "--group", "tailers", "--count", "1")) == 1
    (shown,) = command("group", "show", "tailers", "--topic", "shown")
    assert shown["lag"] == 0
    (moved,) = command("group", "reset", "tailers", "shown", "--to", "earliest")
    assert {queue["offset"] for queue in moved["queues"]} == {0}
    assert command("message", "show", sent["offset_message_id"])[0]["unique_key"] == sent["message_id"]
    assert command("message", "show", sent["message_id"], "--topic", "shown")
    assert len(command("message", "find", "shown", "k1")) == 1
    assert len(command("message", "peek", "shown")) == 1
    assert command("message", "resend", sent["offset_message_id"])[0]["status"] == "SEND_OK"
    command("group", "create", "made")
    assert "made" in {group["group"] for group in command("group", "list")[0]["groups"]}
    command("group", "delete", "made", "--yes")
    assert command("broker", "list")[0]["brokers"][0]["broker"] == "broker-a"
    assert command("broker", "show")[0]["brokerVersionDesc"] == "V5_5_0"
    command("topic", "delete", "shown", "--yes")
    assert "shown" not in command("topic", "list")[0]["topics"]
