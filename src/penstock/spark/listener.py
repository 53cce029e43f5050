"""The lag of streams while they run: a listener for ``spark.streams.addListener``.

from penstock.spark import LagListener

lag = LagListener(print)
spark.streams.addListener(lag)
...
lag.report(query).seconds
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.spark.lag import LagMeter, LagReport, QueueLag, joined
from penstock.spark.offsets import LostRange, StreamOffset, merge_lost


class LagListener(StreamingQueryListener):
    """Keeps the last ``LagReport`` of every running query that reads with format ``rocketmq``.

    Offsets come from the progress that Spark reports; bytes and seconds from the store itself, which the
    driver therefore has to see (else they are None and ``fault`` says why). ``on_report`` is called for each
    batch, on Spark's listener thread: keep it short.
    """

    def __init__(self, on_report: Callable[[LagReport], None] | None = None, *, clock: Clock | None = None):
        self._on_report = on_report
        self._clock = clock
        self._guard = threading.Lock()
        self._reports: dict[str, LagReport] = {}
        self._lost: dict[str, tuple[LostRange, ...]] = {}
        self._meters: dict[tuple[str, str], LagMeter] = {}

    def report(self, query: Any) -> LagReport | None:
        """The last report of a query (a StreamingQuery or its id); None before its first batch."""
        with self._guard:
            return self._reports.get(_id_of(query))

    def lost(self, query: Any) -> tuple[LostRange, ...]:
        """All ranges that a query reported as lost while this listener was there."""
        with self._guard:
            return self._lost.get(_id_of(query), ())

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known before the first batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        report = self.measure(event.progress)
        if report is None:
            return
        with self._guard:
            self._reports[report.query_id] = report
            if report.lost:
                earlier = self._lost.get(report.query_id, ())
                self._lost[report.query_id] = merge_lost([*earlier, *report.lost])
        if self._on_report is not None:
            self._on_report(report)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._guard:
            for key in [key for key in self._meters if key[0] == str(event.id)]:
                del self._meters[key]

    def measure(self, progress: Any) -> LagReport | None:
        """The report of one progress, None if no source of it is ours."""
        query_id = str(progress.id)
        queues: list[QueueLag] = []
        lost: list[LostRange] = []
        faults: list[str] = []
        ours = False
        for source in progress.sources:
            latest = _ours(source.latestOffset)
            end = _ours(source.endOffset)
            if latest is None or end is None:
                continue
            ours = True
            lost += end.lost
            try:
                queues += self._meter(query_id, latest.path or "").measure(end.queues, latest.queues)
            except (PenstockError, OSError) as error:
                faults.append(str(error))
                queues += [
                    QueueLag(*key, here, high) for key, here, high in joined(end.queues, latest.queues)
                ]
        if not ours:
            return None
        return LagReport(
            query_id,
            progress.name,
            progress.batchId,
            tuple(queues),
            merge_lost(lost),
            "; ".join(faults) or None,
        )

    def _meter(self, query_id: str, path: str) -> LagMeter:
        key = (query_id, path)
        if key not in self._meters:
            from penstock.spark.body import open_watch

            self._meters[key] = LagMeter(open_watch(path), self._clock)
        return self._meters[key]


def _id_of(query: Any) -> str:
    return str(getattr(query, "id", query))


def _ours(offset: Any) -> StreamOffset | None:
    """The offset of a source, None if another kind of source wrote it."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if not isinstance(offset, dict) or "v" not in offset or "q" not in offset:
        return None
    return StreamOffset.parse(offset)
