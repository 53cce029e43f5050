"""How much of what there is goes into one batch. Pure: places in, places out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from penstock.spark.offsets import Places, QueueKey

Units: TypeAlias = Callable[[QueueKey, int, int], Iterator[tuple[int, int, int]]]
"""``units(queue, begin, end)``: queue offset, place in the log and size of each message, in order.

A place that holds no message has size 0.
"""


_WINDOW = 8 << 20
"""Bytes of the log looked at in one step: bounds the memory that choosing takes."""


@dataclass(frozen=True)
class Limits:
    """What the options ask for; None means no such limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay: float = 900.0
    """Seconds after which a batch is made though it is smaller than ``min_offsets``."""
    max_bytes: int | None = None

    @property
    def any(self) -> bool:
        return self.max_offsets is not None or self.min_offsets is not None or self.max_bytes is not None


def behind(start: Places, latest: Places) -> dict[QueueKey, int]:
    """How many offsets each queue has to offer; queues with none are left out."""
    lags = {key: latest[key] - begin for key, begin in start.items() if key in latest}
    return {key: lag for key, lag in lags.items() if lag > 0}


def limit_offsets(
    start: Places, latest: Places, limit: int, first_place: Callable[[QueueKey, int], int]
) -> dict[QueueKey, int]:
    """Ends of a batch of at most ``limit`` offsets, exactly that many when there are as many.

    Each queue gets a share in proportion to what it has, and at least one offset, so a small queue never
    waits for a busy one. With more queues than offsets to give, those whose next message is oldest go first
    (``first_place`` is its place in the log): what waits gets older and its turn comes.
    """
    ends = dict(start)
    lags = behind(start, latest)
    total = sum(lags.values())
    if total <= limit:
        for key, lag in lags.items():
            ends[key] = start[key] + lag
        return ends
    if len(lags) > limit:
        oldest = sorted(lags, key=lambda key: (first_place(key, start[key]), key))
        for key in oldest[:limit]:
            ends[key] = start[key] + 1
        return ends
    # One for each, the rest in proportion to the rest: whole parts first, then the largest remainders.
    rest, spare = total - len(lags), limit - len(lags)
    spare_left = spare
    remainders = []
    for key, lag in lags.items():
        part, remainder = divmod((lag - 1) * spare, rest)
        ends[key] = start[key] + 1 + part
        spare_left -= part
        remainders.append((-remainder, key))
    for _, key in sorted(remainders)[:spare_left]:
        ends[key] += 1
    return ends


def limit_bytes(start: Places, latest: Places, limit: int, read_units: Units) -> dict[QueueKey, int]:
    """Ends of a batch whose messages take at most ``limit`` bytes of the log, and at least one message.

    Messages are taken in the order in which they were stored, over all queues, up to the first that does
    not fit. So no queue is passed over, and the batch is one stretch of the log.
    """
    cursors = {
        key: _Cursor(read_units(key, start[key], latest[key]), start[key], latest[key])
        for key in behind(start, latest)
    }
    left, taken = limit, 0
    while heads := [(cursor.head[1], key) for key, cursor in cursors.items() if cursor.head is not None]:
        # What begins in a window of ``left`` bytes fits into them, but for the end of the last message, and
        # for messages that several queues share.
        window_end = min(heads)[0] + max(1, min(left, _WINDOW))
        windows = [(key, cursors[key].take(window_end)) for place, key in heads if place < window_end]
        taken += sum(len(units) for _, units in windows)
        left -= sum(size for _, units in windows for _, _, size in units)
        if left <= 0:
            window = sorted(
                (place, key, offset, size) for key, units in windows for offset, place, size in units
            )
            while left < 0 and taken > 1:
                _, key, offset, size = window.pop()
                cursors[key].give_back(offset)
                left += size
                taken -= 1
            break
    return {**start, **{key: cursor.offset for key, cursor in cursors.items()}}


class _Cursor:
    """The messages of one queue between two offsets. Offsets without one go with the message before them."""

    def __init__(self, units: Iterator[tuple[int, int, int]], begin: int, end: int) -> None:
        self._units = units
        self._begin = begin
        self._end = end
        self._given_back: int | None = None
        self.head = next((unit for unit in units if unit[2] > 0), None)

    @property
    def offset(self) -> int:
        """End of what was taken. Of an inner batch, which has one unit for many offsets, all is taken."""
        if self._given_back is not None:
            return max(self._begin, self._given_back)
        return self._end if self.head is None else max(self._begin, self.head[0])

    def take(self, until: int) -> list[tuple[int, int, int]]:
        """Take what begins before a place in the log."""
        taken: list[tuple[int, int, int]] = []
        if self.head is None or self.head[1] >= until:
            return taken
        taken.append(self.head)
        for unit in self._units:
            if unit[2] <= 0:
                continue
            if unit[1] >= until:
                self.head = unit
                return taken
            taken.append(unit)
        self.head = None
        return taken

    def give_back(self, offset: int) -> None:
        """What begins at this offset was not taken after all, and nothing behind it."""
        self._given_back = offset
