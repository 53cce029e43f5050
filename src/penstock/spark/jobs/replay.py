"""Replay: messages of some topics, of a time, or dead letters, written again to another topic or store.

Each copy says where it comes from:

    REPLAY_NAME, REPLAY_MESSAGE_ID, REPLAY_TOPIC, REPLAY_QUEUE_ID, REPLAY_QUEUE_OFFSET

and by the first two a repeated replay knows what is there already: each source message arrives once for each
name. A copy has its original's queue id, so order within a queue is kept, and with it order by key.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.files.disk import DiskStorage
from penstock.message.properties import (
    PROPERTY_CRC32,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_INNER_NUM,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_PREPARED,
)
from penstock.spark.jobs.importing import write_counted
from penstock.spark.jobs.job import Progress, told_errors
from penstock.spark.options import BROKERS
from penstock.spark.publishing import settle
from penstock.spark.sql import topics_of
from penstock.spark.writeoptions import check_topic, local_path
from penstock.store.readonly import ReadOnlyStore
from penstock.store.retry import dead_letter_topic
from penstock.store.sizes import is_store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAME = "REPLAY_NAME"
MESSAGE_ID = "REPLAY_MESSAGE_ID"
TOPIC = "REPLAY_TOPIC"
QUEUE_ID = "REPLAY_QUEUE_ID"
QUEUE_OFFSET = "REPLAY_QUEUE_OFFSET"

# What made the original be delivered late, half, or many at once: it must not happen to the copy again.
_LEFT_BEHIND = (
    PROPERTY_CRC32,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_INNER_NUM,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_PREPARED,
    NAME,
    MESSAGE_ID,
    TOPIC,
    QUEUE_ID,
    QUEUE_OFFSET,
)
BURST_SECONDS = 10.0
Time = str | int | datetime


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay did, or with ``dry_run`` would do.

    ``selected`` messages were asked for; ``present`` of them were there from an earlier replay of the same
    name, the others were ``written``. ``homeless`` are dead letters that do not say which topic they came
    from: they are not among the selected, and need ``to``.
    """

    path: str
    target: str
    topic: str
    name: str
    selected: int
    present: int
    written: int
    writes: int
    homeless: int
    dry_run: bool
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def replay(
    spark: SparkSession,
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    topics: str | Iterable[str] | None = None,
    dead_letters: str | None = None,
    to: str | None = None,
    since: Time | None = None,
    until: Time | None = None,
    tags: str | Iterable[str] | None = None,
    keys: str | Iterable[str] | None = None,
    where: str | None = None,
    name: str = "replay",
    rate: float | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> ReplayResult:
    """Write messages again, to the topic ``to`` of the store ``target`` (the same store if it is not given).
    Both may be brokers: ``namesrv://host:port``.

    Chosen are ``topics``, or the ``dead_letters`` of a group, which without ``to`` go back to the topics they
    came from; among them those stored in [since, until), with these tags or keys, and for which the SQL
    condition ``where`` over the columns of a read holds. ``rate`` messages a second are written at most, in
    bursts of ten seconds' worth.
    """
    began = clock()
    source_topics = _source_topics(topics, dead_letters)
    store = _target(target if target is not None else path)
    _check(path, store, source_topics, dead_letters, to, rate)
    if not dry_run and not store.startswith(BROKERS) and Path(store).is_dir():
        settle(store)  # what a killed replay wrote must be whole, or gone, before it is compared with
    with told_errors():
        chosen = _chosen(spark, path, source_topics, since, until, tags, keys, where)
        copies = _copies(chosen, to, name)
        missing = _missing(spark, copies, store, name)
        selected, left = copies.count(), missing.count()
        homeless = chosen.count() - selected if to is None else 0
        written = writes = 0
        if not dry_run:
            tell = progress or (lambda done, whole: None)
            for part in _parts(missing, left, rate):
                written += write_counted(_ordered(part), {"path": store})
                writes += 1
                tell(written, left)
                if rate is not None and written < left:
                    sleep(max(0.0, began + written / rate - clock()))
    return ReplayResult(
        os.fspath(path),
        store,
        to or "",
        name,
        selected,
        selected - left,
        left if dry_run else written,
        writes,
        homeless,
        dry_run,
        clock() - began,
    )


def _target(place: str | os.PathLike[str]) -> str:
    """A directory, or brokers."""
    text = os.fspath(place)
    return text if text.startswith(BROKERS) else local_path(text)


def _source_topics(topics: str | Iterable[str] | None, group: str | None) -> list[str]:
    if (topics is None) == (group is None):
        raise UsageError("what is to be replayed?", hint="give topics, or the group whose dead letters")
    if group is not None:
        return [dead_letter_topic(group)]
    return [topics] if isinstance(topics, str) else list(topics or ())


def _check(
    path: str | os.PathLike[str],
    target: str,
    topics: list[str],
    group: str | None,
    to: str | None,
    rate: float | None,
) -> None:
    if to is not None:
        check_topic(to)
    elif group is None:
        raise UsageError("where to?", hint="name the topic that the copies go to")
    if to in topics and _target(path) == target:
        raise UsageError(
            f"the copies would go to {to}, where they come from", hint="name another topic or store"
        )
    if rate is not None and rate <= 0:
        raise UsageError(f"a rate of {rate:g} messages a second", hint="give a number above 0")


def _chosen(
    spark: SparkSession,
    path: str | os.PathLike[str],
    topics: list[str],
    since: Time | None,
    until: Time | None,
    tags: str | Iterable[str] | None,
    keys: str | Iterable[str] | None,
    where: str | None,
) -> DataFrame:
    from penstock.spark.frames import read

    # Bodies stay as they are, compressed or not: the copy says of itself what the original said.
    options: dict[str, Any] = {"decompress": False, "includeSystemTopics": True}
    frame = read(spark, path, topic=topics, since=since, until=until, tags=tags, keys=keys, **options)
    return frame if where is None else frame.where(where)


def _copies(frame: DataFrame, to: str | None, name: str) -> DataFrame:
    """Rows to be written, and the place of the original by which they are ordered and cut into parts."""
    from pyspark.sql import functions as F

    properties = F.col("properties")
    origin = F.coalesce(
        F.element_at(properties, PROPERTY_DLQ_ORIGIN_TOPIC), F.element_at(properties, PROPERTY_RETRY_TOPIC)
    )
    kept = F.map_filter(properties, lambda key, _: ~key.isin(*_LEFT_BEHIND))
    told: list[Column] = [
        F.lit(NAME),
        F.lit(name),
        F.lit(MESSAGE_ID),
        F.col("msgId"),
        F.lit(TOPIC),
        F.col("topic"),
    ]
    told += [F.lit(QUEUE_ID), F.col("queueId").cast("string")]
    told += [F.lit(QUEUE_OFFSET), F.col("queueOffset").cast("string")]
    target = F.lit(to) if to is not None else origin
    return frame.select(
        target.alias("topic"),
        "body",
        "queueId",
        F.map_concat(kept, F.create_map(*told)).alias("properties"),
        "flag",
        "sysFlag",
        "bornTimestamp",
        F.col("msgId").alias("origin"),
        "physicalOffset",
    ).where(F.col("topic").isNotNull())


def _missing(spark: SparkSession, copies: DataFrame, target: str, name: str) -> DataFrame:
    """The copies that are not in the target yet."""
    from pyspark.sql import functions as F

    from penstock.spark.frames import read

    if target.startswith(BROKERS):
        known = set(topics_of(target))
    elif is_store(DiskStorage(), target):
        with ReadOnlyStore(target) as store:
            known = set(store.topics())
    else:
        return copies
    topics = [row.topic for row in copies.select("topic").distinct().collect() if row.topic in known]
    if not topics:
        return copies
    properties = F.col("properties")
    there = (
        read(spark, target, topic=topics, columns=["topic", "properties"])
        .where(F.element_at(properties, NAME) == name)
        .select("topic", F.element_at(properties, MESSAGE_ID).alias("origin"))
    )
    return copies.join(there, ["topic", "origin"], "left_anti")


def _parts(missing: DataFrame, count: int, rate: float | None) -> list[DataFrame]:
    """What is written at once: everything, or with a rate what a burst may hold, in the order of the log."""
    from pyspark.sql import functions as F

    if count == 0:
        return []
    if rate is None:
        return [missing]
    parts = max(1, round(count / max(1.0, rate * BURST_SECONDS) + 0.5))
    shares = [number / parts for number in range(1, parts)]
    cuts = sorted(set(missing.approxQuantile("physicalOffset", shares, 0.0))) if shares else []
    place = F.col("physicalOffset")
    edges = [None, *cuts, None]
    conditions = []
    for low, high in itertools.pairwise(edges):
        bounds = ([place >= low] if low is not None else []) + ([place < high] if high is not None else [])
        conditions.append(functools.reduce(lambda a, b: a & b, bounds, F.lit(True)))
    return [missing.where(condition) for condition in conditions]


def _ordered(rows: DataFrame) -> DataFrame:
    """One partition has all rows of a queue, in the order of the log."""
    spread = rows.repartition("topic", "queueId").sortWithinPartitions("physicalOffset")
    return spread.select("topic", "body", "queueId", "properties", "flag", "sysFlag", "bornTimestamp")
