"""How many messages groups were given and have not acked: for those who watch the broker."""

from __future__ import annotations

QueueOfGroup = tuple[str, str, int]


class PopInFlight:
    """Counts by topic, group and queue since the start; what was popped before that is not known."""

    def __init__(self, started_ms: int) -> None:
        self._started = started_ms
        self._counts: dict[QueueOfGroup, int] = {}

    def add(self, topic: str, group: str, queue_id: int, count: int) -> None:
        """So many were given out."""
        key = (topic, group, queue_id)
        self._counts[key] = self._counts.get(key, 0) + count

    def done(self, topic: str, group: str, queue_id: int, pop_time: int, count: int) -> None:
        """So many of one pop were acked, or went back."""
        key = (topic, group, queue_id)
        left = self._counts.get(key, 0) - count
        if pop_time < self._started:
            return
        if left > 0:
            self._counts[key] = left
        else:
            self._counts.pop(key, None)

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Nothing of this queue is with anybody."""
        self._counts.pop((topic, group, queue_id), None)

    def of_groups(self) -> dict[tuple[str, str], int]:
        """By topic and group."""
        found: dict[tuple[str, str], int] = {}
        for (topic, group, _), count in self._counts.items():
            found[topic, group] = found.get((topic, group), 0) + count
        return found

    def of_queue(self, topic: str, group: str, queue_id: int) -> int:
        return self._counts.get((topic, group, queue_id), 0)

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """A topic or a group is gone."""
        for key in [key for key in self._counts if key[0] == topic or key[1] == group]:
            del self._counts[key]
