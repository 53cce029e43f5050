"""``config/topics.json``: what the store has to know of topics. Everything else in the file is kept as it
is.
"""

from __future__ import annotations

from typing import Any

from penstock.clock import Clock
from penstock.store.jsonfile import FileAccess, JsonFile


class TopicTable:
    """The topic configuration as RocketMQ writes it."""

    def __init__(self, storage: FileAccess, path: str, clock: Clock) -> None:
        self._file = JsonFile(storage, path)
        self._clock = clock
        self._content: dict[str, Any] = {}

    def load(self) -> None:
        content = self._file.load()
        self._content = content if isinstance(content, dict) else {}

    @property
    def _table(self) -> dict[str, Any]:
        table = self._content.get("topicConfigTable")
        return table if isinstance(table, dict) else {}

    def with_attribute(self, name: str, value: str) -> set[str]:
        """Topics whose attribute has this value."""
        found = set()
        for topic, settings in self._table.items():
            attributes = settings.get("attributes") if isinstance(settings, dict) else None
            if isinstance(attributes, dict) and attributes.get(name) == value:
                found.add(topic)
        return found

    def set_attribute(self, topic: str, name: str, value: str) -> None:
        """Change one topic and write the file; a topic that is not in it gets RocketMQ's defaults."""
        table = dict(self._table)
        settings = dict(
            table.get(topic)
            or {
                "attributes": {},
                "order": False,
                "perm": 6,
                "readQueueNums": 8,
                "topicFilterType": "SINGLE_TAG",
                "topicName": topic,
                "topicSysFlag": 0,
                "writeQueueNums": 8,
            }
        )
        settings["attributes"] = {**(settings.get("attributes") or {}), name: value}
        table[topic] = settings
        version = dict(self._content.get("dataVersion") or {"counter": 0, "stateVersion": 0, "timestamp": 0})
        version["counter"] = int(version.get("counter", 0)) + 1
        version["timestamp"] = self._clock.now_ms()
        self._content = {**self._content, "dataVersion": version, "topicConfigTable": table}
        self._file.save(self._content)
