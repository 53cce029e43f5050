"""A peer: the data source that a careful Python programmer writes first. ``struct`` and a tuple a row.

It decodes the same columns of the same records as ours, one segment a task, without checking anything.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.schema import COLUMNS

_HEAD = struct.Struct(">iiiiiqqiq")
_TAIL = struct.Struct(">iqi")
_MAGIC = -626843481
_MILLISECOND = 1000


class Segment(InputPartition):
    """One file of the log."""

    def __init__(self, path: str) -> None:
        super().__init__(path)


class TupleReader(DataSourceReader):
    """One task for each segment of a store."""

    def __init__(self, path: str) -> None:
        self.path = path

    def partitions(self) -> list[InputPartition]:
        return [Segment(str(file)) for file in sorted(Path(self.path, "commitlog").iterdir())]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        yield from records(Path(partition.value).read_bytes())


class TupleSource(DataSource):
    """``spark.read.format("tuples").load(store)``, with the columns of the source ``rocketmq``."""

    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind, _ in COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(self.options["path"])


def records(data: bytes) -> Iterator[tuple[Any, ...]]:
    """The rows of one segment. Records are of the first kind, with addresses of four bytes."""
    at, end = 0, len(data)
    while at + 8 <= end:
        size, magic, crc, queue, flag, queue_offset, place, system_flag, born = _HEAD.unpack_from(data, at)
        if magic != _MAGIC:
            return  # the filler, or nothing was written here
        born_address, born_port = data[at + 48 : at + 52], int.from_bytes(data[at + 52 : at + 56], "big")
        stored = int.from_bytes(data[at + 56 : at + 64], "big")
        store_host = data[at + 64 : at + 72]
        reconsumed, prepared, length = _TAIL.unpack_from(data, at + 72)
        begin = at + 88
        body = data[begin : begin + length]
        begin += length
        topic_length = data[begin]
        topic = data[begin + 1 : begin + 1 + topic_length].decode()
        begin += 1 + topic_length
        text = data[begin + 2 : at + size].decode()
        properties = dict(pair.split("\x01", 1) for pair in text.split("\x02") if pair)
        yield (
            topic,
            queue,
            queue_offset,
            place,
            (store_host + place.to_bytes(8, "big")).hex().upper(),
            properties.get("UNIQ_KEY"),
            properties.get("KEYS"),
            properties.get("TAGS"),
            body,
            properties,
            datetime.fromtimestamp(born / _MILLISECOND, UTC),
            datetime.fromtimestamp(stored / _MILLISECOND, UTC),
            f"{'.'.join(map(str, born_address))}:{born_port}",
            f"{'.'.join(map(str, store_host[:4]))}:{int.from_bytes(store_host[4:], 'big')}",
            flag,
            system_flag,
            reconsumed,
            prepared,
            crc,
            size,
        )
        at += size
