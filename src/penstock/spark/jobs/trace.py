"""The life of a message: every record of it in order, through half, op, delay, retry and dead-letter topics.

Through the index when there is one, else by looking at the whole log; both find the same records.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock._native.stored import Slab, StoredMessage, message_at
from penstock.config import StoreConfig
from penstock.errors import UsageError
from penstock.message.topic import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, is_system_topic
from penstock.spark.jobs.job import Progress, run_splits
from penstock.spark.jobs.steps import Step, describe, identity
from penstock.spark.jobs.tracescan import SCHEMA, Names, find_ends, find_named
from penstock.spark.places import Place, open_places
from penstock.spark.planning import LogSplit, log_splits
from penstock.store.readonly import ReadOnlyStore
from penstock.store.transactionops import parse_op_body

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLIT_BYTES = 128 << 20
ROUNDS = 8
"""A message's records share its unique key, so the second round finds the last of them."""


@dataclass(frozen=True, slots=True)
class TraceResult:
    """``steps`` are in the order of the log, which is that of time. ``via`` is "index" or "scan"."""

    path: str
    key: str
    via: str
    steps: list[Step]
    seconds: float

    @property
    def messages(self) -> list[str]:
        """The messages that the steps belong to, in the order of their first step."""
        return list(dict.fromkeys(step.message for step in self.steps))

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "messages": self.messages}


def trace(
    spark: SparkSession,
    path: str | os.PathLike[str],
    key: str,
    *,
    via: str = "auto",
    split_bytes: int = SPLIT_BYTES,
    progress: Progress | None = None,
) -> TraceResult:
    """Everything that became of the messages with a key, a unique key or a message id.

    ``via`` "index" asks the index files only; "scan" looks at every record; "auto" asks the index, and scans
    where that cannot know (:func:`trace_by_index`). After a kill an index may lack entries: "scan" finds all
    the same.
    """
    if via not in ("auto", "index", "scan"):
        raise UsageError(f"via is 'auto', 'index' or 'scan', not {via!r}")
    if via != "scan" and (found := trace_by_index(path, key, sure=via == "auto")) is not None:
        return found
    started = time.monotonic()
    place = _place(path, key)
    records = _through_scan(spark, place, key, split_bytes, progress)
    return TraceResult(place.uri, key, "scan", _steps(place, records), time.monotonic() - started)


def trace_by_index(path: str | os.PathLike[str], key: str, *, sure: bool = True) -> TraceResult | None:
    """As :func:`trace`, through the index and without Spark.

    With ``sure``, None where a scan may find more: there is no index, it knows nothing of the key, or a
    message has no unique key, by which the rest of its records is found. Without, UsageError if there is no
    index.
    """
    started = time.monotonic()
    place = _place(path, key)
    if not _has_index(place):
        if sure:
            return None
        raise UsageError(f"{place.uri} has no index", hint="scan it")
    records = _through_index(place, key)
    if sure and (not records or any(_is_nameless(record) for record in records.values())):
        return None
    return TraceResult(place.uri, key, "index", _steps(place, records), time.monotonic() - started)


def _is_nameless(record: StoredMessage) -> bool:
    return record.unique_key is None and record.topic != TRANS_OP_HALF_TOPIC


def _place(path: str | os.PathLike[str], key: str) -> Place:
    if not key or " " in key:
        raise UsageError("a key is a word without blanks", hint="give one key, unique key or message id")
    places = open_places(path)
    if len(places) != 1:
        raise UsageError(f"a trace is of one store, and {path} names {len(places)}", hint="run it on each")
    return places[0]


def _has_index(place: Place) -> bool:
    folder = f"{place.root}/index"
    return (
        place.has_queues
        and place.storage.exists(folder)
        and any(entry.name.isdigit() for entry in place.storage.listdir(folder))
    )


# -- finding -----------------------------------------------------------------------------------------


def _through_index(place: Place, key: str) -> dict[int, StoredMessage]:
    """Records by physical offset."""
    # A key may have more messages than a query for people should show.
    config = StoreConfig(max_msgs_num_batch=1 << 30)
    with ReadOnlyStore(place.root, storage=place.storage, config=config) as store:
        found: dict[int, StoredMessage] = {}
        asked: set[str] = set()
        names = {key}
        while names:
            for name in names:
                for message in _query(store, name):
                    # A key of the message may be the unique key of another: that one has a life of its own.
                    if name == key or identity(message) == name:
                        found[message.physical_offset] = message
            asked |= names
            names = {identity(record) for record in found.values()} - asked
        for queue_id, offsets in _halves(found.values()).items():
            for message in _op_queue(store, queue_id):
                if offsets & set(parse_op_body(message)):
                    found[message.physical_offset] = message
    return found


