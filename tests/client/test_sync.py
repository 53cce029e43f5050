"""The blocking face, and clients on uvloop."""

from __future__ import annotations

import asyncio

import pytest

from penstock import Consumer as LazyConsumer
from penstock import Message
from penstock.client import Consumer as AsyncConsumer
from penstock.client import Producer as AsyncProducer
from penstock.client.errors import ClientClosed
from penstock.client.sync import Consumer, Producer, PullConsumer
from penstock.testing import RunningBroker


def test_a_program_without_a_loop_sends_and_consumes(penstock_broker: RunningBroker) -> None:
    with Producer(namesrv=penstock_broker.namesrv) as producer:
        assert producer.send(Message("orders", b"0")).ok
        assert len(producer.send_many([Message("orders", b"1"), Message("orders", b"2")])) == 2
        assert producer.send_soon(Message("orders", b"3")).result(30).ok
        producer.send_batch([Message("orders", b"4")])
        with producer.transaction(Message("orders", b"5")):
            pass
        with pytest.raises(ValueError, match="no"), producer.transaction(Message("orders", b"never")):
            raise ValueError("no")
    seen = []
    with Consumer("kitchen", "orders", namesrv=penstock_broker.namesrv, start="earliest") as consumer:
        for message in consumer:
            with message:
                seen.append(message.body)
            if len(seen) == 6:
                break
        assert consumer.next(timeout=0.01) is None
    assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    with PullConsumer("audit", "orders", namesrv=penstock_broker.namesrv, start="earliest") as puller:
        found = []
        while len(found) < 6:
            found += [message.body for message in puller.poll(30)]
        queue = puller.assignment[0]
        assert puller.min_offset(queue) == 0
    assert sorted(found) == sorted(seen)


def test_a_failed_block_means_again_later(penstock_broker: RunningBroker) -> None:
    with Producer(namesrv=penstock_broker.namesrv) as producer:
        producer.send(Message("orders", b"x"))
    with Consumer("kitchen", "orders", namesrv=penstock_broker.namesrv, start="earliest") as consumer:
        message = consumer.next(30)
        assert message is not None
        with message:
            raise ValueError("not now")
    # Delayed, under the retry topic of the group.
    assert penstock_broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 2) == 1


def test_a_closed_face_says_so(penstock_broker: RunningBroker) -> None:
    producer = Producer(namesrv=penstock_broker.namesrv)
    with pytest.raises(ClientClosed):
        producer.send(Message("orders", b"x"))
    with producer:
        pass
    with pytest.raises(ClientClosed):
        producer.send(Message("orders", b"x"))


def test_clients_run_on_uvloop(penstock_broker: RunningBroker) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def work() -> bytes:
        async with AsyncProducer(namesrv=penstock_broker.namesrv) as producer:
            await asyncio.gather(*(producer.send(Message("orders", b"x")) for _ in range(50)))
        async with AsyncConsumer(
            "kitchen", "orders", namesrv=penstock_broker.namesrv, start="earliest"
        ) as consumer:
            async for message in consumer:
                async with message:
                    return message.body
        return b""

    assert uvloop.run(work()) == b"x"


def test_the_face_of_the_package_has_the_clients() -> None:
    assert LazyConsumer is AsyncConsumer
