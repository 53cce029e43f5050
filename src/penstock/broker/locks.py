"""Which consumer owns a queue for orderly consumption (protocol 7.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

QueueName = tuple[str, str, int]
"""Topic, broker, queue id."""


class QueueLocks:
    """Locks of queues by group. One that is not renewed in time is free again.

    Nothing checks that topic, queue or group exist, and a lost connection releases nothing: the client may
    be back before its lock expires.
    """

    def __init__(self, live_seconds: float, now: Callable[[], float]) -> None:
        """``now`` is a clock that never goes back."""
        self._live = live_seconds
        self._now = now
        self._groups: dict[str, dict[QueueName, tuple[str, float]]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[QueueName]) -> list[QueueName]:
        """Take or renew locks; those of ``queues`` that the client owns now."""
        table = self._groups.setdefault(group, {})
        now = self._now()
        owned: list[QueueName] = []
        for queue in queues:
            entry = table.get(queue)
            if entry is None or entry[0] == client_id or now - entry[1] > self._live:
                table[queue] = (client_id, now)
                owned.append(queue)
        if not table:
            del self._groups[group]
        return owned

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueName]) -> None:
        """Give locks back; those of others stay."""
        table = self._groups.get(group)
        if table is None:
            return
        for queue in queues:
            entry = table.get(queue)
            if entry is not None and entry[0] == client_id:
                del table[queue]
        if not table:
            del self._groups[group]

    def is_held(self, group: str) -> bool:
        """Whether anybody of the group holds a lock: then it consumes in order."""
        table = self._groups.get(group)
        if not table:
            return False
        now = self._now()
        return any(now - renewed <= self._live for _, renewed in table.values())

    def sweep(self) -> None:
        """Forget what has expired."""
        now = self._now()
        for group, table in list(self._groups.items()):
            for queue, (_, renewed) in list(table.items()):
                if now - renewed > self._live:
                    del table[queue]
            if not table:
                del self._groups[group]

    def owners(self, group: str) -> dict[QueueName, str]:
        """Who owns what in a group now."""
        now = self._now()
        table = self._groups.get(group, {})
        return {queue: owner for queue, (owner, renewed) in table.items() if now - renewed <= self._live}
