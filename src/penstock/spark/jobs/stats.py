"""Statistics of a store: traffic, sizes, delays, tags, hot keys, consumer lag, and how long the disk will
do.
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.spark.jobs.backlog import GroupLag, group_lags
from penstock.spark.jobs.job import Progress, run_splits, split_frame, told_errors, watched
from penstock.spark.jobs.retention import Retention, plan_retention
from penstock.spark.jobs.sketch import bucket_value, quantiles
from penstock.spark.jobs.traffic import HOUR_MS, SCHEMA, count_items, count_split
from penstock.spark.places import open_places
from penstock.spark.planning import LogSplit, log_splits
from penstock.store.filler import TOPIC as FILLER_TOPIC

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

SPLIT_BYTES = 128 << 20
SHARES = (0.5, 0.9, 0.95, 0.99, 0.999)
NAMES = ("kind", "topic", "queueId", "bucket", "item")
_FILLER = FILLER_TOPIC.decode()


@dataclass(frozen=True, slots=True)
class Spread:
    """How some numbers are spread. ``low`` and ``high`` are exact, ``quantiles`` are within one per cent.

    ``histogram`` has (value, number of messages) with one value for a bucket of values within one per cent
    of it.
    """

    low: int
    high: int
    quantiles: dict[str, float]
    histogram: list[tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Counted:
    """A tag or key and the number of times it occurs, exactly. ``share`` is of all tags or keys of its
    topic.
    """

    item: str
    rows: int
    share: float


@dataclass(frozen=True, slots=True)
class TopicStats:
    """One topic. ``delays_ms`` is from born to stored; it is below zero where a producer's clock is ahead."""

    topic: str
    rows: int
    bytes: int
    queues: int
    first_store_ms: int
    last_store_ms: int
    sizes: Spread
    delays_ms: Spread
    tags: list[Counted]
    hot_keys: list[Counted]
    keys: int


@dataclass(frozen=True, slots=True)
class HourStats:
    """One queue in one hour. ``first_offset`` and ``last_offset`` are queue offsets."""

    topic: str
    queue_id: int
    hour_ms: int
    rows: int
    bytes: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class StatsResult:
    """What the statistics found. ``records`` and ``bytes`` are all whole records of the log, as `verify`
    counts them; ``fillers`` of them cover places where damage was contained, and belong to no topic.
    """

    path: str
    records: int
    bytes: int
    fillers: int
    log_begin: int
    log_end: int
    topics: list[TopicStats]
    hours: list[HourStats]
    lag: list[GroupLag]
    retention: Retention | None
    hot_key_limit: int
    splits: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def stats(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    hot_keys: int = 20,
    split_bytes: int = SPLIT_BYTES,
    disk_bytes: int | None = None,
    progress: Progress | None = None,
    now_ms: int | None = None,
) -> StatsResult:
    """Statistics of one store, or of segments without a store around them (then without lag).

    Every key (and tag) that is more than one in ``hot_keys`` of its topic's is reported, with its exact
    count. ``disk_bytes``: what the log may take on its disk; without it, what the disk has up to RocketMQ's
    limit.
    """
    if hot_keys < 1:
        raise UsageError("hot_keys is at least 1")
    started = time.monotonic()
    places = open_places(path)
    if len(places) != 1:
        raise UsageError(
            f"statistics are of one store, and {path} names {len(places)}", hint="run it on each"
        )
    (place,) = places
    splits = log_splits(place, split_bytes=split_bytes)
    sums = _Sums(_count(spark, splits, max(1000, 10 * hot_keys), progress), hot_keys)
    unsure = sums.unsure()
    if unsure:
        work = functools.partial(count_items, wanted=unsure)
        for row in run_splits(spark, splits, work, SCHEMA, name="stats: exact counts", progress=progress):
            sums.add_exact(row.kind, row.topic, row.item, row.rows)
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return StatsResult(
        path=place.uri,
        records=sum(row.rows for row in sums.hours.values()),
        bytes=sum(row.bytes for row in sums.hours.values()),
        fillers=sum(row.rows for row in sums.hours.values() if row.topic == _FILLER),
        log_begin=splits[0].begin if splits else 0,
        log_end=splits[-1].end if splits else 0,
        topics=sums.topics(),
        hours=[row for key, row in sorted(sums.hours.items()) if row.topic != _FILLER],
        lag=group_lags(place, now),
        retention=plan_retention(place, list(sums.hours.values()), disk_bytes),
        hot_key_limit=hot_keys,
        splits=len(splits),
        seconds=time.monotonic() - started,
    )


