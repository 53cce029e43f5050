"""Pulls of those who read whole queues: as many messages as an answer holds, the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.instance import ClientInstance
from penstock.client.producer import Producer
from penstock.client.pulling import PullAnswer, PullStatus, ask_records
from penstock.client.queue import MessageQueue
from penstock.client.subscription import Subscription
from penstock.config import StoreConfig
from penstock.message import Message
from penstock.testing.broker import RunningBroker

COUNT = 3000
SMALL = StoreConfig(
    mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20 * 2048, max_index_num=20_000
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    path: Path = tmp_path_factory.mktemp("bulk")
    with RunningBroker(path, store=SMALL) as running:
        running.create_topic("t", 2)
        asyncio.run(fill(running))
        yield running


async def fill(running: RunningBroker) -> None:
    name = running.broker.config.broker_name
    async with Producer(namesrv=running.namesrv) as producer:
        for first in range(0, COUNT, 100):
            for queue in range(2):
                some = [Message("t", b"%d " % number * 30) for number in range(first, first + 100)]
                await producer.send_batch(some, queue=MessageQueue("t", name, queue))


def pull(running: RunningBroker, offset: int, most: int, *, bulk: bool, tags: str = "*") -> PullAnswer:
    async def work() -> PullAnswer:
        instance = ClientInstance(running.namesrv)
        await instance.start()
        try:
            route = await instance.route("t")
            queue = route.subscribe_queues[0]
            asked = (instance, "TOOLS_CONSUMER", queue, offset, Subscription("t", tags))
            return await ask_records(*asked, most=most, hold=0.0, with_subscription=True, bulk=bulk)
        finally:
            await instance.close()

    return asyncio.run(work())


def whole(running: RunningBroker, *, bulk: bool) -> tuple[bytes, int]:
    """All records of a queue, and how many pulls they took."""
    found, offset, pulls = b"", 0, 0
    while offset < COUNT:
        answer = pull(running, offset, COUNT, bulk=bulk)
        assert answer.status is PullStatus.FOUND and answer.next_offset > offset
        found += bytes(answer.body)
        offset, pulls = answer.next_offset, pulls + 1
    return found, pulls


@pytest.mark.parametrize("hot_bytes", [64 << 20, 0])
def test_a_bulk_pull_fills_its_answer_with_the_same_records(broker: RunningBroker, hot_bytes: int) -> None:
    broker.store.cold_reads.hot_bytes = hot_bytes
    records, pulls = whole(broker, bulk=True)
    assert pulls < 10
    few = pull(broker, 0, COUNT, bulk=False)
    assert few.next_offset == 32
    assert records.startswith(bytes(few.body))
    offset, size = 0, 0
    while offset < COUNT:
        assert int.from_bytes(records[size + 20 : size + 28], "big") == offset
        offset, size = offset + 1, size + int.from_bytes(records[size : size + 4], "big")
    assert size == len(records)


def test_a_bulk_pull_gives_no_more_than_was_asked_for_nor_than_an_answer_holds(broker: RunningBroker) -> None:
    assert pull(broker, 10, 100, bulk=True).next_offset == 110
    answer = pull(broker, 0, COUNT, bulk=True)
    assert len(answer.body) <= SMALL.max_transfer_bytes_on_message_in_memory


def test_a_bulk_pull_with_tags_is_a_pull_like_others(broker: RunningBroker) -> None:
    answer = pull(broker, 0, COUNT, bulk=True, tags="nobody")
    assert answer.status is PullStatus.NO_MATCHED_MESSAGE


@pytest.mark.parametrize(
    ("offset", "status"), [(COUNT, PullStatus.NO_NEW_MESSAGE), (COUNT + 5, PullStatus.OFFSET_MOVED)]
)
def test_a_bulk_pull_at_the_end_says_so(broker: RunningBroker, offset: int, status: PullStatus) -> None:
    assert pull(broker, offset, COUNT, bulk=True).status is status
