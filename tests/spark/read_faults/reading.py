"""Stores to be hurt, and reading them as tasks do: every split by itself, sent through a pickle."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from penstock import Message, StoreConfig, open_store
from penstock.format.record import decode_record
from penstock.format.walk import walk
from penstock.spark.batches import record_batches
from penstock.spark.options import ReadOptions
from penstock.spark.planning import plan_places

SEGMENT = 256 << 10
COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset", "body", "size")


class Row(NamedTuple):
    """What the tests compare of a message."""

    topic: str
    queue: int
    offset: int
    place: int
    body: bytes


class BadRow(NamedTuple):
    """A quarantined stretch of the log."""

    place: int
    body: bytes
    reason: str


def config(**options: Any) -> StoreConfig:
    return StoreConfig(
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=20 * 1000,
        max_hash_slot_num=500,
        max_index_num=20_000,
        **options,
    )


def message(number: int, topics: int = 3, queues: int = 2) -> Message:
    body = b"%06d " % number + b"m" * (200 + number % 100)
    return Message(f"T{number % topics}", body, keys=f"k{number}", queue_id=number // topics % queues)


def write_store(path: Path, messages: Iterable[Message]) -> Path:
    """A closed store with small segments."""
    with open_store(path, flush="async", config=config()) as store:
        for each in messages:
            assert store.put(each).ok
    return path


def stored(path: Path) -> list[Row]:
    """Every message, by the readable decoder of the format: the reader under test has no part in it."""
    rows = []
    for file in segments(path):
        data = file.read_bytes()
        for record in walk(data, 0, len(data), int(file.name)).records:
            rows.append(
                Row(
                    record.topic,
                    record.queue_id,
                    record.queue_offset,
                    record.physical_offset,
                    bytes(record.body),
                )
            )
    return sorted(rows)


def segments(path: Path) -> list[Path]:
    return sorted((path / "commitlog").iterdir())


def file_of(path: Path, place: int) -> tuple[Path, int]:
    """The segment that holds a physical offset, and the position in it."""
    begin = place - place % SEGMENT
    return path / "commitlog" / f"{begin:020d}", place - begin


def size_at(path: Path, place: int) -> int:
    """Length of the record at a physical offset."""
    file, position = file_of(path, place)
    return decode_record(file.read_bytes(), position).total_size


def read(path: Path | str, **options: Any) -> list[Row]:
    """All messages that a read with these options gives, sorted."""
    return read_all(path, **options)[0]


def read_all(path: Path | str, **options: Any) -> tuple[list[Row], list[BadRow]]:
    """Messages, and with ``badRecords=quarantine`` the bad stretches too."""
    parsed = ReadOptions.parse({"path": str(path), **options})
    columns = [*COLUMNS, *(["badRecord"] if parsed.quarantine else [])]
    rows, bad = [], []
    for planned in plan_places(parsed):
        split = pickle.loads(pickle.dumps(planned))
        for batch in record_batches(split, columns, parsed):
            for row in batch.to_pylist():
                if row.get("badRecord") is not None:
                    assert len(row["body"]) in (row["size"], 0)  # 0: the bytes are missing
                    bad.append(BadRow(row["physicalOffset"], row["body"], row["badRecord"]))
                    continue
                made = Row(
                    row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"], row["body"]
                )
                rows.append(made)
    return sorted(rows), sorted(bad)
