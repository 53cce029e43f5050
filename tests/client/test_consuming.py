"""What consumers promise, against a real broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock import Message
from penstock.client import ClientSettings, Consumer, Delivery, MessageQueue, Producer, PullConsumer
from penstock.errors import RequestRefused, UsageError
from penstock.testing import RunningBroker
from penstock.testing.broker import SMALL_STORE

LIMIT = 60.0


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end; a hang is a failure."""
    asyncio.run(asyncio.wait_for(work, LIMIT))


async def send_all(broker: RunningBroker, topic: str, bodies: list[bytes], **options: Any) -> None:
    async with Producer(namesrv=broker.namesrv) as producer:
        for body in bodies:
            await producer.send(Message(topic, body, **options), timeout=LIMIT)


async def take(consumer: Consumer, count: int) -> list[Delivery]:
    """So many messages, each acknowledged."""
    found: list[Delivery] = []
    async for message in consumer:
        async with message:
            found.append(message)
        if len(found) == count:
            break
    return found


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_messages_come_with_all_they_were_sent_with(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    async def work() -> None:
        async with Producer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
            sent = await producer.send(
                Message("orders", b"tea" * 5000, tags="hot", keys="k1", properties={"table": "4"})
            )
            async with Consumer(
                "kitchen", "orders", namesrv=penstock_broker.namesrv, settings=quick, start="earliest"
            ) as consumer:
                (message,) = await take(consumer, 1)
        assert message.body == b"tea" * 5000  # it travelled compressed
        assert (message.topic, message.tags, message.keys) == ("orders", "hot", "k1")
        assert message.properties["table"] == "4"
        assert (message.message_id, message.offset_message_id) == (sent.message_id, sent.offset_message_id)
        assert (message.queue, message.queue_offset) == (sent.queue, sent.queue_offset)
        assert message.reconsume_times == 0

    run(work())


def test_an_acknowledged_message_is_not_seen_again_after_a_new_start(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    async def work() -> None:
        await send_all(penstock_broker, "orders", [b"%d" % number for number in range(20)])
        seen: list[bytes] = []
        for _ in range(2):
            async with Consumer(
                "kitchen", "orders", namesrv=penstock_broker.namesrv, settings=quick, start="earliest"
            ) as consumer:
                seen += [message.body for message in await take(consumer, 10)]
        assert sorted(seen) == sorted(b"%d" % number for number in range(20))

    run(work())


def test_a_message_whose_block_was_not_left_is_delivered_again(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    async def work() -> None:
        await send_all(penstock_broker, "orders", [b"a"])
        for _ in range(2):
            async with Consumer(
                "kitchen", "orders", namesrv=penstock_broker.namesrv, settings=quick, start="earliest"
            ) as consumer:
                async for message in consumer:
                    assert message.body == b"a"
                    break

    run(work())


def test_a_failed_message_is_tried_again_and_ends_among_the_dead_letters(
    penstock_broker_factory: Callable[..., RunningBroker], quick: ClientSettings
) -> None:
    penstock_broker = penstock_broker_factory(store=SMALL_STORE.replace(message_delay_level="1s 1s 1s 1s"))

    async def work() -> None:
        await send_all(penstock_broker, "orders", [b"good", b"bad"])
        tries: list[tuple[str, int]] = []
        async with Consumer(
            "kitchen",
            "orders",
            namesrv=penstock_broker.namesrv,
            settings=quick,
            start="earliest",
            max_reconsume_times=1,
        ) as consumer:
            seen = 0
            async for message in consumer:
                async with message:
                    if message.body == b"bad":
                        tries.append((message.topic, message.reconsume_times))
                        raise ValueError("no")
                seen += 1
                if len(tries) == 2 and seen == 3:
                    break
            assert tries == [("orders", 0), ("orders", 1)]
            penstock_broker.store.wait_visible()
            await until(lambda: penstock_broker.store.max_offset("%DLQ%kitchen", 0) == 1)
            (dead,) = penstock_broker.store.get("%DLQ%kitchen", 0, 0)
            assert dead.body == b"bad"

    run(work())


def test_an_sql_filter_chooses_by_properties_and_a_wrong_one_is_refused_at_once(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    async def work() -> None:
        async with Producer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
            for price in (5, 50, 7, 70):
                await producer.send(Message("orders", b"%d" % price, properties={"price": str(price)}))
        where: dict[str, Any] = {"namesrv": penstock_broker.namesrv, "settings": quick, "start": "earliest"}
        consumer = Consumer("rich", [], **where)
        await consumer.subscribe("orders", sql="price > 10 AND price IS NOT NULL")
        async with consumer:
            assert sorted(message.body for message in await take(consumer, 2)) == [b"50", b"70"]
            with pytest.raises(RequestRefused, match="at character") as refused:
                await consumer.subscribe("orders", sql="price >")
            assert refused.value.code == 23
            assert consumer.subscriptions["orders"].expression == "price > 10 AND price IS NOT NULL"
        wrong = Consumer("wrong", [], **where)
        await wrong.subscribe("orders", sql="price BETWEEN AND")
        with pytest.raises(RequestRefused, match="at character"):
            await wrong.start()

    run(work())


def test_only_wanted_tags_come(penstock_broker: RunningBroker, quick: ClientSettings) -> None:
    async def work() -> None:
        async with Producer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
            # "Aa" and "BB" have the same hash: the broker lets both pass, the client does not.
            for tag in ("Aa", "BB", "c", None, "Aa"):
                await producer.send(Message("orders", (tag or "none").encode(), tags=tag))
        async with Consumer(
            "kitchen",
            {"orders": "Aa || c"},
            namesrv=penstock_broker.namesrv,
            settings=quick,
            start="earliest",
        ) as consumer:
            found = await take(consumer, 3)
        assert sorted(message.body for message in found) == [b"Aa", b"Aa", b"c"]

    run(work())


def test_members_share_the_queues_and_take_over_from_one_that_leaves(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    penstock_broker.create_topic("orders", 5)

    def member() -> Consumer:
        return Consumer("kitchen", "orders", namesrv=penstock_broker.namesrv, settings=quick)

    def topic_queues(consumer: Consumer) -> set[int]:
        return {queue.queue_id for queue in consumer.assignment if queue.topic == "orders"}

    async def work() -> None:
        async with member() as first:
            await until(lambda: len(topic_queues(first)) == 5)
            async with member() as second:
                await until(lambda: {len(topic_queues(first)), len(topic_queues(second))} == {3, 2})
                assert topic_queues(first) | topic_queues(second) == set(range(5))
                assert not topic_queues(first) & topic_queues(second)
            await until(lambda: len(topic_queues(first)) == 5)

    run(work())


def test_every_member_of_a_broadcasting_group_gets_everything(
    penstock_broker: RunningBroker, quick: ClientSettings, tmp_path: Path
) -> None:
    async def work() -> None:
        await send_all(penstock_broker, "news", [b"%d" % number for number in range(8)])
        for name in ("one", "two"):
            for expected in ([b"%d" % number for number in range(8)], [b"more " + name.encode()]):
                if len(expected) == 1:
                    await send_all(penstock_broker, "news", expected)
                async with Consumer(
                    "readers",
                    "news",
                    namesrv=penstock_broker.namesrv,
                    settings=quick,
                    broadcast=True,
                    start="earliest",
                    instance_name=name,
                    offsets_folder=tmp_path / "offsets",
                ) as consumer:
                    found = await take(
                        consumer, len(expected) + (1 if name == "two" and len(expected) > 1 else 0)
                    )
                assert set(expected) <= {message.body for message in found}
        files = list((tmp_path / "offsets").rglob("offsets.json"))
        assert len(files) == 2

    run(work())


def test_an_orderly_consumer_keeps_the_order_of_a_queue_over_failures(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    penstock_broker.create_topic("steps", 2)

    async def work() -> None:
        async with Producer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
            for number in range(20):
                await producer.send(
                    Message("steps", b"%d" % number, keys=str(number % 2)), order_key=str(number % 2)
                )
        handled: list[tuple[int, int]] = []
        failed: set[bytes] = set()

        async def handle(message: Delivery) -> None:
            if int(message.body) % 5 == 0 and message.body not in failed:
                failed.add(message.body)
                raise ValueError("not yet")
            handled.append((message.queue_id, int(message.body)))
            if len(handled) == 20:
                asyncio.get_running_loop().create_task(consumer.close())

        consumer = Consumer(
            "walkers",
            "steps",
            namesrv=penstock_broker.namesrv,
            settings=quick,
            orderly=True,
            start="earliest",
        )
        async with consumer:
            await consumer.run(handle, concurrency=4)
        for queue in {queue for queue, _ in handled}:
            numbers = [number for place, number in handled if place == queue]
            assert numbers == sorted(numbers)
        assert len(handled) == 20
        assert len(failed) == 4

    run(work())


def test_an_orderly_message_that_fails_too_often_makes_way(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    penstock_broker.create_topic("steps", 1)

    async def work() -> None:
        await send_all(penstock_broker, "steps", [b"bad", b"good"])
        async with Consumer(
            "walkers",
            "steps",
            namesrv=penstock_broker.namesrv,
            settings=quick,
            orderly=True,
            start="earliest",
            max_reconsume_times=2,
        ) as consumer:
            tries = []
            async for message in consumer:
                async with message:
                    tries.append((message.body, message.reconsume_times))
                    if message.body == b"bad":
                        raise ValueError("no")
                if message.body == b"good":
                    break
        assert tries == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
        await until(lambda: penstock_broker.store.max_offset("%DLQ%walkers", 0) == 1)

    run(work())


def test_a_plain_function_is_called_in_threads(penstock_broker: RunningBroker, quick: ClientSettings) -> None:
    import threading

    async def work() -> None:
        await send_all(penstock_broker, "orders", [b"%d" % number for number in range(10)])
        seen: list[bytes] = []
        loop = asyncio.get_running_loop()
        main = threading.get_ident()

        def handle(message: Delivery) -> None:
            assert threading.get_ident() != main
            seen.append(message.body)
            if len(seen) == 10:
                loop.call_soon_threadsafe(lambda: loop.create_task(consumer.close()))

        consumer = Consumer(
            "kitchen", "orders", namesrv=penstock_broker.namesrv, settings=quick, start="earliest"
        )
        async with consumer:
            await consumer.run(handle, concurrency=2)
        assert sorted(seen) == [b"%d" % number for number in range(10)]

    run(work())


def test_seeking_by_offset_and_time(penstock_broker: RunningBroker, quick: ClientSettings) -> None:
    penstock_broker.create_topic("orders", 1)
    queue = MessageQueue("orders", "broker-a", 0)

    async def work() -> None:
        await send_all(penstock_broker, "orders", [b"0", b"1", b"2"])
        await until(
            lambda: time.time_ns() // 1_000_000 > penstock_broker.store.get("orders", 0, 2)[0].store_timestamp
        )
        moment = time.time_ns() // 1_000_000
        await send_all(penstock_broker, "orders", [b"3", b"4"])
        async with Consumer(
            "kitchen", "orders", namesrv=penstock_broker.namesrv, settings=quick, start="earliest"
        ) as consumer:
            assert [m.body for m in await take(consumer, 5)] == [b"0", b"1", b"2", b"3", b"4"]
            await consumer.seek(queue, 1)
            assert [m.body for m in await take(consumer, 4)] == [b"1", b"2", b"3", b"4"]
            await consumer.seek_to_time(moment)
            assert [m.body for m in await take(consumer, 2)] == [b"3", b"4"]
            await consumer.seek_to_beginning("orders")
            assert [m.body for m in await take(consumer, 1)] == [b"0"]
            await consumer.seek_to_end()
            await send_all(penstock_broker, "orders", [b"new"])
            assert [m.body for m in await take(consumer, 1)] == [b"new"]
            with pytest.raises(UsageError):
                await consumer.seek(MessageQueue("orders", "broker-a", 9), 0)

    run(work())


def test_a_group_that_starts_at_the_end_sees_only_what_comes(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    penstock_broker.create_topic("orders", 2)

    async def work() -> None:
        await send_all(penstock_broker, "orders", [b"old"] * 4)
        async with Consumer("kitchen", "orders", namesrv=penstock_broker.namesrv, settings=quick) as consumer:
            await consumer.wait_assigned(LIMIT)
            await consumer.seek_to_end()
            await send_all(penstock_broker, "orders", [b"new"])
            assert [message.body for message in await take(consumer, 1)] == [b"new"]

    run(work())


def test_a_topic_that_appears_later_is_found(penstock_broker: RunningBroker, quick: ClientSettings) -> None:
    async def work() -> None:
        async with Consumer(
            "kitchen", "later", namesrv=penstock_broker.namesrv, settings=quick, start="earliest"
        ) as consumer:
            await send_all(penstock_broker, "later", [b"here"])
            assert [message.body for message in await take(consumer, 1)] == [b"here"]

    run(work())


def test_consuming_goes_on_after_a_restart_of_the_broker(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    async def work() -> None:
        await send_all(penstock_broker, "orders", [b"before"])
        async with Consumer(
            "kitchen", "orders", namesrv=penstock_broker.namesrv, settings=quick, start="earliest"
        ) as consumer:
            assert [message.body for message in await take(consumer, 1)] == [b"before"]
            await asyncio.to_thread(penstock_broker.restart)
            await send_all(penstock_broker, "orders", [b"after"])
            found = await take(consumer, 1)
            while found[-1].body == b"before":  # its acknowledgement may have been lost with the broker
                found = await take(consumer, 1)
            assert found[0].body == b"after"

    run(work())


def test_polling_returns_what_is_there_and_commits(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    async def work() -> None:
        bodies = [b"%d" % number for number in range(40)]
        await send_all(penstock_broker, "orders", bodies)
        seen: list[bytes] = []
        for _ in range(2):
            async with PullConsumer(
                "audit", "orders", namesrv=penstock_broker.namesrv, settings=quick, start="earliest"
            ) as consumer:
                here = 0
                while here < 20:
                    messages = await consumer.poll(LIMIT, most=20 - here)
                    here += len(messages)
                    seen += [message.body for message in messages]
        assert sorted(seen) == sorted(bodies)

    run(work())


def test_nothing_is_acknowledged_without_a_commit_when_that_is_ours_to_do(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    penstock_broker.create_topic("orders", 1)
    queue = MessageQueue("orders", "broker-a", 0)

    async def work() -> None:
        await send_all(penstock_broker, "orders", [b"0", b"1", b"2"])
        async with PullConsumer(
            "audit",
            "orders",
            namesrv=penstock_broker.namesrv,
            settings=quick,
            start="earliest",
            auto_commit=False,
        ) as consumer:
            assert await consumer.poll(LIMIT, most=2)
            assert await consumer.poll(LIMIT, most=1)
            await super(PullConsumer, consumer).commit()
            assert await consumer.committed(queue) in (None, 0)
            await consumer.commit()
            assert await consumer.committed(queue) == 3

    run(work())


def test_queues_can_be_assigned_and_pulled_by_hand(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    penstock_broker.create_topic("orders", 2)

    async def work() -> None:
        async with PullConsumer(
            "audit", namesrv=penstock_broker.namesrv, settings=quick, start="earliest"
        ) as consumer:
            first, second = await consumer.topic_queues("orders")
            async with Producer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
                for number in range(3):
                    await producer.send(Message("orders", b"%d" % number, tags=f"t{number}"), queue=first)
                await producer.send(Message("orders", b"other"), queue=second)
            result = await consumer.pull(first, 1)
            assert [message.body for message in result.messages] == [b"1", b"2"]
            assert (result.next_offset, result.min_offset, result.max_offset) == (3, 0, 3)
            tagged = await consumer.pull(first, 0, tags="t2")
            assert [message.body for message in tagged.messages] == [b"2"]
            assert (await consumer.pull(first, 3)).messages == []
            assert (await consumer.min_offset(first), await consumer.max_offset(first)) == (0, 3)
            await consumer.assign([first])
            assert [message.body for message in await consumer.poll(LIMIT)] == [b"0", b"1", b"2"]
            assert consumer.assignment == [first]

    run(work())


def test_names_that_are_no_groups_are_refused() -> None:
    for group in ("", "with space", "x" * 200, "../up"):
        with pytest.raises(UsageError):
            Consumer(group, "orders")
    with pytest.raises(UsageError):
        Consumer("kitchen", "orders", start="yesterday")
