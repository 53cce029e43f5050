"""A topic at two brokers: their queues have the same numbers and are told apart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Message
from penstock.client import Producer
from penstock.client.admin import Admin
from penstock.client.queue import MessageQueue
from penstock.config import StoreConfig
from penstock.errors import PenstockError, UsageError
from penstock.spark.course import Course
from penstock.spark.jobs.export import export
from penstock.spark.network.access import Access
from penstock.spark.network.rowsender import Identity, RowSender
from penstock.spark.network.watch import BrokerWatch
from penstock.spark.options import ReadOptions
from penstock.spark.rowencoder import WritePlan
from penstock.spark.writeoptions import WriteOptions
from penstock.testing import RunningBroker
from spark.network.rows import rows

NAMES = ("broker-a", "broker-b")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of two brokers with topic t, queues 0 and 1 at each."""
    folder: Path = tmp_path_factory.mktemp("pair")
    with RunningBroker(folder / "a", broker_name=NAMES[0]) as first:
        settings = {"namesrv_addr": first.namesrv, "namesrv_embedded": False, "broker_name": NAMES[1]}
        with RunningBroker(folder / "b", **settings):
            asyncio.run(fill(first.namesrv))
            yield first.namesrv


async def fill(namesrv: str) -> None:
    async with Admin(namesrv) as admin, asyncio.timeout(20):
        while len(await admin.brokers()) < 2:
            await asyncio.sleep(0.02)
        await admin.create_topic("t", queues=2)
        while True:
            try:
                if len((await admin.instance.ask_route("t")).publish_queues) == 4:
                    break
            except PenstockError:
                pass
            await asyncio.sleep(0.02)
    async with Producer(namesrv=namesrv) as producer:
        for number, name in enumerate(NAMES):
            for queue in range(2):
                some = [Message("t", b"%d" % (100 * (2 * number + queue) + n)) for n in range(50)]
                await producer.send_batch(some, queue=MessageQueue("t", name, queue))


EVERYTHING = sorted(100 * queue + number for queue in range(4) for number in range(50))


def test_every_message_of_both_comes_once(pair: str) -> None:
    for options in ({}, {"minPartitions": "3"}, {"maxBatchRows": "7"}):
        found = rows(pair, ["body"], subscribe="t", **options)
        assert sorted(int(row["body"]) for row in found) == EVERYTHING


def test_a_queue_is_named_with_its_broker_where_two_have_it(pair: str) -> None:
    with pytest.raises(UsageError, match="say which: t@broker-a, t@broker-b"):
        rows(pair, subscribe="t", startingOffsets='{"t":{"0":40}}')
    found = rows(pair, ["body"], assign='{"t":[0]}', startingOffsets='{"t@broker-b":{"0":48}}')
    assert sorted(int(row["body"]) for row in found) == [*range(50), 248, 249]


def test_a_stream_keeps_a_place_in_each(pair: str) -> None:
    options = ReadOptions.parse({"namesrv": pair, "subscribe": "t", "maxBytesPerTrigger": "8k"})
    watch = BrokerWatch(options)
    course = Course(options, watch)
    place, seen = course.initial(), []
    while (end := course.latest(place)) != place:
        ranges = course.ranges(place, end)
        assert 0 < sum(stop - start for start, stop in ranges.values()) < 200
        seen += [(key, number) for key, (start, stop) in ranges.items() for number in range(start, stop)]
        place = end
    assert len(seen) == len(set(seen)) == 200
    assert place["q"] == {f"t@{name}": {"0": 50, "1": 50} for name in NAMES}


def test_rows_go_to_the_queues_of_both(pair: str) -> None:
    plan = WritePlan(WriteOptions.parse({"namesrv": pair, "topic": "u"}), ("body",), StoreConfig())
    asyncio.run(_make("u", pair))
    batch = pa.RecordBatch.from_pydict({"body": [b"%d" % number for number in range(80)]})
    assert RowSender(plan, Access(pair), Identity("w", 0)).send([batch]).sent == 80
    found = rows(pair, ["body", "storeHost"], subscribe="u")
    assert sorted(int(row["body"]) for row in found) == list(range(80))
    assert len({row["storeHost"] for row in found}) == 2


async def _make(topic: str, namesrv: str) -> None:
    async with Admin(namesrv) as admin, asyncio.timeout(20):
        await admin.create_topic(topic, queues=2)
        while len((await admin.instance.ask_route(topic)).publish_queues) < 4:
            await asyncio.sleep(0.02)


def test_an_export_refuses_queues_that_it_could_not_tell_apart(pair: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="several brokers have queue 0 of t"):
        export(None, f"namesrv://{pair}", str(tmp_path / "out"), topics=["t"], dry_run=True)  # type: ignore[arg-type]
