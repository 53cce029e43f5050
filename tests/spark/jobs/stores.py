"""Stores for the jobs: small files, so that a few hundred messages fill several."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock import Message, StoreConfig
from penstock._native.stored import StoredMessage
from penstock.store.directory import StoreDirectory
from penstock.store.opening import open_writable
from penstock.store.scan import LogScanner

SEGMENT = 32 << 10
CONFIG = StoreConfig(
    mapped_file_size_commit_log=SEGMENT,
    mapped_file_size_consume_queue=20 * 100,
    max_hash_slot_num=100,
    max_index_num=300,
    flush_disk_type="async",
)


def written(path: Path, messages: Iterable[Message], **options: Any) -> Path:
    """A closed store that holds the messages."""
    with open_writable(path, config=CONFIG, **options) as store:
        for result in store.put_many(list(messages)):
            assert result.ok, result
    return path


def messages_of(path: Path) -> list[StoredMessage]:
    """Every message, in the order of the log."""
    return list(LogScanner(StoreDirectory(None, str(path))).messages())
