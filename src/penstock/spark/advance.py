"""The next batch of a stream: from where it stands and what the store has. Pure; never skips silently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.errors import DataLost, StoreError
from penstock.spark.offsets import LostRange, Places, QueueKey, StreamOffset, merge_lost

Choice = Callable[[Places, Places], Places | None]
"""``choose(begin, latest)``: the ends of a batch, or None to wait for more."""

LOSS_HINT = (
    "keep messages longer or read sooner; failOnDataLoss=false goes on with what is there and reports the"
    " ranges"
)
BACK_HINT = (
    "the topic was made anew, or a crash cut the log; start with a new checkpoint, or set"
    " failOnDataLoss=false to go on from the new end"
)


@dataclass(frozen=True)
class Beginning:
    """Where a batch begins, after what is no longer there was left out."""

    places: dict[QueueKey, int]
    moved: dict[QueueKey, int] = field(default_factory=dict)
    """The part of ``places`` that is not where the last batch ended."""
    lost: tuple[LostRange, ...] = ()
    went_back: tuple[LostRange, ...] = ()
    """Queues that end before the place we have read them to: the offsets that were taken back."""


def beginning(start: StreamOffset, earliest: Places, latest: Places) -> Beginning:
    """Where the batch after ``start`` begins, and what was lost before it.

    A queue that is new is read from its first message; one that vanished keeps its place and may come back.
    """
    places: dict[QueueKey, int] = dict(start.queues)
    moved: dict[QueueKey, int] = {}
    lost: list[LostRange] = []
    went_back: list[LostRange] = []
    for key, high in latest.items():
        low = earliest.get(key, 0)
        here = start.queues.get(key, 0)
        if here < low:
            lost.append((*key, here, low))
            here = low
        elif here > high:
            went_back.append((*key, high, here))
            here = high
        places[key] = here
        if here != start.queues.get(key):
            moved[key] = here
    return Beginning(places, moved, merge_lost(lost), tuple(sorted(went_back)))


def advance(
    start: StreamOffset,
    earliest: Places,
    latest: Places,
    choose: Choice,
    *,
    fail_on_data_loss: bool,
    pending: tuple[LostRange, ...] = (),
) -> StreamOffset:
    """The end of the next batch; ``start`` itself, the same object, when there is none.

    ``pending`` are ranges that were found lost while the last batch was planned; they are reported with the
    next one. Raises DataLost or StoreError, unless told to go on.
    """
    begin = beginning(start, earliest, latest)
    if fail_on_data_loss:
        if begin.lost:
            raise DataLost("messages were removed before the stream read them", begin.lost, hint=LOSS_HINT)
        if begin.went_back:
            names = ", ".join(
                f"{t}/{q} ends at {high}, read to {here}" for t, q, high, here in begin.went_back
            )
            raise StoreError(f"queues end before the place they were read to: {names}", hint=BACK_HINT)
    ends = choose(begin.places, latest)
    if ends is None or (ends == start.queues and not begin.moved):
        return start
    origin = {**(start.origin if start.is_initial else {}), **begin.moved}
    return StreamOffset(dict(ends), origin, merge_lost([*pending, *begin.lost]))


def surviving(
    begins: Places, ends: Places, earliest: Places
) -> tuple[dict[QueueKey, tuple[int, int]], tuple[LostRange, ...]]:
    """What is left of a planned batch: a range per queue with anything to read; and what is gone of it."""
    ranges: dict[QueueKey, tuple[int, int]] = {}
    lost: list[LostRange] = []
    for key, end in ends.items():
        begin = begins[key]
        # A queue of which there is nothing any more has lost the whole range.
        low = min(end, max(begin, earliest.get(key, end)))
        lost.append((*key, begin, low))
        if low < end:
            ranges[key] = (low, end)
    return ranges, merge_lost(lost)
