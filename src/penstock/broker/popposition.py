"""Where a group's next pop of a queue begins.

The committed offset is what survives a kill, so it may not run ahead of the checkpoints on disk: messages
that are behind it and in no checkpoint would be given to nobody any more. Until a checkpoint is on disk the
group is ahead of its committed offset, in memory only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from penstock.broker.popcheckpoint import (
    CHECKPOINT_TAG,
    REVIVE_QUEUES,
    CheckPoint,
    ReviveLog,
    decode_checkpoint,
)
from penstock.message.topic import TIMER_TOPIC

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

QueueOfGroup = tuple[str, str, int]
"""Topic, group and queue."""
MAX_LOOK = 100_000
MARGIN_MS = 10_000
"""Saving offsets may take so long."""


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

    def recover(self, log: ReviveLog) -> int:
        """Go on behind what an earlier run gave out before it was killed; how many groups that moved.

        Offsets are saved every few seconds only, checkpoints with every pop: the youngest ones say what was
        given out since. Only one that begins where a group stands, or before, moves it: a group that an
        administrator moved elsewhere stays there.
        """
        moved: set[QueueOfGroup] = set()
        for point in sorted(self._young_checkpoints(log), key=lambda each: each.so):
            topic, group = point.t or "", point.c or ""
            if not point.makes_sense or "@" in topic:
                continue
            stands = self._offsets.query(group, topic, point.q)
            end = point.offset(point.n - 1) + 1 if point.n > 0 and len(point.d or ()) == point.n else -1
            if (stands < 0 or point.so <= stands < end) and 0 < end <= self._broker.store.max_offset(
                topic, point.q
            ):
                self._offsets.commit(group, topic, point.q, end)
                moved.add((topic, group, point.q))
        return len(moved)

    def _young_checkpoints(self, log: ReviveLog) -> Iterator[CheckPoint]:
        """Checkpoints that are younger than the saved offsets may be, the youngest of a queue first."""
        store = self._broker.store
        interval = store.config.flush_consumer_offset_interval_ms
        places = [(TIMER_TOPIC, 0), *((log.topic, number) for number in range(REVIVE_QUEUES))]
        for topic, queue_id in places:
            newest: int | None = None
            end = store.max_offset(topic, queue_id)
            for offset in range(end - 1, max(store.min_offset(topic, queue_id), end - MAX_LOOK) - 1, -1):
                result = store.get(topic, queue_id, offset, 1)
                if not len(result):
                    break
                record = result[0]
                newest = record.store_timestamp if newest is None else newest
                if record.store_timestamp < newest - 2 * interval - MARGIN_MS:
                    break
                if record.tags != CHECKPOINT_TAG or not (
                    topic == log.topic or log.topic in record.properties.values()
                ):
                    continue
                try:
                    yield decode_checkpoint(record.body)
                except msgspec.MsgspecError:
                    continue

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """A topic or a group is gone."""
        for key in [key for key in self._ahead if key[0] == topic or key[1] == group]:
            del self._ahead[key]
