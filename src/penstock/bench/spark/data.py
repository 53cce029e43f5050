"""The messages that every side reads: a store of them, and the same rows as Parquet.

Message ``i`` goes to topic ``i % 16`` and queue ``i // 16 % 8``; its record has about 200 bytes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import Message, StoreConfig, open_store

TOPICS = 16
QUEUES = 8
SEGMENT = 64 << 20
_BATCH = 512
_SHORTEST, _LENGTHS = 20, 32


@dataclass(frozen=True)
class Dataset:
    """A store directory, the same messages as Parquet (None: they are not wanted), and how many there are."""

    store: Path
    parquet: Path | None
    rows: int


def write_store(folder: Path, count: int, *, segment: int = SEGMENT) -> int:
    """Put ``count`` messages; how many bytes of the log they take."""
    config = StoreConfig(
        mapped_file_size_commit_log=segment, max_hash_slot_num=500_000, max_index_num=2_000_000
    )
    noise = random.Random(4).randbytes(4096)
    distinct = max(1, count // 32)
    store: Any
    with open_store(folder, flush="async", config=config) as store:
        for begin in range(0, count, _BATCH):
            answers = store.put_many(
                [_message(number, noise, distinct) for number in range(begin, min(count, begin + _BATCH))]
            )
            if not answers.ok:
                raise RuntimeError(f"put_many answered {[answer.status for answer in answers]}")
        return int(store.max_physical_offset)


def _message(number: int, noise: bytes, distinct: int) -> Message:
    at = number * 7 % 4000
    body = noise[at : at + _SHORTEST + number % _LENGTHS]
    queue = number // TOPICS % QUEUES
    return Message(f"bench-{number % TOPICS:02d}", body, f"tag{number % 8}", f"k{number % distinct}", queue)
