"""From what the options say to offsets of queues: by number, by time and by consumer group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from penstock.errors import DataLost, UsageError
from penstock.spark.options import EARLIEST, LATEST, QueueOffsets, ReadOptions

QueueKey: TypeAlias = tuple[str, int]
Extents: TypeAlias = dict[QueueKey, tuple[int, int]]
"""First offset and end of queues."""


class QueueRange(NamedTuple):
    """Queue offsets [start, end) of one queue."""

    topic: str
    queue_id: int
    start: int
    end: int


class RangeFinder(ABC):
    """Resolves options against the queues that there are: of a store, or of brokers."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """Whose queues these are, for people."""

    @abstractmethod
    def extents(self, options: ReadOptions) -> Extents:
        """The queues that the options choose."""

    @abstractmethod
    def offsets_by_time(self, times: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """For each queue the first offset that was stored at its time or later; the end if none was."""

    @abstractmethod
    def group_offsets(self, group: str, keys: Iterable[QueueKey]) -> dict[QueueKey, int]:
        """Where a group is, -1 where it never was."""

    @abstractmethod
    def group_names(self, topics: Iterable[str]) -> list[str]:
        """Groups with offsets in these topics, for a hint."""

    @abstractmethod
    def topic_names(self) -> list[str]:
        """All topics, for a hint."""

    def has_topic(self, topic: str, extents: Extents) -> bool:
        """Whether a topic of the options has a queue."""
        return any(name == topic for name, _ in extents)

    def key_of(self, topic: str, queue_id: int, extents: Extents) -> QueueKey:
        """The queue that an option names."""
        return topic, queue_id

    def resolve(self, options: ReadOptions) -> list[QueueRange]:
        """The ranges that the options ask for, of queues that are there now.

        Raises DataLost for offsets that are no longer there, unless ``failOnDataLoss`` is off, and UsageError
        for topics and queues that never were.
        """
        extents = self.extents(options)
        self._check_names(options, extents)
        starts = self.starts(options, extents)
        ends = self.ends(options, extents)
        lost: list[tuple[str, int, int, int]] = []
        ranges: list[QueueRange] = []
        for key in sorted(extents):
            low, high = extents[key]
            start, end = starts[key], ends[key]
            if start < low:
                lost.append((*key, start, min(low, end)))
            if start > high or end > high:
                lost.append((*key, high, max(start, end)))
            start, end = min(max(start, low), high), min(max(end, low), high)
            if start < end:
                ranges.append(QueueRange(*key, start, end))
        if lost and options.failOnDataLoss:
            raise DataLost(
                "offsets that were asked for are not there",
                lost,
                file=self.uri,
                hint="they were removed, or are yet to come; failOnDataLoss=false reads what is there",
            )
        return ranges

    def starts(self, options: ReadOptions, extents: Extents) -> dict[QueueKey, int]:
        """Where the options begin, for each of the queues; not yet held against what is there."""
        if options.startingTimestamp is not None:
            times = dict.fromkeys(extents, options.startingTimestamp)
            return self._by_time(times, extents, options.startingOffsetsByTimestampStrategy)
        if options.startingOffsetsByTimestamp is not None:
            given = self._chosen(options.startingOffsetsByTimestamp, extents, "startingOffsetsByTimestamp")
            found = self._by_time(given, extents, options.startingOffsetsByTimestampStrategy)
            return {key: found.get(key, low) for key, (low, _) in extents.items()}
        if options.startingGroup is not None:
            return self._by_group(options.startingGroup, extents)
        return self._numbers(options.startingOffsets or "earliest", extents, EARLIEST, "startingOffsets")

    def ends(self, options: ReadOptions, extents: Extents) -> dict[QueueKey, int]:
        """Where the options end, exclusive."""
        if options.endingTimestamp is not None:
            return self._by_time(dict.fromkeys(extents, options.endingTimestamp), extents, "latest")
        if options.endingOffsetsByTimestamp is not None:
            given = self._chosen(options.endingOffsetsByTimestamp, extents, "endingOffsetsByTimestamp")
            found = self._by_time(given, extents, "latest")
            return {key: found.get(key, high) for key, (_, high) in extents.items()}
        return self._numbers(options.endingOffsets or "latest", extents, LATEST, "endingOffsets")

    def _by_time(self, times: dict[QueueKey, int], extents: Extents, strategy: str) -> dict[QueueKey, int]:
        found = self.offsets_by_time(times)
        for key, when in times.items():
            if found[key] >= extents[key][1] and strategy == "error":
                raise UsageError(
                    f"queue {key[1]} of {key[0]} has no message stored at {when} or later",
                    hint="startingOffsetsByTimestampStrategy=latest reads nothing of such a queue",
                )
        return found

    def _by_group(self, group: str, extents: Extents) -> dict[QueueKey, int]:
        known = self.group_offsets(group, extents)
        if extents and all(offset < 0 for offset in known.values()):
            groups = self.group_names({topic for topic, _ in extents})
            raise UsageError(
                f"the group {group!r} has no offset in any of these queues",
                hint=f"groups with offsets here: {', '.join(groups) or 'none'}",
            )
        # A queue that the group has not reached yet is read from its first message.
        return {key: known[key] if known[key] >= 0 else low for key, (low, _) in extents.items()}

    def _check_names(self, options: ReadOptions, extents: Extents) -> None:
        missing = [topic for topic in options.topics or () if not self.has_topic(topic, extents)]
        if missing and options.failOnDataLoss:
            raise UsageError(
                f"there is no message of {', '.join(missing)}",
                hint=f"topics here: {_some(self.topic_names())}; failOnDataLoss=false goes on without them",
            )

    def _chosen(self, given: QueueOffsets, extents: Extents, option: str) -> dict[QueueKey, int]:
        chosen = {
            self.key_of(topic, queue, extents): value
            for topic, queues in given.items()
            for queue, value in queues.items()
        }
        unknown = sorted(key for key in chosen if key not in extents)
        if unknown:
            names = ", ".join(f"{topic}/{queue}" for topic, queue in unknown)
            raise UsageError(
                f"{option} names queues that are not read: {names}",
                hint=f"queues: {_some([f'{topic}/{queue}' for topic, queue in sorted(extents)])}",
            )
        return chosen

    def _numbers(
        self, given: str | QueueOffsets, extents: Extents, missing: int, option: str
    ) -> dict[QueueKey, int]:
        """An offset for every queue; queues that are not named get ``missing``."""
        if given == "earliest":
            return {key: low for key, (low, _) in extents.items()}
        if isinstance(given, str):
            return {key: high for key, (_, high) in extents.items()}
        chosen = self._chosen(given, extents, option)
        made: dict[QueueKey, int] = {}
        for key, (low, high) in extents.items():
            value = chosen.get(key, missing)
            made[key] = low if value == EARLIEST else high if value == LATEST else value
        return made


def _some(names: list[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more
