"""The place of a stream as Spark keeps it: one JSON object per batch, compared and logged as text.

    {"v":1,"q":{"orders":{"0":120,"1":80}},"from":{"orders":{"1":0}},"lost":{"orders":{"0":[[5,9]]}}}

``q`` is complete: the next offset to read of every queue. ``from`` says where queues of this batch begin if
not where the offset before ends: all of them in the first batch, later the new ones and those that lost
messages. It makes a batch replayable by itself: when Spark replays batch 0 it asks for the initial offset
again and would take today's answer for it; the end that it has logged knows better. ``lost`` reports what
retention took before this batch could read it.

Keys are sorted, nothing depends on the clock: equal places are equal texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.errors import StoreError, StoreVersion

VERSION = 1
_MAX_OFFSET = 2**63 - 1
_FIELDS = {"v", "q", "from", "lost", "path"}

QueueKey: TypeAlias = tuple[str, int]
Places: TypeAlias = Mapping[QueueKey, int]
LostRange: TypeAlias = tuple[str, int, int, int]
"""Topic, queue, first lost offset, end (exclusive)."""


@dataclass(frozen=True)
class StreamOffset:
    """Where a stream stands in every queue it knows."""

    queues: Places
    origin: Places = field(default_factory=dict)
    """Where queues begin that do not begin where the offset before ends."""
    lost: tuple[LostRange, ...] = ()
    path: str | None = None
    """Only in what is reported as latest: the store, so that a listener can ask it for bytes and times."""

    @classmethod
    def initial(cls, queues: Places) -> StreamOffset:
        """The start of a query: its own origin."""
        return cls(dict(queues), dict(queues))

    @property
    def is_initial(self) -> bool:
        """Whether nothing was read yet: the next offset inherits the origin."""
        return self.origin == self.queues

    def to_json(self) -> dict[str, Any]:
        """The object for Spark, in one order."""
        content: dict[str, Any] = {"v": VERSION, "q": _nest(self.queues)}
        if self.origin:
            content["from"] = _nest(self.origin)
        if self.lost:
            content["lost"] = _nest_ranges(self.lost)
        if self.path is not None:
            content["path"] = self.path
        return content

    def text(self) -> str:
        """The object as one line, as short as JSON gets."""
        return json.dumps(self.to_json(), separators=(",", ":"))

    @classmethod
    def parse(cls, content: str | Mapping[str, Any]) -> StreamOffset:
        """Read what ``to_json`` or ``text`` gave. Raises StoreError for anything else."""
        if isinstance(content, str):
            try:
                content = json.loads(content)
            except ValueError as error:
                raise _bad(f"it is no JSON: {error}") from None
        if not isinstance(content, Mapping):
            raise _bad("it is no object")
        version = content.get("v")
        if version != VERSION or isinstance(version, bool):
            raise StoreVersion(
                f"the checkpoint's offset has version {version!r}, this package knows {VERSION}",
                hint="use the version of the package that wrote the checkpoint, or start with a new one",
            )
        unknown = sorted(set(content) - _FIELDS)
        if unknown:
            raise _bad(f"it has unknown fields: {', '.join(unknown)}")
        path = content.get("path")
        if path is not None and not isinstance(path, str):
            raise _bad("its path is no text")
        queues = _flatten(content.get("q"), "q")
        origin = _flatten(content.get("from", {}), "from")
        if not origin.keys() <= queues.keys():
            raise _bad("a queue has a beginning but no place")
        return cls(queues, origin, _flatten_ranges(content.get("lost", {})), path)


def begins(start: StreamOffset, end: StreamOffset) -> dict[QueueKey, int]:
    """Where each queue of ``end`` begins in the batch between the two.

    Raises StoreError when the batch would run backwards or has a queue without a beginning: reading it as
    empty would lose messages without a word.
    """
    found: dict[QueueKey, int] = {}
    for key, stop in end.queues.items():
        begin = end.origin.get(key, start.queues.get(key))
        if begin is None:
            raise StoreError(f"queue {_name(key)} of a batch has no beginning", hint=_HINT)
        if begin > stop:
            raise StoreError(
                f"a batch of queue {_name(key)} would begin at {begin}, behind its end {stop}", hint=_HINT
            )
        found[key] = begin
    missing = sorted(set(start.queues) - set(end.queues))
    # The first batch carries all beginnings itself; what was found as its start today may know more queues.
    if missing and end.origin.keys() != end.queues.keys():
        names = ", ".join(map(_name, missing))
        raise StoreError(f"queues of the last batch are not in this one: {names}", hint=_HINT)
    return found


_HINT = "the checkpoint belongs to another store or was edited; start with a new checkpoint"


def merge_lost(ranges: Iterable[LostRange]) -> tuple[LostRange, ...]:
    """The same offsets in as few ranges as possible, sorted; empty ones go."""
    merged: list[LostRange] = []
    for topic, queue, begin, end in sorted(ranges):
        if begin >= end:
            continue
        if merged and merged[-1][:2] == (topic, queue) and merged[-1][3] >= begin:
            merged[-1] = (topic, queue, merged[-1][2], max(end, merged[-1][3]))
        else:
            merged.append((topic, queue, begin, end))
    return tuple(merged)


def starting_json(queues: Places) -> str:
    """The places as the text of the option ``startingOffsets``."""
    return json.dumps(_nest(queues), separators=(",", ":"))


def _name(key: QueueKey) -> str:
    return f"{key[0]}/{key[1]}"


def _bad(what: str) -> StoreError:
    return StoreError(f"the checkpoint's offset can't be read: {what}", hint=_HINT)


def _nest(queues: Places) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, queue), offset in sorted(queues.items()):
        nested.setdefault(topic, {})[str(queue)] = offset
    return nested


def _nest_ranges(ranges: Iterable[LostRange]) -> dict[str, dict[str, list[list[int]]]]:
    nested: dict[str, dict[str, list[list[int]]]] = {}
    for topic, queue, begin, end in sorted(ranges):
        nested.setdefault(topic, {}).setdefault(str(queue), []).append([begin, end])
    return nested


def _flatten(content: Any, name: str) -> dict[QueueKey, int]:
    return {key: _offset(value, name, key) for key, value in _leaves(content, name)}


def _flatten_ranges(content: Any) -> tuple[LostRange, ...]:
    found = []
    for key, value in _leaves(content, "lost"):
        if not isinstance(value, list):
            raise _bad(f"lost of {_name(key)} is no list")
        for pair in value:
            if not isinstance(pair, list) or len(pair) != 2:
                raise _bad(f"lost of {_name(key)} has something that is no range: {pair!r}")
            found.append((*key, _offset(pair[0], "lost", key), _offset(pair[1], "lost", key)))
    return tuple(found)


def _leaves(content: Any, name: str) -> list[tuple[QueueKey, Any]]:
    if not isinstance(content, Mapping):
        raise _bad(f"{name} is no object")
    leaves = []
    for topic, queues in content.items():
        if not isinstance(queues, Mapping) or not topic:
            raise _bad(f"{name} of topic {topic!r} is no object")
        for queue, value in queues.items():
            if not queue.isascii() or not queue.isdigit() or str(int(queue)) != queue:
                raise _bad(f"{queue!r} of topic {topic} is no queue")
            leaves.append(((topic, int(queue)), value))
    return leaves


def _offset(value: Any, name: str, key: QueueKey) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_OFFSET:
        raise _bad(f"{name} of {_name(key)} is no offset: {value!r}")
    return value
