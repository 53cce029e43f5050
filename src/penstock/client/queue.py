"""The name of one queue of a topic, on one broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class MessageQueue(NamedTuple):
    """A queue. Sorts by topic, broker, id, as RocketMQ's clients do: all members of a group must agree."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.queue_id}@{self.broker_name}"

    def as_json(self) -> dict[str, Any]:
        """RocketMQ's object for it."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    @classmethod
    def from_json(cls, found: Mapping[Any, Any]) -> MessageQueue:
        return cls(str(found["topic"]), str(found["brokerName"]), int(found["queueId"]))
