"""A broker that is killed, again and again, while a stream reads it and another process writes to it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import Message
from penstock.bench.penstockbroker import PenstockBroker
from penstock.client import ClientSettings
from penstock.client.sync import Producer
from penstock.errors import PenstockError
from spark.stream.queries import SCHEMA, Seen, finish, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.cluster
KILLS = 3


def stream(spark: SparkSession, namesrv: str) -> DataFrame:
    reader = spark.readStream.format("rocketmq").schema(SCHEMA).option("namesrv", namesrv)
    return reader.option("subscribe", "t").option("maxOffsetsPerTrigger", "2000").load()


def test_a_stream_over_a_broker_that_is_killed_has_every_acknowledged_message_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    with PenstockBroker(tmp_path / "broker") as broker:
        acknowledged: list[int] = []
        ended = threading.Event()

        def produce() -> None:
            number = 0
            settings = ClientSettings(send_retries=0, send_timeout=2.0)
            with Producer(namesrv=broker.namesrv, settings=settings) as producer:
                while not ended.is_set():
                    try:
                        producer.send(Message("t", b"%d" % number))
                        acknowledged.append(number)
                    except PenstockError:
                        ended.wait(0.05)
                    number += 1  # a number whose answer got lost may be there or not, and is not used again

        producing = threading.Thread(target=produce)
        producing.start()
        seen = Seen()
        query = start(stream(spark, broker.namesrv), seen, tmp_path / "checkpoint", now=False)
        try:
            for kill in range(KILLS):
                seen.until(query, lambda kill=kill: seen.has(200 * (kill + 1)))  # type: ignore[misc]
                broker.stop(kill=True)
                broker.start()
            ended.set()
            producing.join()
            seen.until(query, lambda: set(acknowledged) <= set(seen.numbers))
        finally:
            ended.set()
            query.stop()
        finish(start(stream(spark, broker.namesrv), seen, tmp_path / "checkpoint"))
        places = [row[:3] for row in seen.rows]
        assert len(places) == len(set(places)), "no offset came twice"
        assert set(acknowledged) <= set(seen.numbers)