def _count(
    spark: SparkSession, splits: Sequence[LogSplit], capacity: int, progress: Progress | None
) -> list[Any]:
    """Partial sums of all splits, added up by Spark."""
    from pyspark.sql import functions as f

    if not splits:
        return []
    frame = split_frame(spark, splits, functools.partial(count_split, capacity=capacity), SCHEMA)
    summed = frame.groupBy(*NAMES).agg(
        f.sum("rows").alias("rows"),
        f.sum("bytes").alias("bytes"),
        f.min("low").alias("low"),
        f.max("high").alias("high"),
    )
    with watched(spark, "stats", progress, len(splits)), told_errors():
        return summed.collect()


class _Sums:
    """The rows of the partial sums by what they are about."""

    def __init__(self, rows: list[Any], limit: int) -> None:
        self.limit = limit
        self.hours: dict[tuple[str, int, int], HourStats] = {}
        self._times: dict[str, Any] = {}
        self._spreads: dict[tuple[str, str], dict[int, Any]] = defaultdict(dict)
        self._items: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        self._errors: dict[tuple[str, str], int] = defaultdict(int)
        self._totals: dict[tuple[str, str], int] = defaultdict(int)
        self._exact: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for row in rows:
            if row.kind == "hour":
                self.hours[row.topic, row.queueId, row.bucket] = HourStats(
                    row.topic, row.queueId, row.bucket * HOUR_MS, row.rows, row.bytes, row.low, row.high
                )
            elif row.kind == "time":
                self._times[row.topic] = row
            elif row.kind in ("size", "delay"):
                self._spreads[row.kind, row.topic][row.bucket] = row
            elif row.kind.endswith("-error"):
                self._errors[row.kind.removesuffix("-error"), row.topic] = row.rows
            elif row.kind.endswith("-total"):
                self._totals[row.kind.removesuffix("-total"), row.topic] = row.rows
            else:
                self._items[row.kind, row.topic][row.item] = row.rows

    def unsure(self) -> list[tuple[str, str, str]]:
        """(kind, topic, item) that have to be counted again: their counters may be too low.

        All that may be above the limit are among them, and as many as are reported.
        """
        wanted = []
        for (kind, topic), items in self._items.items():
            error = self._errors[kind, topic]
            if not error:
                continue
            most = sorted(items, key=lambda item: (-items[item], item))
            least = self._totals[kind, topic] / self.limit - error
            wanted += [
                (kind, topic, item)
                for number, item in enumerate(most)
                if number < self.limit or items[item] > least
            ]
        return wanted

    def add_exact(self, kind: str, topic: str, item: str, count: int) -> None:
        """What one split has of an item."""
        self._exact[kind, topic][item] += count

    def topics(self) -> list[TopicStats]:
        """Largest first."""
        queues: dict[str, set[int]] = defaultdict(set)
        for topic, queue_id, _ in self.hours:
            queues[topic].add(queue_id)
        found = []
        for topic, row in self._times.items():
            if topic == _FILLER:
                continue
            found.append(
                TopicStats(
                    topic=topic,
                    rows=row.rows,
                    bytes=row.bytes,
                    queues=len(queues[topic]),
                    first_store_ms=row.low,
                    last_store_ms=row.high,
                    sizes=self._spread("size", topic),
                    delays_ms=self._spread("delay", topic),
                    tags=self._counted("tag", topic),
                    hot_keys=self._counted("key", topic),
                    keys=self._totals["key", topic],
                )
            )
        return sorted(found, key=lambda one: (-one.bytes, one.topic))

    def _spread(self, kind: str, topic: str) -> Spread:
        rows = self._spreads[kind, topic]
        low, high = min(row.low for row in rows.values()), max(row.high for row in rows.values())
        counts = {bucket: row.rows for bucket, row in rows.items()}
        # A bucket's value may lie outside of what there is by its error.
        found = {name: min(max(value, low), high) for name, value in quantiles(counts, SHARES).items()}
        return Spread(low, high, found, [(bucket_value(b), count) for b, count in sorted(counts.items())])

    def _counted(self, kind: str, topic: str) -> list[Counted]:
        items = self._exact.get((kind, topic)) or self._items[kind, topic]
        whole = max(1, self._totals[kind, topic])
        most = sorted(items.items(), key=lambda entry: (-entry[1], entry[0]))[: self.limit]
        return [Counted(item, count, count / whole) for item, count in most if count]
