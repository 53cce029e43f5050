"""What a task takes of the records it meets: the picklable side of the native selection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock._native.selection import Selection
from penstock.spark.options import EARLIEST, LATEST, ReadOptions

QueueExtent: TypeAlias = tuple[str, int, int, int, int, int]
"""Topic, queue, queue offsets [start, end), physical offsets [low, high)."""

FOREVER = 2**63 - 1


@dataclass(frozen=True)
class Wanted:
    """Conditions that a record has to meet; None or empty: no such condition."""

    queues: tuple[QueueExtent, ...] | None = None
    topics: tuple[str, ...] | None = None
    by_options: ReadOptions | None = None
    """Topics are judged by these options, one by one as they are met."""
    queued: bool = False
    tags: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    since: int | None = None
    until: int | None = None

    def selection(self) -> Selection:
        """The native judge. One for each pass: it remembers what it took."""
        options = self.by_options
        return Selection(
            queues=self.queues,
            topics=self.topics,
            matches=None if options is None else options.wants_topic,
            queued=self.queued,
            tags=self.tags,
            keys=self.keys,
            since=self.since,
            until=self.until,
        )


def wanted_of(options: ReadOptions, *, queues: tuple[QueueExtent, ...] | None = None) -> Wanted:
    """What the options ask for. ``queues``: offsets and times were resolved to these ranges already."""
    queued = options.view == "queue"
    if queues is not None:
        return Wanted(queues=queues, queued=queued, tags=options.tags, keys=options.keys)
    given = _given_queues(options)
    by_options = options.subscribePattern is not None or (options.topics is None and (queued or bool(given)))
    return Wanted(
        queues=given or None,
        topics=None if options.assign is not None else options.topics,
        by_options=options if by_options else None,
        queued=queued,
        tags=options.tags,
        keys=options.keys,
        since=options.startingTimestamp,
        until=options.endingTimestamp,
    )


def _given_queues(options: ReadOptions) -> tuple[QueueExtent, ...]:
    """Queues that the options name one by one, with the offsets they give for them."""
    starts = options.startingOffsets if isinstance(options.startingOffsets, dict) else {}
    ends = options.endingOffsets if isinstance(options.endingOffsets, dict) else {}
    named = {
        (topic, queue)
        for table in (starts, ends, options.assign or {})
        for topic, queues in table.items()
        for queue in queues
        if options.wants_queue(topic, queue)
    }
    made: list[QueueExtent] = []
    for topic, queue in sorted(named):
        start, end = starts.get(topic, {}).get(queue, EARLIEST), ends.get(topic, {}).get(queue, LATEST)
        first = FOREVER if start == LATEST else max(0, start)
        last = 0 if end == EARLIEST else FOREVER if end == LATEST else end
        made.append((topic, queue, first, last, 0, FOREVER))
    return tuple(made)
