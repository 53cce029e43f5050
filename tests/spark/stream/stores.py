"""Small stores to stream from, and what retention does to them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock import Message, StoreConfig
from penstock.store.messagestore import MessageStore
from penstock.store.opening import open_writable

SEGMENT = 16 << 10
CONFIG = StoreConfig(
    mapped_file_size_commit_log=SEGMENT,
    mapped_file_size_consume_queue=20 * 100,
    max_hash_slot_num=64,
    max_index_num=256,
    flush_disk_type="async",
)


def opened(path: Path, *, config: StoreConfig = CONFIG, **options: Any) -> MessageStore:
    """A store with small files, for writing; reading behind it is up to the caller."""
    return open_writable(path, config=config, **options)


def put(
    store: MessageStore, numbers: Iterable[int], *, topic: str = "t", queues: int = 2, size: int = 40
) -> None:
    """Messages whose body begins with their number, spread over the queues; visible on return."""
    for number in numbers:
        body = str(number).encode().ljust(size, b".")
        result = store.put(Message(topic, body, queue_id=number % queues))
        assert result.ok, result
    store.flush()
    store.dispatch()


def fill(path: Path, numbers: Iterable[int], **options: Any) -> None:
    """As ``put``, into a store that is closed again."""
    with opened(path) as store:
        put(store, numbers, **options)


def drop_segments(path: Path, count: int) -> int:
    """Remove the oldest files of the log, as retention does; where the log begins then."""
    files = sorted((path / "commitlog").iterdir())
    assert len(files) > count, "the test's store is too small"
    for file in files[:count]:
        file.unlink()
    return int(files[count].name)
