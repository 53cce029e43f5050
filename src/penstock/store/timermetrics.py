"""The file ``config/timermetrics``: how many messages of each topic wait in the wheel (store format, 1.3)."""

from __future__ import annotations

from penstock.clock import Clock
from penstock.store.jsonfile import FileAccess
from penstock.store.topiccounts import TopicCounts


class TimerMetrics(TopicCounts):
    """Messages in the wheel, by real topic."""

    def __init__(self, storage: FileAccess, path: str, clock: Clock) -> None:
        super().__init__(storage, path, clock, "timingCount")
