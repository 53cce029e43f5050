"""Consume queues and index of a log that was written whole, by the store's own dispatcher."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.config import StoreConfig
from penstock.store.opening import open_writable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def build_queues(spark: SparkSession, root: str, config: StoreConfig) -> None:
    """Make queues, index and checkpoint of the store at ``root``, which has its log; then close it."""
    with _quiet(), open_writable(root, flush="async", config=config, background=False, rebuild=True):
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
