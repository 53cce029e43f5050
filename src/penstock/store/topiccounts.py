"""Counts by topic in a small file under ``config/``: how many messages wait for something (format, 1.3)."""

from __future__ import annotations

import logging
import threading
from typing import Any

from penstock.clock import Clock
from penstock.errors import CorruptFile
from penstock.store.dataversion import DataVersion
from penstock.store.jsonfile import FileAccess, JsonFile

_log = logging.getLogger(__name__)


class TopicCounts:
    """Counts by real topic, for people: nothing depends on them. Any thread may add."""

    def __init__(self, storage: FileAccess, path: str, clock: Clock, member: str) -> None:
        """``member`` is the name that the table has in the file."""
        self._file = JsonFile(storage, path, decode=self._decode, pretty=False, ascii_only=True)
        self._clock = clock
        self._member = member
        self._guard = threading.Lock()
        self._counts: dict[str, tuple[int, int]] = {}
        self._version = DataVersion()
        self._changed = False

    @property
    def counts(self) -> dict[str, int]:
        with self._guard:
            return {topic: count for topic, (count, _) in self._counts.items()}

    def load(self) -> None:
        """Take over the counts of an earlier run. Counts nobody can read start anew."""
        try:
            loaded = self._file.load()
        except CorruptFile as fault:
            _log.warning("counting from zero: %s", fault)
            loaded = None
        self._counts, self._version = loaded or ({}, DataVersion())

    def add(self, topic: str, count: int) -> None:
        """So many more (or fewer) messages of a topic wait."""
        now = self._clock.now_ms()
        with self._guard:
            self._counts[topic] = (self._counts.get(topic, (0, 0))[0] + count, now)
            self._version = self._version.next(now)
            self._changed = True

    def content(self) -> dict[str, Any]:
        """What the file is to hold."""
        with self._guard:
            return self._content()

    def _content(self) -> dict[str, Any]:
        counts = {topic: {"count": count, "timeStamp": at} for topic, (count, at) in self._counts.items()}
        return {"dataVersion": self._version.to_json(), self._member: counts}

    def persist(self) -> None:
        """Write the counts, if any changed since the last time. One caller at a time."""
        with self._guard:
            if not self._changed:
                return
            content = self._content()
            self._changed = False
        try:
            self._file.save(content)
        except BaseException:
            self._changed = True
            raise

    def _decode(self, content: Any) -> tuple[dict[str, tuple[int, int]], DataVersion]:
        if not isinstance(content, dict) or not isinstance(content.get(self._member) or {}, dict):
            raise ValueError(f"no object with a {self._member}")
        counts: dict[str, tuple[int, int]] = {}
        for topic, metric in (content.get(self._member) or {}).items():
            if not isinstance(metric, dict):
                raise ValueError(f"the count of {topic} is no object")
            counts[str(topic)] = (int(metric.get("count") or 0), int(metric.get("timeStamp") or 0))
        return counts, DataVersion.from_json(content.get("dataVersion"))
