"""Consume queues, index and checkpoint of a log that was written whole."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.config import StoreConfig
from penstock.spark.jobs.rebuild import rebuild
from penstock.store.opening import open_writable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def complete_store(
    spark: SparkSession, root: str, config: StoreConfig, *, by_tasks: bool, split_bytes: int
) -> None:
    """Give the store at ``root``, which has its log, everything else, and leave it closed.

    ``by_tasks``: queues and index are built by Spark tasks, which know plain queues only. Otherwise the
    store's own dispatcher builds them here.
    """
    if by_tasks:
        rebuild(spark, root, index=config.message_index_enable, split_bytes=split_bytes, config=config)
    # What is there is believed and completed: checkpoint and position, or all of it.
    with _quiet(), open_writable(root, flush="async", config=config, background=False, rebuild=not by_tasks):
        pass


@contextmanager
def _quiet() -> Iterator[None]:
    """Offsets without a message are what compaction is for: the dispatcher need not tell of each."""
    log = logging.getLogger("penstock.store")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
