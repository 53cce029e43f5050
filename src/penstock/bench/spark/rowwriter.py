"""A peer: the row writer that a careful Python programmer writes first. ``struct`` and a file a task.

It encodes the same records, with their CRC, and puts them into a file for each task: no queues, no index, no
publishing. That is less than ours does.
"""

from __future__ import annotations

import os
import struct
import time
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import Row, StructType

_HEAD = struct.Struct(">iiiiiqqiq8sq8siqi")
_MAGIC = -626843481
_HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
_BUFFER = 1 << 20


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote."""

    path: str
    rows: int


class RowWriter(DataSourceWriter):
    """A file for each task, in the folder ``path``."""

    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        folder = Path(self.path)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part-{uuid.uuid4().hex}"
        place = rows = 0
        offsets: dict[tuple[str, int], int] = {}
        with path.open("wb", buffering=_BUFFER) as file:
            for row in iterator:
                key = (row["topic"], row["queueId"])
                offset = offsets[key] = offsets.get(key, -1) + 1
                record = encode(row, offset, place)
                file.write(record)
                place += len(record)
                rows += 1
            file.flush()
            os.fsync(file.fileno())
        return Written(str(path), rows)


class RowSink(DataSource):
    """``df.write.format("rows").mode("append").save(folder)``."""

    @classmethod
    def name(cls) -> str:
        return "rows"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return RowWriter(self.options["path"])


def encode(row: Any, queue_offset: int, place: int) -> bytes:
    """The record of a message, as the store keeps it."""
    body, topic = bytes(row["body"]), row["topic"].encode()
    pairs = {"KEYS": row["keys"], "TAGS": row["tags"], "UNIQ_KEY": uuid.uuid4().hex.upper()}
    properties = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items() if value).encode()
    size = _HEAD.size + len(body) + 1 + len(topic) + 2 + len(properties)
    now = time.time_ns() // 1_000_000
    head = _HEAD.pack(
        size,
        _MAGIC,
        zlib.crc32(body) & 0x7FFFFFFF,
        row["queueId"],
        0,
        queue_offset,
        place,
        0,
        now,
        _HOST,
        now,
        _HOST,
        0,
        0,
        len(body),
    )
    return b"".join((head, body, bytes([len(topic)]), topic, len(properties).to_bytes(2, "big"), properties))
