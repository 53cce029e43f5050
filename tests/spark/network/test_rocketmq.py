"""The source on RocketMQ's own broker gives what its own Java consumer gives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock import Message
from penstock import spark as ps
from penstock.bench.peer import INTEROP_OPTIONS, Peer, missing_tools
from penstock.bench.rocketmq import RocketMQ
from penstock.client import Producer
from penstock.client.admin import Admin
from penstock.config import StoreConfig
from penstock.errors import PenstockError
from penstock.spark.network.access import Access
from penstock.spark.network.reading import broker_batches
from penstock.spark.network.rowsender import Identity, RowSender, Written
from penstock.spark.rowencoder import WritePlan
from penstock.spark.writeoptions import WriteOptions
from spark.network.rows import planned, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(missing_tools()), reason="needs Java and Maven"),
]
COUNT = 400
WORDS = count()


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    options = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    settings = {"mappedFileSizeCommitLog": 64 << 20}
    with RocketMQ(tmp_path_factory.mktemp("rocketmq"), settings=settings, options=options) as running:
        asyncio.run(_until_ready(running))
        yield running


async def _until_ready(running: RocketMQ) -> None:
    """It listens before it stores: wait for a message that it has taken."""
    async with asyncio.timeout(120):
        while True:
            try:
                async with Admin(running.namesrv) as admin, Producer(namesrv=running.namesrv) as producer:
                    await admin.create_topic("ready", queues=1)
                    await producer.send(Message("ready", b"?"))
                    return
            except PenstockError:
                await asyncio.sleep(0.2)


@pytest.fixture(scope="module")
def java() -> Iterator[Peer]:
    with Peer("ClientDriver", "5.5.0", INTEROP_OPTIONS) as peer:
        yield peer


@pytest.fixture
def topic(rocketmq: RocketMQ, java: Peer) -> str:
    name = f"spark_{next(WORDS)}"
    java.ask("create-topic", namesrv=rocketmq.namesrv, broker=rocketmq.address, topic=name, queues=4)
    return name


def send(java: Peer, rocketmq: RocketMQ, topic: str, messages: list[dict[str, Any]]) -> None:
    java.ask("producer", name=f"p{topic}", group=f"P{topic}", namesrv=rocketmq.namesrv, compress_over=1000)
    try:
        answer = java.ask("send", name=f"p{topic}", messages=messages, mode="sync")
        assert {result.get("status") for result in answer["results"]} == {"SEND_OK"}, answer["results"][:3]
    finally:
        java.ask("stop-producer", name=f"p{topic}")


def consumed(java: Peer, rocketmq: RocketMQ, topic: str, number: int) -> list[dict[str, Any]]:
    java.ask("consumer", name=f"c{topic}", namesrv=rocketmq.namesrv, topic=topic, group=f"C{topic}")
    try:
        answer = java.ask("received", name=f"c{topic}", count=number, timeout_ms=120_000)
    finally:
        java.ask("stop-consumer", name=f"c{topic}")
    return list(answer["messages"])


def messages_of(topic: str) -> list[dict[str, Any]]:
    """Some with tags and keys, some long enough to travel compressed."""
    made = []
    for number in range(COUNT):
        body = f"m{number} " * (400 if number % 50 == 0 else 1)
        made.append({"topic": topic, "body": body, "tags": "ab"[number % 2], "keys": f"k{number}"})
    return made


def seen(message: dict[str, Any]) -> tuple[Any, ...]:
    """What Java's consumer says of a message."""
    names = ("queue_id", "queue_offset", "physical_offset", "tags", "body")
    return tuple(message[name] for name in names)


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    """The same of a row."""
    return (row["queueId"], row["queueOffset"], row["physicalOffset"], row["tags"], row["body"].decode())


def test_rows_are_what_the_java_consumer_gets(rocketmq: RocketMQ, java: Peer, topic: str) -> None:
    send(java, rocketmq, topic, messages_of(topic))
    wanted = sorted(seen(message) for message in consumed(java, rocketmq, topic, COUNT))
    assert len(wanted) == COUNT
    found = rows(rocketmq.namesrv, subscribe=topic, minPartitions=3)
    assert sorted(map(shown, found)) == wanted
    tagged = rows(rocketmq.namesrv, subscribe=topic, tags="a")
    assert sorted(map(shown, tagged)) == [message for message in wanted if message[3] == "a"]
    assert len(rows(rocketmq.namesrv, subscribe=topic, keys="k17,k18")) == 2
    last = max(row["storeTimestamp"] for row in found)
    late = rows(rocketmq.namesrv, subscribe=topic, startingTimestamp=last)
    young = [row for row in found if row["storeTimestamp"] >= last]
    assert sorted(map(shown, late)) == sorted(map(shown, young))
    group = rows(rocketmq.namesrv, subscribe=topic, startingGroup=f"C{topic}")
    assert group == [], "the Java consumer has read everything"


def test_what_we_send_the_java_consumer_gets_once(rocketmq: RocketMQ, java: Peer, topic: str) -> None:
    batch = pa.RecordBatch.from_pydict(
        {"body": [f"row {number}" for number in range(COUNT)], "tags": ["x"] * COUNT}
    )
    plan = WritePlan(
        WriteOptions.parse({"namesrv": rocketmq.namesrv, "topic": topic}), ("body", "tags"), StoreConfig()
    )
    for expected in (Written(COUNT, 0), Written(0, COUNT)):
        sender = RowSender(plan, Access(rocketmq.namesrv), Identity("interop", 0))
        assert sender.send([batch]) == expected
    found = consumed(java, rocketmq, topic, COUNT)
    assert sorted(message["body"] for message in found) == sorted(batch.column("body").to_pylist())


def test_a_broker_killed_in_the_middle_of_a_read_costs_no_row(
    rocketmq: RocketMQ, java: Peer, topic: str
) -> None:
    send(java, rocketmq, topic, messages_of(topic))
    options, splits = planned(rocketmq.namesrv, subscribe=topic, maxBatchRows=20, minPartitions=4)
    found: list[int] = []
    for number, split in enumerate(splits):
        if number == 1:
            rocketmq.stop(kill=True)
            again = threading.Thread(target=rocketmq.start)
            again.start()
        for batch in broker_batches(split, ["physicalOffset"], options):
            found += batch.column(0).to_pylist()
    again.join()
    assert len(found) == len(set(found)) == COUNT


def test_spark_reads_and_streams_a_topic(
    spark: SparkSession, rocketmq: RocketMQ, java: Peer, topic: str, tmp_path: Any
) -> None:
    send(java, rocketmq, topic, messages_of(topic))
    assert ps.read(spark, namesrv=rocketmq.namesrv, topic=topic).count() == COUNT
    query = (
        ps.stream(spark, namesrv=rocketmq.namesrv, topic=topic, maxBytesPerTrigger="20k")
        .writeStream.format("memory")
        .queryName(f"q_{topic}")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert spark.table(f"q_{topic}").select("physicalOffset").distinct().count() == COUNT
    assert len(query.recentProgress) > 1
