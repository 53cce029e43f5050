"""The driver's side of a stream: where it begins, how far each batch goes, what was lost. No Spark in here.

Spark keeps one of these per query and source and asks it every few milliseconds when there is nothing to do.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Protocol

from penstock.clock import Clock, SystemClock
from penstock.errors import DataLost, StoreError
from penstock.spark.advance import LOSS_HINT, advance, surviving
from penstock.spark.limits import Limits, behind, limit_bytes, limit_offsets
from penstock.spark.offsets import LostRange, Places, QueueKey, StreamOffset, begins, merge_lost
from penstock.spark.options import ReadOptions
from penstock.spark.startfile import StartFile

Json = dict[str, Any]


class DataLossWarning(UserWarning):
    """A stream went on (failOnDataLoss=false) although messages had been removed before it read them."""


class Watched(Protocol):
    """What a stream asks its store. Only the queues that the options choose."""

    @property
    def uri(self) -> str: ...
    def refresh(self, *, thoroughly: bool = False) -> bool:
        """Look again; False when nothing changed since the last time. New queues may be seen a moment later,
        unless looked for ``thoroughly``."""
        ...

    def earliest(self) -> Places: ...
    def latest(self) -> Places: ...
    def starts(self) -> Places:
        """Where the options say a new query begins, in every queue there is."""
        ...

    def units(self, key: QueueKey, begin: int, end: int) -> Iterator[tuple[int, int, int]]: ...
    def first_place(self, key: QueueKey, offset: int) -> int: ...


class Group(Protocol):
    """Where a stream publishes how far it is."""

    def publish(self, places: Places) -> bool:
        """Make ``places`` a consumer group's; whether anything was written."""
        ...


