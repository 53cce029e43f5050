"""The file ``config/timermetrics``: how many messages of each topic wait in the wheel (store format, 1.3)."""

from __future__ import annotations

import logging
from typing import Any

from penstock.clock import Clock
from penstock.errors import CorruptFile
from penstock.store.dataversion import DataVersion
from penstock.store.jsonfile import FileAccess, JsonFile

_log = logging.getLogger(__name__)


class TimerMetrics:
    """Counts by real topic. For people: nothing in the timer depends on them."""

    def __init__(self, storage: FileAccess, path: str, clock: Clock) -> None:
        self._file = JsonFile(storage, path, decode=_decode, pretty=False, ascii_only=True)
        self._clock = clock
        self._counts: dict[str, tuple[int, int]] = {}
        self._version = DataVersion()
        self._changed = False

    @property
    def counts(self) -> dict[str, int]:
        return {topic: count for topic, (count, _) in self._counts.items()}

    def load(self) -> None:
        """Take over the counts of an earlier run. Counts nobody can read start anew."""
        try:
            loaded = self._file.load()
        except CorruptFile as fault:
            _log.warning("counting timer messages from zero: %s", fault)
            loaded = None
        self._counts, self._version = loaded or ({}, DataVersion())

    def add(self, topic: str, count: int) -> None:
        """So many more (or fewer) messages of a topic wait."""
        now = self._clock.now_ms()
        self._counts[topic] = (self._counts.get(topic, (0, 0))[0] + count, now)
        self._version = self._version.next(now)
        self._changed = True

    def persist(self) -> None:
        """Write the counts, if any changed since the last time."""
        if not self._changed:
            return
        counts = {topic: {"count": count, "timeStamp": at} for topic, (count, at) in self._counts.items()}
        self._file.save({"dataVersion": self._version.to_json(), "timingCount": counts})
        self._changed = False


def _decode(content: Any) -> tuple[dict[str, tuple[int, int]], DataVersion]:
    if not isinstance(content, dict) or not isinstance(content.get("timingCount") or {}, dict):
        raise ValueError("no object with a timingCount")
    counts: dict[str, tuple[int, int]] = {}
    for topic, metric in (content.get("timingCount") or {}).items():
        if not isinstance(metric, dict):
            raise ValueError(f"the count of {topic} is no object")
        counts[str(topic)] = (int(metric.get("count") or 0), int(metric.get("timeStamp") or 0))
    return counts, DataVersion.from_json(content.get("dataVersion"))
