"""Messages with a time, sent and taken back by our own client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from penstock import Message
from penstock.client import ClientSettings, Producer
from penstock.client.errors import BrokerError
from penstock.client.sync import Producer as SyncProducer
from penstock.errors import UsageError
from penstock.message.topic import TIMER_TOPIC
from penstock.testing import RunningBroker


def test_a_delay_never_asks_for_less_than_it_says(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    async def work() -> None:
        async with Producer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
            moment = datetime.now(UTC) + timedelta(hours=1)
            for asked in ({"delay": 60.0004}, {"deliver_at": moment}):
                sent = await producer.send(Message("orders", b"x"), **asked)
                assert sent.ok and sent.recall_handle
        first, second = penstock_broker.store.get(TIMER_TOPIC, 0, 0)
        assert first.properties["TIMER_DELAY_MS"] == "60001"
        assert int(second.properties["TIMER_DELIVER_MS"]) / 1000 >= moment.timestamp()

    asyncio.run(work())


def test_a_message_is_taken_back(
    penstock_broker_factory: Callable[..., RunningBroker], quick: ClientSettings
) -> None:
    broker = penstock_broker_factory(recall_message_enable=True)
    with SyncProducer(namesrv=broker.namesrv, settings=quick) as producer:
        sent = producer.send(Message("orders", b"x"), delay=3600)
        assert producer.recall("orders", sent.recall_handle) == sent.message_id
        with pytest.raises(BrokerError, match="topic not match"):
            producer.send(Message("other", b"x"))
            producer.recall("other", sent.recall_handle)
        with pytest.raises(UsageError, match="recall handle"):
            producer.recall("orders", producer.send(Message("orders", b"x")).recall_handle)
        with pytest.raises(UsageError, match="recall handle"):
            producer.recall("orders", "nonsense")


def test_a_broker_that_allows_no_recall_says_so(
    penstock_broker: RunningBroker, quick: ClientSettings
) -> None:
    with SyncProducer(namesrv=penstock_broker.namesrv, settings=quick) as producer:
        sent = producer.send(Message("orders", b"x"), delay=3600)
        with pytest.raises(BrokerError, match="forbidden"):
            producer.recall("orders", sent.recall_handle)
