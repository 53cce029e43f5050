"""``config/consumerOffset.json``: how far each group has read each queue (format section 1.3).

A store with light queues (``enable_lmq``) has ``config/lmqConsumerOffset.json`` instead, as RocketMQ does:
the same table, and beside it one offset for each group of a light queue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from penstock.clock import Clock, SystemClock
from penstock.message.topic import LMQ_PREFIX
from penstock.store.dataversion import DataVersion
from penstock.store.jsonfile import FileAccess, JsonFile

FILE, LIGHT_FILE = "consumerOffset.json", "lmqConsumerOffset.json"
SEPARATOR = "@"
VERSION_STEP = 500
"""The version's counter advances once in so many commits, as RocketMQ's does."""

_INT64 = range(-(2**63), 2**63)
_INT32 = range(2**31)


@dataclass(frozen=True, slots=True)
class Clamped:
    """An offset that pointed outside its queue and was moved."""

    group: str
    topic: str
    queue_id: int
    before: int
    after: int


def clamp_offset(offset: int, low: int, high: int) -> int:
    """The nearest offset that the queue ``[low, high]`` knows. ``high`` is the end: the next to come."""
    return max(low, min(offset, high))


class ConsumerOffsets:
    """Offsets by topic, group and queue: the next one to read. Every method may be called from any thread.

    Only ``load`` and ``persist`` touch the file; a commit is durable after the next ``persist``.
    """

    def __init__(
        self,
        storage: FileAccess,
        path: str,
        *,
        clock: Clock | None = None,
        light: bool = False,
        instead: str | None = None,
    ) -> None:
        """``path`` is the file's; nothing is read before ``load``.

        ``light``: groups of light queues have a table of their own in it. ``instead`` is the file that is
        read while there is none at ``path``.
        """
        self._clock = clock or SystemClock()
        self._file = JsonFile(storage, path, decode=_decode)
        self._instead = None if instead is None else JsonFile(storage, instead, decode=_decode)
        self._light = light
        self._lock = threading.Lock()
        self._persist_lock = threading.Lock()
        # Keyed as in the file: keys that another version wrote and we can't split survive a rewrite.
        self._table: dict[str, dict[int, int]] = {}
        self._version = DataVersion()
        self._commits = 0
        self._changes = 0
        self._persisted_changes = 0

    @property
    def version(self) -> DataVersion:
        return self._version

    @property
    def fault(self) -> Exception | None:
        """Why the backup had to serve at the last load, or None."""
        return self._file.fault

    def load(self) -> None:
        """Take over what the file says. Raises CorruptFile when neither it nor its backup can be read."""
        loaded = self._file.load()
        borrowed = loaded is None and self._instead is not None
        if borrowed and self._instead is not None:
            loaded = self._instead.load()
        with self._lock:
            self._table, self._version = loaded if loaded is not None else ({}, DataVersion())
            # A backup that served is worth writing as the file, and so is what another file said.
            due = self._file.fault is not None or (borrowed and loaded is not None)
            self._changes = self._persisted_changes + due

    def persist(self) -> bool:
        """Write the offsets, if any changed since the last time; whether it wrote."""
        with self._persist_lock:
            with self._lock:
                changes = self._changes
                if changes == self._persisted_changes:
                    return False
                content = self._content()
            self._file.save(content)
            self._persisted_changes = changes
            return True

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The group will next read ``offset``. Going back is allowed: that is how a group is reset."""
        if queue_id not in _INT32 or offset not in _INT64 or offset < 0:
            raise ValueError(f"no place in a queue: queue {queue_id}, offset {offset}")
        key = _key(topic, group)
        with self._lock:
            queues = self._table.setdefault(key, {})
            if queues.get(queue_id) != offset:
                queues[queue_id] = offset
                self._changes += 1
            self._commits += 1
            if self._commits % VERSION_STEP == 0:
                self._version = self._version.next(self._clock.now_ms())
                self._changes += 1

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset to read, or -1 when the group never committed one here."""
        with self._lock:
            return self._table.get(_key(topic, group), {}).get(queue_id, -1)

    def offsets(self, group: str, topic: str) -> dict[int, int]:
        """All queues of one topic that the group has an offset in."""
        with self._lock:
            return dict(self._table.get(_key(topic, group), {}))

    def table(self) -> dict[tuple[str, str], dict[int, int]]:
        """A copy of everything, by topic and group."""
        with self._lock:
            return {(topic, group): dict(self._table[key]) for key, topic, group in self._split_keys()}

    def groups(self, topic: str) -> list[str]:
        """Groups that have an offset in the topic, sorted."""
        with self._lock:
            return sorted(group for _, name, group in self._split_keys() if name == topic)

    def remove(self, *, topic: str | None = None, group: str | None = None) -> int:
        """Forget a topic's offsets, a group's, or one group's in one topic; the number of pairs forgotten."""
        if topic is None and group is None:
            raise ValueError("name a topic or a group")
        with self._lock:
            doomed = [
                key
                for key, name, owner in self._split_keys()
                if (topic is None or name == topic) and (group is None or owner == group)
            ]
            for key in doomed:
                del self._table[key]
            if doomed:
                self._changes += 1
                self._version = self._version.next(self._clock.now_ms())
            return len(doomed)

    def clamp(self, bounds: Callable[[str, int], tuple[int, int] | None]) -> list[Clamped]:
        """Move every offset that lies outside its queue onto the nearest end, and say which were moved.

        For use after recovery cut the log: an offset behind the new end would skip what is written next.
        ``bounds`` gives ``(min, max)`` of a topic's queue, or None for a queue that does not exist; its
        offsets stay, the queue may come back.
        """
        moved: list[Clamped] = []
        with self._lock:
            for key, topic, group in self._split_keys():
                queues = self._table[key]
                for queue_id, before in queues.items():
                    ends = bounds(topic, queue_id)
                    if ends is None:
                        continue
                    after = clamp_offset(before, *ends)
                    if after != before:
                        moved.append(Clamped(group, topic, queue_id, before, after))
                        queues[queue_id] = after
            self._changes += len(moved)
        return moved

    def _split_keys(self) -> list[tuple[str, str, str]]:
        """Key, topic and group of every entry whose key has both. The lock is held."""
        parts = ((key, *key.partition(SEPARATOR)) for key in self._table)
        return [(key, topic, group) for key, topic, mark, group in parts if mark and topic and group]

    def _content(self) -> dict[str, Any]:
        """What the file is to hold, in the order of RocketMQ's. The lock is held."""
        keys = self._split_keys()
        # RocketMQ looks for a light group's offset here only, whatever the queue: light queues have one.
        alone = {
            key: self._table[key][0]
            for key, _, group in keys
            if self._light and group.startswith(LMQ_PREFIX) and 0 in self._table[key]
        }
        rest = {
            key: dict(sorted(queues.items()))
            for key, queues in self._table.items()
            if key not in alone or len(queues) > 1
        }
        topics: dict[str, list[str]] = {}
        for key, topic, group in keys:
            if key in rest:
                topics.setdefault(group, []).append(topic)
        return {
            "dataVersion": self._version.to_json(),
            "groupTopicMap": {group: sorted(names) for group, names in topics.items()},
            **({"lmqOffsetTable": alone} if self._light else {}),
            "offsetTable": rest,
        }


