"""Offsets that an administrator set and that the consumer has not taken up yet (protocol 3.7)."""

from __future__ import annotations


class PendingResets:
    """One-shot offsets by group, topic and queue.

    While one is pending the group's own commits for that queue are ignored; the next pull of the queue is
    answered with it and takes it away.
    """

    def __init__(self) -> None:
        self._table: dict[tuple[str, str, int], int] = {}

    def __bool__(self) -> bool:
        return bool(self._table)

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self._table[group, topic, queue_id] = offset

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that is pending, or None."""
        return self._table.get((group, topic, queue_id))

    def take(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that is pending, which is not any more; or None."""
        return self._table.pop((group, topic, queue_id), None)

    def forget(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Drop what belongs to a group or a topic that is gone."""
        for key in [key for key in self._table if key[0] == group or key[1] == topic]:
            del self._table[key]
