"""What a producer promises, against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from penstock import Message
from penstock.client import ClientSettings, Producer, TransactionState
from penstock.client.errors import ClientClosed, ConnectionLost, RouteNotFound
from penstock.errors import MessageRejected, PenstockError, RemotingTimeout, UsageError
from penstock.testing import RunningBroker


def bodies(broker: RunningBroker, topic: str) -> list[bytes]:
    """What the store holds of a topic, queue by queue."""
    broker.store.wait_visible()
    return [
        message.body
        for name, queue in broker.store.queues()
        if name == topic
        for message in broker.store.get(topic, queue, 0, 1000)
    ]


def test_a_message_arrives_as_it_was_sent(penstock_broker: RunningBroker, quick: ClientSettings) -> None:
    async def work() -> None:
        async with Producer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
            sent = await producer.send(
                Message(
                    "orders", b"two espressos", tags="coffee", keys="order-1 alice", properties={"table": "4"}
                )
            )
            assert sent.ok
            stored = penstock_broker.store.lookup(sent.offset_message_id)
            assert stored is not None
            assert (stored.topic, stored.body, stored.tags) == ("orders", b"two espressos", "coffee")
            assert stored.keys == "order-1 alice"
            assert stored.properties["table"] == "4"
            assert (stored.queue_id, stored.queue_offset) == (sent.queue.queue_id, sent.queue_offset)
            assert stored.unique_key == sent.message_id

    asyncio.run(work())


def test_queues_take_turns_and_a_key_stays_in_its_queue(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    async def work() -> None:
        penstock_broker.create_topic("orders", 4)
        async with Producer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
            sent = [await producer.send(Message("orders", b"x")) for _ in range(8)]
            assert sorted(result.queue.queue_id for result in sent) == [0, 0, 1, 1, 2, 2, 3, 3]
            keyed = [await producer.send(Message("orders", b"k"), order_key="alice") for _ in range(4)]
            assert len({result.queue for result in keyed}) == 1
            assert [result.queue_offset for result in keyed] == list(
                range(keyed[0].queue_offset, keyed[0].queue_offset + 4)
            )
            wanted = (await producer.queues("orders"))[2]
            assert (await producer.send(Message("orders", b"q"), queue=wanted)).queue == wanted

    asyncio.run(work())


def test_many_in_flight_arrive_once_each_and_in_order(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    async def work() -> None:
        penstock_broker.create_topic("one", 1)
        async with Producer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
            await producer.send(Message("one", b"first"))
            futures = [producer.send_soon(Message("one", b"%d" % number)) for number in range(500)]
            results = await asyncio.gather(*futures)
            assert [result.queue_offset for result in results] == list(range(1, 501))
            assert len({result.message_id for result in results}) == 500

    asyncio.run(work())


def test_a_window_bounds_what_is_in_flight(penstock_broker: RunningBroker) -> None:
    settings = ClientSettings(max_in_flight=4, send_timeout=20.0)

    async def work() -> None:
        async with Producer(namesrv=penstock_broker.namesrv, settings=settings) as producer:
            results = await asyncio.gather(
                *(producer.send(Message("orders", b"%d" % number)) for number in range(200))
            )
            assert len({result.offset_message_id for result in results}) == 200

    asyncio.run(work())


def test_a_batch_is_stored_in_order_with_a_result_each(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    async def work() -> None:
        async with Producer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
            messages = [
                Message("orders", b"%d" % number, tags="t", keys=f"k{number}") for number in range(50)
            ]
            sent = await producer.send_batch(messages)
            assert [result.queue_offset for result in sent] == list(range(50))
            assert len({result.queue for result in sent}) == 1
            for number, result in enumerate(sent):
                stored = penstock_broker.store.lookup(result.offset_message_id)
                assert stored is not None
                assert (stored.body, stored.keys) == (b"%d" % number, f"k{number}")
                assert stored.unique_key == result.message_id

    asyncio.run(work())


def test_a_batch_larger_than_a_request_is_split(penstock_broker: RunningBroker) -> None:
    settings = ClientSettings(max_message_size=4000, send_timeout=20.0)

    async def work() -> None:
        async with Producer(namesrv=penstock_broker.namesrv, settings=settings) as producer:
            queue = (await producer.queues("orders"))[0]
            sent = await producer.send_batch((Message("orders", b"x" * 900) for _ in range(10)), queue=queue)
            assert [result.queue_offset for result in sent] == list(range(10))
            with pytest.raises(MessageRejected):
                await producer.send_batch([Message("orders", b"x" * 5000)])
            with pytest.raises(UsageError):
                await producer.send_batch([Message("orders", b"x"), Message("others", b"x")])
            assert await producer.send_batch([]) == []

    asyncio.run(work())


def test_large_bodies_travel_compressed(penstock_broker: RunningBroker, quick: ClientSettings) -> None:
    async def work() -> None:
        async with Producer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
            sent = await producer.send(Message("orders", b"abc" * 3000))
            stored = penstock_broker.store.lookup(sent.offset_message_id)
            assert stored is not None
            assert stored.sys_flag & 0x701 == 0x301
            assert len(stored.body) < 1000

    asyncio.run(work())


def test_one_way_messages_arrive_without_an_answer(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    async def work() -> None:
        async with Producer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
            for number in range(20):
                await producer.send_one_way(Message("orders", b"%d" % number))
            # Requests of one connection are served in order: behind this one all others are stored.
            await producer.send(Message("orders", b"last"))

    asyncio.run(work())
    found = bodies(penstock_broker, "orders")
    assert sorted(found) == sorted([*(b"%d" % number for number in range(20)), b"last"])


@pytest.mark.parametrize(
    "message",
    [
        Message("orders", b""),
        Message("orders", b"x" * ((4 << 20) + 1)),
        Message("bad topic", b"x"),
        Message("", b"x"),
        Message("orders", b"x", properties={"p": "x" * 40_000}),
    ],
)
def test_a_message_nobody_takes_is_refused_before_it_leaves(
    penstock_broker: RunningBroker, quick: ClientSettings, message: Message
) -> None:
    async def work() -> None:
        async with Producer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
            with pytest.raises(MessageRejected):
                await producer.send(message)

    asyncio.run(work())


def test_an_unknown_topic_is_an_error_where_topics_are_not_made(
    penstock_broker_factory: Callable[..., RunningBroker], quick: ClientSettings
) -> None:
    broker = penstock_broker_factory(auto_create_topic_enable=False)

    async def work() -> None:
        async with Producer(namesrv=broker.namesrv, settings=quick) as producer:
            with pytest.raises(RouteNotFound, match="nowhere"):
                await producer.send(Message("nowhere", b"x"))

    asyncio.run(work())


def test_no_name_server_is_an_error_in_time() -> None:
    async def work() -> None:
        async with Producer(namesrv="127.0.0.1:1", settings=ClientSettings(send_timeout=1.0)) as producer:
            with pytest.raises((ConnectionLost, RemotingTimeout)):
                await producer.send(Message("orders", b"x"))

    asyncio.run(work())


def test_a_producer_that_is_not_open_says_so(penstock_broker: RunningBroker) -> None:
    async def work() -> None:
        producer = Producer(namesrv=penstock_broker.namesrv)
        with pytest.raises(ClientClosed):
            await producer.send(Message("orders", b"x"))
        await producer.start()
        await producer.close()
        with pytest.raises(ClientClosed):
            await producer.send(Message("orders", b"x"))
        await producer.close()

    asyncio.run(work())


def test_sends_survive_a_restart_of_the_broker(penstock_broker: RunningBroker, quick: ClientSettings) -> None:
    async def work() -> list[bytes]:
        acknowledged: list[bytes] = []
        async with Producer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
            await producer.send(Message("orders", b"before"))
            acknowledged.append(b"before")
            stopping = asyncio.get_running_loop().run_in_executor(None, penstock_broker.restart)
            number = 0
            while not stopping.done() or number < 20:
                body = b"%d" % number
                await producer.send(Message("orders", body))
                acknowledged.append(body)
                number += 1
            await stopping
        return acknowledged

    acknowledged = asyncio.run(work())
    found = bodies(penstock_broker, "orders")
    assert set(acknowledged) <= set(found)


def test_a_transaction_is_seen_only_after_its_block(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    penstock_broker.create_topic("orders", 1)

    async def work() -> None:
        async with Producer("shop", namesrv=penstock_broker.namesrv, settings=quick) as producer:
            async with producer.transaction(Message("orders", b"committed")):
                assert bodies(penstock_broker, "orders") == []
            assert bodies(penstock_broker, "orders") == [b"committed"]
            with pytest.raises(ValueError, match="no"):
                async with producer.transaction(Message("orders", b"rolled back")):
                    raise ValueError("no")
            async with producer.transaction(Message("orders", b"rolled back too")) as transaction:
                transaction.roll_back()
            _, state = await producer.send_in_transaction(
                Message("orders", b"second"), lambda message: TransactionState.COMMIT
            )
            assert state is TransactionState.COMMIT
            assert bodies(penstock_broker, "orders") == [b"committed", b"second"]

    asyncio.run(work())


def test_errors_are_of_one_tree() -> None:
    from penstock.client import errors

    for name in errors.__all__:
        found = getattr(errors, name)
        if isinstance(found, type):
            assert issubclass(found, PenstockError)