def consumer_offsets(
    storage: FileAccess, root: str, *, light: bool | None = None, clock: Clock | None = None
) -> ConsumerOffsets:
    """The offsets of the store at ``root``; not loaded yet.

    ``light``: as the store's ``enable_lmq``, which says which of the two files counts; None: nobody knows
    it, and a file for light queues is taken as a sign of them. The other file is read while that one is
    missing: when the setting has just been changed.
    """
    folder = PurePath(root) / "config"
    if light is None:
        light = storage.exists(str(folder / LIGHT_FILE))
    name, other = (LIGHT_FILE, FILE) if light else (FILE, LIGHT_FILE)
    return ConsumerOffsets(storage, str(folder / name), clock=clock, light=light, instead=str(folder / other))


def _key(topic: str, group: str) -> str:
    if not topic or not group or SEPARATOR in topic:
        raise ValueError(f"no topic and group: {topic!r}, {group!r}")
    return f"{topic}{SEPARATOR}{group}"


def _decode(content: Any) -> tuple[dict[str, dict[int, int]], DataVersion]:
    """The parts that are read back. Anything else in the file is derived from them, and ignored."""
    if not isinstance(content, dict):
        raise ValueError("no object with an offsetTable")
    names = ("offsetTable", "lmqOffsetTable", "dataVersion")
    offsets, light, version = (content.get(name) or {} for name in names)
    if not all(isinstance(part, dict) for part in (offsets, light, version)):
        raise ValueError(f"one of {', '.join(names)} is no object")
    table = {str(key): _decode_queues(str(key), queues) for key, queues in offsets.items()}
    for key, offset in light.items():
        table.setdefault(str(key), {}).update(_decode_queues(str(key), {0: offset}))
    try:
        return table, DataVersion.from_json(version)
    except TypeError:
        raise ValueError("dataVersion holds something that is no number") from None


def _decode_queues(key: str, queues: Any) -> dict[int, int]:
    if not isinstance(queues, dict):
        raise ValueError(f"the offsets of {key} are no object")
    decoded = {}
    for queue_id, offset in queues.items():
        # Keys are whole numbers in RocketMQ's files, quoted ones in files that went through other hands.
        try:
            number = int(queue_id)
        except ValueError:
            raise ValueError(f"{queue_id!r} of {key} is no queue") from None
        if number not in _INT32 or type(offset) is not int or offset not in _INT64:
            raise ValueError(f"queue {queue_id} of {key} has no offset: {offset!r}")
        decoded[number] = offset
    return decoded
