"""Stores to write to, rows to write, and a process that publishes them and is killed on the way."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from penstock import Message, StoreConfig, open_store
from penstock.spark import rowencoder
from penstock.spark.publishing import Publication, publish
from penstock.spark.rowencoder import RowEncoder, WritePlan
from penstock.spark.staging import StagedRun, StagingArea
from penstock.spark.writeoptions import WriteOptions

ROOT = Path(__file__).parents[3]
CONFIG = StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    max_hash_slot_num=1000,
    max_index_num=4000,
    mapped_file_size_consume_queue=20 * 1000,
)
KILLED = 9


def make_store(path: Path, messages: int = 3) -> Path:
    """A store of small files with a few messages in it."""
    with open_store(path, config=CONFIG) as store:
        for number in range(messages):
            store.put(Message("old", b"old %d" % number))  # type: ignore[union-attr]
    return path


def rows(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.record_batch(
        {
            "topic": [f"t{n % 3}" for n in numbers],
            "body": [b"%06d" % n + b"." * (n % 200) for n in numbers],
            "keys": [f"k{n}" for n in numbers],
        }
    )


def stage(
    path: Path, write: str, *, runs: int = 2, count: int = 400, block: int = 8 << 10
) -> list[StagedRun]:
    """Stage numbered rows as tasks would, in blocks so small that there are several."""
    area, before = StagingArea(path), rowencoder.BLOCK_BYTES
    plan = WritePlan(WriteOptions(str(path)), ("topic", "body", "keys"), CONFIG)
    rowencoder.BLOCK_BYTES = block  # type: ignore[attr-defined]
    try:
        staged = []
        for run in range(runs):
            batches = (rows(first, 50) for first in range(run * count, (run + 1) * count, 50))
            staged.append(RowEncoder(plan, run).stage(batches, area, write, f"{run}-{uuid.uuid4().hex}"))
        return staged
    finally:
        rowencoder.BLOCK_BYTES = before  # type: ignore[attr-defined]


def numbers_in(path: Path) -> Counter[int]:
    """How often each numbered row is in the store, as its queues show it."""
    found: Counter[int] = Counter()
    with open_store(path, read_only=True) as store:
        for topic, queue_id in store.queues():
            if topic.startswith("t"):
                for message in everything(store, topic, queue_id):
                    found[int(bytes(message.body)[:6])] += 1
    return found


def everything(store: Any, topic: str, queue_id: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < store.max_offset(topic, queue_id):
        messages = store.get(topic, queue_id, len(found), 1000).messages
        assert messages, f"{topic}-{queue_id} ends at {len(found)}"
        found += messages
    return found


def publish_killed(path: Path, publication: Publication, step: str, times: int = 1) -> None:
    """Publish in a process of its own that dies at a step, without any chance to tidy."""
    command = [sys.executable, "-m", "spark.write.publishing", str(path), step, str(times)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    done = subprocess.run(
        command,
        input=msgspec.json.encode(publication),
        env=environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == KILLED, done.stderr.decode()


def main() -> None:
    path, wanted, times = sys.argv[1], sys.argv[2], int(sys.argv[3])

    def step(name: str) -> None:
        nonlocal times
        if name == wanted:
            times -= 1
            if times == 0:
                os._exit(KILLED)

    publish(path, msgspec.json.decode(sys.stdin.buffer.read(), type=Publication), step=step)


if __name__ == "__main__":
    main()