class Course:
    """One query's way through a store."""

    def __init__(
        self,
        options: ReadOptions,
        store: Watched,
        *,
        group: Group | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._group = group
        self._clock: Clock = clock or SystemClock()
        self._fail_on_data_loss = options.failOnDataLoss
        self.limits = Limits(
            options.maxOffsetsPerTrigger,
            options.minOffsetsPerTrigger,
            options.maxTriggerDelay,
            options.maxBytesPerTrigger,
        )
        self._start_file = StartFile(options.stateLocation, store.uri) if options.stateLocation else None
        self._initial: StreamOffset | None = None
        self._target: Places | None = None
        self._pending: tuple[LostRange, ...] = ()
        self._last_batch: float | None = None
        self._asked: tuple[Json, StreamOffset] | None = None
        self._idle_for: Json | None = None
        self._report: Json | None = None

    # -- the ends of batches -----------------------------------------------------------------------

    def initial(self) -> Json:
        """Where a new query begins; the same answer for as long as this object lives, and, with a
        ``stateLocation``, ever after."""
        if self._initial is None:
            start = self._start_file.load() if self._start_file is not None else None
            if start is None:
                start = self._checked_start()
                if self._start_file is not None:
                    start = self._start_file.keep(start)
            self._initial = start
        return self._initial.to_json()

    def _look(self, *, thoroughly: bool = False) -> bool:
        changed = self._store.refresh(thoroughly=thoroughly)
        if changed:
            self._report = None
            self._idle_for = None
        return changed

    def _checked_start(self) -> StreamOffset:
        self._look(thoroughly=True)
        starts, latest = self._store.starts(), self._store.latest()
        for key, offset in sorted(starts.items()):
            if offset > latest.get(key, 0):
                raise StoreError(
                    f"the stream is to begin at offset {offset} of queue {key[0]}/{key[1]},"
                    f" which ends at {latest.get(key, 0)}",
                    file=self._store.uri,
                    hint="startingOffsets is at most the end of the queue; -1 means the end",
                )
        return StreamOffset.initial(starts)

    def freeze_target(self) -> None:
        """The query reads to where the queues end now, and not further."""
        self._look(thoroughly=True)
        self._target = dict(self._store.latest())

    def latest(self, start: Json, *, everything: bool = False) -> Json:
        """The end of the batch that begins at ``start``: ``start`` itself when there is none to make.

        ``everything`` sets the limits aside.
        """
        self._look()
        if self._idle_for is not None and start == self._idle_for:
            return start
        offset = self._parsed(start)
        if self._group is not None and not offset.is_initial:
            # Spark asks from here only when the batch that ends here is committed; ``commit`` is not called
            # for the last batch of a query, this is.
            self._group.publish(offset.queues)
        latest = self._reachable(offset)
        waiting = False

        def choose(begin: Places, ends: Places) -> Places | None:
            nonlocal waiting
            chosen = self._choose(begin, ends, everything)
            waiting = chosen is None
            return chosen

        end = advance(
            offset,
            self._store.earliest(),
            latest,
            choose,
            fail_on_data_loss=self._fail_on_data_loss,
            pending=self._pending,
        )
        if end is offset:
            # While a batch waits for its delay, time alone can change the answer.
            self._idle_for = None if waiting else start
            return start
        self._idle_for = None
        self._pending = ()
        self._last_batch = self._clock.monotonic()
        if end.lost:
            self._warn(end.lost)
        return end.to_json()

    def _parsed(self, start: Json) -> StreamOffset:
        if self._asked is None or self._asked[0] != start:
            self._asked = (start, StreamOffset.parse(start))
        return self._asked[1]

    def _reachable(self, start: StreamOffset) -> Places:
        """The ends of the queues, not past the target. A start may be past it: it was found later."""
        latest = self._store.latest()
        if self._target is None:
            return latest
        reachable: dict[QueueKey, int] = {}
        for key, end in latest.items():
            stop = max(self._target.get(key, -1), start.queues.get(key, -1))
            if stop >= 0:
                reachable[key] = min(end, stop)
        return reachable

    def _choose(self, begin: Places, latest: Places, everything: bool) -> Places | None:
        ends: Places = {**begin, **latest}
        if everything:
            return ends
        limits = self.limits
        # A query with a target must end: it takes what is left, however little.
        if limits.min_offsets is not None and self._target is None and self._last_batch is not None:
            waited = self._clock.monotonic() - self._last_batch
            if sum(behind(begin, latest).values()) < limits.min_offsets and waited < limits.max_delay:
                return None
        if limits.max_offsets is not None:
            ends = limit_offsets(begin, ends, limits.max_offsets, self._store.first_place)
        if limits.max_bytes is not None:
            ends = limit_bytes(begin, ends, limits.max_bytes, self._store.units)
        return ends

    def report(self) -> Json:
        """The ends of all queues as last looked at, and whose they are, for those who watch the lag."""
        if self._report is None:
            self._report = StreamOffset(self._store.latest(), path=self._store.uri).to_json()
        return self._report

    # -- a batch -----------------------------------------------------------------------------------

    def ranges(self, start: Json, end: Json) -> dict[QueueKey, tuple[int, int]]:
        """What the batch between two offsets reads of each queue. The same for every replay, but for what
        retention took: that is an error with the ranges, or, if told to go on, left out and reported."""
        stop = StreamOffset.parse(end)
        begin = begins(StreamOffset.parse(start), stop)
        self._look()
        ranges, lost = surviving(begin, stop.queues, self._store.earliest())
        if lost:
            if self._fail_on_data_loss:
                raise DataLost(
                    "messages of this batch were removed before they were read",
                    lost,
                    file=self._store.uri,
                    hint=LOSS_HINT,
                )
            self._pending = merge_lost([*self._pending, *lost])
            self._warn(lost)
        return ranges

    def commit(self, end: Json) -> None:
        """Spark will not ask for anything before ``end`` again."""
        if self._group is not None:
            self._group.publish(StreamOffset.parse(end).queues)

    def _warn(self, lost: tuple[LostRange, ...]) -> None:
        error = DataLost("messages were removed before the stream read them", lost, file=self._store.uri)
        warnings.warn(str(error), DataLossWarning, stacklevel=3)
