"""A peer: the source over the network that one writes first. Pull, a message at a time, a tuple a row."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.bench.spark.data import QUEUES, TOPICS
from penstock.client.queue import MessageQueue
from penstock.client.received import ReceivedMessage
from penstock.client.sync import PullConsumer
from penstock.spark.schema import COLUMNS

_GROUP = "bench-loop"


class Half(InputPartition):
    """Every second topic: one task for each core."""

    def __init__(self, number: int) -> None:
        super().__init__(number)


class LoopReader(DataSourceReader):
    """Two tasks that consume the topics of the bench."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv

    def partitions(self) -> list[InputPartition]:
        return [Half(0), Half(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        with PullConsumer(_GROUP, namesrv=self.namesrv) as consumer:
            for number in range(partition.value, TOPICS, 2):
                for queue in consumer.topic_queues(f"bench-{number:02d}")[:QUEUES]:
                    yield from messages(consumer, queue)


def messages(consumer: PullConsumer, queue: MessageQueue) -> Iterator[tuple[Any, ...]]:
    """The rows of one queue, from its first message to its last."""
    offset = 0
    while True:
        result = consumer.pull(queue, offset)
        for message in result.messages:
            yield row(message)
        offset = result.next_offset
        if offset >= result.max_offset:
            return


def row(message: ReceivedMessage) -> tuple[Any, ...]:
    """All columns of a message."""
    return (
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        message.offset_message_id,
        message.unique_key,
        message.keys,
        message.tags,
        message.body,
        message.properties,
        datetime.fromtimestamp(message.born_timestamp / 1000, UTC),
        datetime.fromtimestamp(message.store_timestamp / 1000, UTC),
        message.born_host,
        message.store_host,
        message.flag,
        message.sys_flag,
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.stored.body_crc,
        message.size,
    )


class LoopSource(DataSource):
    """``spark.read.format("loop").load("host:port")``, with the columns of the source ``rocketmq``."""

    @classmethod
    def name(cls) -> str:
        return "loop"

    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind, _ in COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return LoopReader(self.options["path"])
