"""Stores to read, small and with something of everything."""

from __future__ import annotations

from pathlib import Path

from penstock import Message, open_store
from penstock.clock import ManualClock
from penstock.config import StoreConfig

START = 1_700_000_000_000
STEP = 1000
TOPICS = ("orders", "payments", "audit")
CONFIG = StoreConfig().replace(
    mapped_file_size_commit_log=1 << 16,
    mapped_file_size_consume_queue=20 * 64,
    max_hash_slot_num=64,
    max_index_num=400,
)


def message(number: int) -> Message:
    """Three topics in turn, two queues each, some tags, two keys, both kinds of hosts."""
    return Message(
        TOPICS[number % 3],
        b"body %d " % number * (1 + number % 7),
        tags=("red", "green", None)[number // 3 % 3],
        keys=f"k{number} ten{number % 10}",
        queue_id=number // 3 % 2,
        properties={"number": str(number)},
        born_host="[2001:db8::1]:5" if number % 5 == 0 else "10.0.0.1:5",
    )


def fill(path: Path, count: int = 600, first: int = 0) -> Path:
    """Put messages that are stored a second apart."""
    clock = ManualClock(START + first * STEP)
    with open_store(path, flush="async", config=CONFIG, clock=clock) as store:
        for number in range(first, first + count):
            store.put(message(number))
            clock.advance(STEP)
        store.flush()
    return path
