"""A store that a Spark job compacted, opened by RocketMQ: every message left, by offset and by key."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from interop_support import JavaSide

from penstock import Message, open_store
from penstock.bench.peer import VERSIONS, Version
from penstock.config import StoreConfig
from penstock.store.directory import StoreDirectory
from penstock.store.scan import LogScanner

pytest.importorskip("pyspark")

SMALL: dict[str, Any] = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=400,
)


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two queues with gaps at the head, in the middle and over whole files of units."""
    from pyspark.sql import SparkSession

    from penstock.spark.jobs import compact
    from penstock.spark.session import session

    folder = tmp_path_factory.mktemp("compacted")
    rng = random.Random(5)
    with open_store(folder / "store", flush="async", config=CONFIG) as store:
        keys = ["early" if n < 50 else f"k{rng.randrange(150)}" for n in range(3000)]
        store.put_many([Message("t", b"%d" % n, keys=key, queue_id=n % 2) for n, key in enumerate(keys)])
    running = SparkSession.getActiveSession()
    spark = session("local[2]")
    try:
        compact(spark, folder / "store", folder / "compacted", topics=["t"], split_bytes=100_000)
    finally:
        if running is None:
            spark.stop()
    return folder / "compacted"


@pytest.mark.parametrize("version", VERSIONS)
def test_rocketmq_reads_what_is_left(
    version: Version, java: Callable[[Version], JavaSide], compacted: Path, tmp_path: Path
) -> None:
    ours = {
        (m.queue_id, m.queue_offset): m.physical_offset
        for m in LogScanner(StoreDirectory(None, str(compacted))).messages()
    }
    assert len(ours) < 600

    copy = tmp_path / "copy"
    shutil.copytree(compacted, copy)
    holds = java(version).open(copy, SMALL)["holds"]
    theirs = {(m["queueId"], m["queueOffset"]): m["physicalOffset"] for m in holds["messages"]}
    assert theirs == ours
    ends = {q["queueId"]: q["maxOffset"] for q in holds["queues"] if q["topic"] == "t"}
    assert ends == {0: 1500, 1: 1500}
    found = {place for query in holds["queryMessage"] for place in query["physicalOffsets"]}
    assert found == set(ours.values())
