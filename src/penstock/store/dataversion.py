"""The version that RocketMQ embeds in its config files (store format, section 1.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class DataVersion:
    """State version, counter, time: compared in this order."""

    state_version: int = 0
    counter: int = 0
    timestamp: int = 0

    def next(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """The version after a change."""
        return DataVersion(state_version, self.counter + 1, now_ms)

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> DataVersion:
        """The version of a file; files of RocketMQ 4.x have none and count as the first."""
        value = value or {}
        return cls(
            int(value.get("stateVersion") or 0),
            int(value.get("counter") or 0),
            int(value.get("timestamp") or 0),
        )

    def to_json(self) -> dict[str, int]:
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp}
