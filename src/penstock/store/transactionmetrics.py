"""The file ``config/transactionMetrics``: how many transactions of each topic are open (format, 1.3)."""

from __future__ import annotations

from penstock.clock import Clock
from penstock.store.jsonfile import FileAccess
from penstock.store.topiccounts import TopicCounts


class TransactionMetrics(TopicCounts):
    """Half messages without a verdict, by real topic. What a crash cut off is missing."""

    def __init__(self, storage: FileAccess, path: str, clock: Clock) -> None:
        super().__init__(storage, path, clock, "transactionCount")
