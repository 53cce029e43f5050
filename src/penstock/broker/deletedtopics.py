"""Topics that were deleted while the store still has queues of them (``config/deletedTopics.json``, ours).

Their messages stay in the log, and their queues beside it, until the log files expire. A broker makes topics
of the queues it finds; without this list a deleted topic would be back after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.broker.statefile import StateFile


class DeletedTopics:
    """Names of topics that are not to be made again by themselves. Lives on the loop; the file follows."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self.file: StateFile | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def load(self, content: Any) -> None:
        """Take over what the file holds. ValueError when it is no list of names."""
        names = [] if content is None else content.get("topics") if isinstance(content, dict) else None
        if not isinstance(names, list):
            raise ValueError("deletedTopics.json holds no list of topics")
        self._names = {str(name) for name in names}

    def content(self) -> dict[str, Any]:
        """What the file is to hold."""
        return {"topics": sorted(self._names)}

    def add(self, name: str) -> None:
        if name not in self._names:
            self._names.add(name)
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