def _query(store: ReadOnlyStore, name: str) -> Iterable[StoredMessage]:
    for topic in store.topics():
        yield from store.query(topic, name, max=1 << 30)
    try:
        message = store.lookup(name)
    except ValueError:
        return
    if message is not None and message.message_id == name:
        yield message


def _op_queue(store: ReadOnlyStore, queue_id: int) -> Iterable[StoredMessage]:
    offset = store.min_offset(TRANS_OP_HALF_TOPIC, queue_id)
    while (result := store.get(TRANS_OP_HALF_TOPIC, queue_id, offset)).next_begin_offset > offset:
        yield from result.messages
        offset = result.next_begin_offset


def _through_scan(
    spark: SparkSession, place: Place, key: str, split_bytes: int, progress: Progress | None
) -> dict[int, StoredMessage]:
    splits = log_splits(place, split_bytes=split_bytes)
    found: dict[int, StoredMessage] = {}
    names = Names(key, ())
    asked = {key}
    for _ in range(ROUNDS):
        work = functools.partial(find_named, names=names)
        found |= _run(spark, splits, work, f"trace {key}", progress)
        new = {identity(record) for record in found.values()} - asked
        if not new:
            break
        asked |= new
        names = Names(None, tuple(sorted(new)))
    halves = [
        (queue, offset) for queue, offsets in _halves(found.values()).items() for offset in sorted(offsets)
    ]
    if halves:
        found |= _run(spark, splits, functools.partial(find_ends, halves=halves), f"trace {key}", progress)
    return found


def _run(
    spark: SparkSession, splits: list[LogSplit], work: Any, name: str, progress: Progress | None
) -> dict[int, StoredMessage]:
    found = {}
    for row in run_splits(spark, splits, work, SCHEMA, name=name, progress=progress):
        message = message_at(Slab(bytes(row.record)), 0)
        assert message is not None  # the task read it as a record
        found[row.physicalOffset] = message
    return found


def _halves(records: Iterable[StoredMessage]) -> dict[int, set[int]]:
    """Half messages by queue: their queue offsets."""
    halves: dict[int, set[int]] = {}
    for record in records:
        if record.topic == TRANS_HALF_TOPIC:
            halves.setdefault(record.queue_id, set()).add(record.queue_offset)
    return halves


# -- telling -----------------------------------------------------------------------------------------


def _steps(place: Place, records: dict[int, StoredMessage]) -> list[Step]:
    ordered = [record for _, record in sorted(records.items())]
    owners = {
        (record.queue_id, record.queue_offset): identity(record)
        for record in ordered
        if record.topic == TRANS_HALF_TOPIC
    }
    in_topic = {identity(record) for record in ordered if not is_system_topic(record.topic)}
    delays = place.directory.config.delay_levels_ms
    groups = _committed(place)
    steps: list[Step] = []
    for record in ordered:
        messages = [identity(record)]
        if record.topic == TRANS_OP_HALF_TOPIC:
            ended = [owners.get((record.queue_id, offset)) for offset in parse_op_body(record)]
            messages = list(dict.fromkeys(owner for owner in ended if owner is not None))
        for message in messages:
            kind, meaning = describe(record, message, steps, delays, message in in_topic)
            steps.append(_step(record, message, kind, meaning, groups))
    return steps


def _step(
    record: StoredMessage,
    message: str,
    kind: str,
    meaning: str,
    groups: dict[tuple[str, str], dict[int, int]],
) -> Step:
    consumed = [
        group
        for (topic, group), queues in sorted(groups.items())
        if topic == record.topic and queues.get(record.queue_id, -1) > record.queue_offset
    ]
    return Step(
        message=message,
        kind=kind,
        meaning=meaning,
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        message_id=record.message_id,
        store_ms=record.store_timestamp,
        born_ms=record.born_timestamp,
        size=record.size,
        reconsume_times=record.reconsume_times,
        keys=record.keys,
        tags=record.tags,
        consumed_by=[] if is_system_topic(record.topic) else consumed,
    )


def _committed(place: Place) -> dict[tuple[str, str], dict[int, int]]:
    if not place.has_queues:
        return {}
    with ReadOnlyStore(place.root, storage=place.storage) as store:
        return store.consumer_offsets.table()
