"""Where a group's next pop of a queue begins.

The committed offset is what survives a kill, so it may not run ahead of the checkpoints on disk: messages
that are behind it and in no checkpoint would be given to nobody any more. Until a checkpoint is on disk the
group is ahead of its committed offset, in memory only.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

QueueOfGroup = tuple[str, str, int]
"""Topic, group and queue."""


class _Ahead:
    """A group that was given more of a queue than is committed."""

    __slots__ = ("position", "unsaved")

    def __init__(self, position: int) -> None:
        self.position = position
        self.unsaved = 0


class PopPositions:
    """The positions of all groups that pop. Lives on the loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._offsets = broker.consumer_offsets
        self._ahead: dict[QueueOfGroup, _Ahead] = {}
        # Checkpoints that the log has but the disk may not: end in the log, whose, and the offset after them.
        self._unflushed: deque[tuple[int, QueueOfGroup, _Ahead, int]] = deque()
        self._flusher = broker.store.flusher

    def find(self, topic: str, group: str, queue_id: int, *, from_end: bool, keep: bool = True) -> int:
        """Where to read. With ``keep`` a group that is new here is given its first offset for good."""
        broker = self._broker
        key = (topic, group, queue_id)
        if broker.resets and keep and (reset := broker.resets.take(group, topic, queue_id)) is not None:
            self.move(key, reset)
            return reset
        offset = self._offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self._first(topic, queue_id, from_end)
            if keep:
                self._offsets.commit(group, topic, queue_id, offset)
        ahead = self._ahead.get(key)
        return offset if ahead is None or ahead.position < offset else ahead.position

    def _first(self, topic: str, queue_id: int, from_end: bool) -> int:
        store = self._broker.store
        low = store.min_offset(topic, queue_id)
        if not from_end:
            return max(low, 0)
        # A group that starts at the end of a young queue starts at its beginning all the same.
        if low <= 0 and store.is_in_memory(topic, queue_id, 0):
            return 0
        return max(store.max_offset(topic, queue_id) - 1, 0)

    def move(self, key: QueueOfGroup, offset: int) -> None:
        """Begin there from now on, whatever was before."""
        topic, group, queue_id = key
        self._ahead.pop(key, None)
        self._offsets.commit(group, topic, queue_id, offset)

    def skip(self, key: QueueOfGroup, offset: int) -> None:
        """What is before ``offset`` is not for this group, or gone."""
        ahead = self._ahead.get(key)
        if ahead is None:
            self.move(key, offset)
        else:
            ahead.position = max(ahead.position, offset)

    def take(self, key: QueueOfGroup, offset: int, end_offset: int) -> None:
        """The group was given what is before ``offset``; the checkpoint ends at ``end_offset`` of the log."""
        ahead = self._ahead.get(key)
        if ahead is None:
            ahead = self._ahead[key] = _Ahead(offset)
        ahead.position = offset
        ahead.unsaved += 1
        self._unflushed.append((end_offset, key, ahead, offset))

    def commit_flushed(self) -> None:
        """Commit what stands behind checkpoints that are on disk now."""
        waiting = self._unflushed
        if not waiting:
            return
        where = self._flusher.flushed_where
        while waiting and waiting[0][0] <= where:
            _, key, ahead, offset = waiting.popleft()
            ahead.unsaved -= 1
            if self._ahead.get(key) is not ahead:
                continue  # it was moved meanwhile
            if ahead.unsaved == 0:
                offset = ahead.position
                del self._ahead[key]
            topic, group, queue_id = key
            self._offsets.commit(group, topic, queue_id, offset)

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """A topic or a group is gone."""
        for key in [key for key in self._ahead if key[0] == topic or key[1] == group]:
            del self._ahead[key]
