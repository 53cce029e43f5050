"""Pops in order: which messages of a queue a group holds, and until when (``config/consumerOrderInfo.json``).

While one of them is neither acked nor due again, nobody of the group gets more of that queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.broker.popheader import topic_kind
from penstock.broker.statefile import StateFile
from penstock.clock import Clock

MAX_ACKED = 64
NO_SUCH_MESSAGE, OF_ANOTHER_POP = -1, -2
FORGET_MS = 24 * 3600 * 1000


class Held(msgspec.Struct, rename={"attempt_id": "a", "pop_time": "popTime"}, omit_defaults=True):
    """What one pop holds of a queue. The short names are RocketMQ's file's."""

    pop_time: int = 0
    i: int = 0
    """Invisible time in ms."""
    o: list[int] = msgspec.field(default_factory=list)
    """The first queue offset, then each other one's distance from it."""
    ot: dict[int, int] = msgspec.field(default_factory=dict)
    """By queue offset: when it is due again, where that was changed."""
    oc: dict[int, int] = msgspec.field(default_factory=dict)
    """By queue offset: how often it was given out before."""
    l: int = 0  # noqa: E741
    """When it was last popped."""
    cm: int = 0
    """Which are acked: a bit each."""
    attempt_id: str | None = None

    def offset(self, index: int) -> int:
        return self.o[0] if index == 0 else self.o[0] + self.o[index]

    def offsets(self) -> list[int]:
        return [self.offset(index) for index in range(len(self.o))]

    def free_at(self) -> int:
        """When everything that is not acked is due again; 0 when all is acked."""
        waits = [
            self.ot.get(offset, self.pop_time + self.i)
            for index, offset in enumerate(self.offsets())
            if not self.cm >> index & 1
        ]
        return max(waits, default=0)

    def next_offset(self) -> int:
        """The first one that is not acked, or the one after the last."""
        for index in range(len(self.o)):
            if not self.cm >> index & 1:
                return self.offset(index)
        return self.offset(len(self.o) - 1) + 1


class PopOrder:
    """What groups hold in order. Lives on the loop; the file follows now and then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._table: dict[tuple[str, str], dict[int, Held]] = {}
        self.file: StateFile | None = None
        self._dirty = False

    def __len__(self) -> int:
        return sum(len(queues) for queues in self._table.values())

    def load(self, content: Any) -> None:
        """Take over what the file holds. ValueError when it is no such table."""
        if content is None:
            return
        table = content.get("table") if isinstance(content, dict) else None
        if not isinstance(table, dict):
            raise ValueError("consumerOrderInfo.json holds no table")
        for key, queues in table.items():
            topic, mark, group = str(key).partition("@")
            if not mark or not isinstance(queues, dict):
                raise ValueError(f"{key!r} is no topic and group")
            try:
                read = {int(queue): _held(found) for queue, found in queues.items()}
            except (msgspec.ValidationError, TypeError) as error:
                raise ValueError(f"{key}: {error}") from None
            self._table[topic, group] = {queue: held for queue, held in read.items() if held.o}

    def content(self) -> dict[str, Any]:
        """What the file is to hold: nothing of queues that nobody popped for a day."""
        old = self._clock.now_ms() - FORGET_MS
        for key, queues in list(self._table.items()):
            for queue_id in [queue for queue, held in queues.items() if held.l < old]:
                del queues[queue_id]
            if not queues:
                del self._table[key]
        return {
            "orderInfoCount": len(self),
            "orderedConsumptionLevel": "QUEUE",
            "table": {
                f"{topic}@{group}": {queue: msgspec.to_builtins(held) for queue, held in queues.items()}
                for (topic, group), queues in self._table.items()
            },
        }

    def save(self) -> None:
        """Have changes written, if there are any: as seldom as offsets are."""
        if self._dirty and self.file is not None:
            self._dirty = False
            self.file.changed()

    def is_blocked(self, topic: str, group: str, queue_id: int, attempt_id: str | None) -> bool:
        """Whether somebody holds messages of the queue. The attempt that holds them may have them again."""
        held = self._find(topic, group, queue_id)
        if held is None or (attempt_id is not None and attempt_id == held.attempt_id):
            return False
        return self._clock.now_ms() < held.free_at()

    def take(
        self,
        topic: str,
        group: str,
        queue_id: int,
        pop_time: int,
        invisible_ms: int,
        offsets: Sequence[int],
        attempt_id: str | None,
    ) -> list[str]:
        """A pop holds these now; how often each was given out before, as the answer says it."""
        first = offsets[0]
        held = Held(
            pop_time,
            invisible_ms,
            [first, *(offset - first for offset in offsets[1:])],
            l=self._clock.now_ms(),
            attempt_id=attempt_id,
        )
        queues = self._table.setdefault((topic, group), {})
        before = queues.get(queue_id)
        if before is not None:
            if attempt_id is not None and attempt_id == before.attempt_id:
                held.oc = before.oc
            else:
                known = set(before.offsets())
                held.oc = {offset: before.oc.get(offset, 0) + 1 for offset in offsets if offset in known}
        queues[queue_id] = held
        self._dirty = True
        kind = topic_kind(topic)
        counts = [f"{kind} qo{queue_id}%{offset} {count}" for offset, count in held.oc.items()]
        least = min(held.oc.values(), default=0) if len(held.oc) == len(offsets) else 0
        return [*counts, f"{kind} {queue_id} {least}"]

    def ack(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int) -> int:
        """A message is done with: the offset to commit, or a negative number that says why not."""
        held = self._find(topic, group, queue_id)
        if held is None:
            return offset + 1
        if pop_time != held.pop_time:
            return OF_ANOTHER_POP
        try:
            index = held.offsets().index(offset)
        except ValueError:
            return NO_SUCH_MESSAGE
        held.cm |= 1 << index
        self._dirty = True
        return held.next_offset()

    def postpone(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, due_ms: int
    ) -> None:
        """One message is due again at another time; nothing of another pop is."""
        held = self._find(topic, group, queue_id)
        if held is not None and held.pop_time == pop_time and offset in held.offsets():
            held.ot[offset] = due_ms
            self._dirty = True

    def release(self, topic: str, group: str, queue_id: int) -> None:
        """The group was moved: what it held is nobody's any more."""
        if self._table.get((topic, group), {}).pop(queue_id, None) is not None:
            self._dirty = True

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """A topic or a group is gone."""
        for key in [key for key in self._table if key[0] == topic or key[1] == group]:
            del self._table[key]
            self._dirty = True

    def _find(self, topic: str, group: str, queue_id: int) -> Held | None:
        return self._table.get((topic, group), {}).get(queue_id)


def _held(found: Any) -> Held:
    held = msgspec.convert(found, Held, strict=False)
    if len(held.o) > MAX_ACKED:
        raise ValueError("a pop holds too many messages")
    return held
