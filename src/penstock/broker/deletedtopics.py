"""Topics that were deleted while the store still has queues of them (``config/deletedTopics.json``, ours).

Their messages stay in the log, and their queues beside it, until the log files expire. A broker makes topics
of the queues it finds; without this list a deleted topic would be back after a restart. Made again it goes
on behind its old messages, which nobody sees any more: ``begins`` says where its queues begin since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.broker.statefile import StateFile
from penstock.store.messagestore import MessageStore


class DeletedTopics:
    """Names of topics that are not to be made again by themselves. Lives on the loop; the file follows."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._begins: dict[str, dict[int, int]] = {}
        self.file: StateFile | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def load(self, content: Any) -> None:
        """Take over what the file holds. ValueError when it is no list of names."""
        given = {"topics": []} if content is None else content if isinstance(content, dict) else {}
        names, begins = given.get("topics"), given.get("begins") or {}
        if not isinstance(names, list):
            raise ValueError("deletedTopics.json holds no list of topics")
        if not isinstance(begins, dict) or not all(isinstance(queues, dict) for queues in begins.values()):
            raise ValueError("deletedTopics.json holds no table of queues")
        self._names = {str(name) for name in names}
        self._begins = {
            str(topic): {int(queue_id): int(offset) for queue_id, offset in queues.items()}
            for topic, queues in begins.items()
        }

    def content(self) -> dict[str, Any]:
        """What the file is to hold."""
        begins = {
            topic: {str(queue_id): offset for queue_id, offset in sorted(queues.items())}
            for topic, queues in sorted(self._begins.items())
        }
        return {"topics": sorted(self._names), "begins": begins}

    def begins(self, topic: str) -> dict[int, int]:
        """Queue offsets at which a topic begins since it was deleted; of queues that had messages then."""
        return dict(self._begins.get(topic, {}))

    def settle(self, store: MessageStore) -> None:
        """Hide what was deleted in an earlier run, and forget what has expired meanwhile.

        A log that lost its end ends before what was noted: new messages come there, and are to be seen.
        """
        before = self._begins
        self._begins = {}
        for topic, queues in before.items():
            for queue_id, offset in queues.items():
                begin = min(offset, store.next_offset(topic, queue_id))
                if begin > store.min_offset(topic, queue_id):
                    self._begins.setdefault(topic, {})[queue_id] = begin
                    store.hide_before(topic, queue_id, begin)
        if self._begins != before:
            self._changed()

    def add(self, name: str, begins: Mapping[int, int]) -> None:
        """The topic was deleted; its queues, if it comes back, begin at these offsets."""
        self._names.add(name)
        self._begins[name] = dict(begins)
        self._changed()

    def discard(self, name: str) -> None:
        """The topic was created again."""
        if name in self._names:
            self._names.remove(name)
            self._changed()

    def others(self, queues: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
        """Queues of topics that were not deleted."""
        return (queue for queue in queues if queue[0] not in self._names)

    def _changed(self) -> None:
        if self.file is not None:
            self.file.changed()
