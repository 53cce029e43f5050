"""Compaction: of each key of some topics, the last message is left. The result is a store directory of its
own.

What survives keeps its queue offset and its order, and its record keeps every byte but the eight of its
physical offset, because it lies elsewhere now (and a whole-record checksum, where there was a right one, is
right again). So offset message ids and other references by physical offset change; queue offsets and unique
keys do not. A consumer offset before the first message that is left of its queue moves up to that.

Queue offsets without a message are blank units, as RocketMQ writes them before the first message of a queue.
RocketMQ takes a blank for a message in the first file of the log that was deleted, and then passes over all
that the file holds. So the first file holds nothing: it is one blank, and costs a block on disk.
"""

from __future__ import annotations

import functools
import os
import pickle
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import StoreError, StoreLocked, UsageError
from penstock.files.disk import DiskStorage
from penstock.format.record import END_FILE_MIN_BLANK_LENGTH
from penstock.message.topic import TIMER_TOPIC, is_system_topic
from penstock.spark.jobs.compactfiles import close_files, copy_settings, has_special_queues, swap
from penstock.spark.jobs.job import Progress, map_in_arrow, split_frame, told_errors, watched
from penstock.spark.jobs.queuebuild import complete_store
from penstock.spark.jobs.survivors import SCHEMA, Copy, NumberedSplit, Rules, copy_survivors, find_last
from penstock.spark.places import Place, open_places
from penstock.spark.planning import log_splits

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

SPLIT_BYTES = 128 << 20
TOMBSTONE_AGE_MS = 24 * 3_600_000
COPIED = "split int, records bigint, bytes bigint"


@dataclass(frozen=True, slots=True)
class CompactResult:
    """What a compaction did, or with ``dry_run`` would do. ``target`` is "" then.

    ``keys`` are the different keys of the compacted topics (of each queue by itself), ``tombstones_dropped``
    of them ended with an empty body that was old enough. Records and bytes are of whole records, all topics
    together.
    """

    path: str
    target: str
    topics: list[str]
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int
    keys: int
    tombstones_kept: int
    tombstones_dropped: int
    segments: int
    dry_run: bool
    replaced: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def compact(
    spark: SparkSession,
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    topics: Sequence[str],
    tombstone_age_ms: int = TOMBSTONE_AGE_MS,
    keyless: str = "keep",
    others: str = "keep",
    in_place: bool = False,
    dry_run: bool = False,
    split_bytes: int = SPLIT_BYTES,
    now_ms: int | None = None,
    progress: Progress | None = None,
) -> CompactResult:
    """Leave the last message of each key of ``topics``, in each queue; write the rest into a new store
    ``target``.

    A message with an empty body deletes its key: it goes too when it is older than ``tombstone_age_ms``. The
    last message of a queue is always kept, so that the queue goes on at the same offset. ``keyless``
    messages and the ``others`` topics are kept or dropped as said ("keep", "drop"). Reading the result in
    the order of the log gives the same last value for every key as reading the source.

    ``target`` must not exist. It appears when it is whole; until then the work lies beside it. ``in_place``
    puts the result where the source is, which nobody may have open, and keeps the source beside it.
    """
    started = time.monotonic()
    place = _source(path)
    names = _checked_topics(topics)
    rules = Rules(names, others=_choice("others", others), keyless=_choice("keyless", keyless))
    goal = _target(place, target, in_place, dry_run)
    _refuse_special(place, rules)
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    step = min(split_bytes, place.directory.segment_size)
    splits = [
        NumberedSplit(number, split) for number, split in enumerate(log_splits(place, split_bytes=step))
    ]
    lock = DiskStorage().lock(f"{place.root}/lock") if in_place and not dry_run else None
    try:
        job = _Compaction(spark, place, rules, splits, now - tombstone_age_ms, step, progress)
        with told_errors():
            job.decide()
            if not dry_run:
                _write(job, goal)
            result = job.result(target="" if dry_run else goal, dry_run=dry_run)
        replaced = swap(place.root, goal) if in_place and not dry_run else ""
    finally:
        if lock is not None:
            lock.release()
    found = {**result, "replaced": replaced, "seconds": time.monotonic() - started}
    if replaced:
        found["target"] = place.root
    return CompactResult(**found)


class _Compaction:
    """One run: what is left, where it goes, and the copying."""

    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        rules: Rules,
        splits: list[NumberedSplit],
        removable_before: int,
        split_bytes: int,
        progress: Progress | None,
    ) -> None:
        self.spark = spark
        self.split_bytes = split_bytes
        self.place = place
        self.rules = rules
        self.splits = splits
        self.segment_size = place.directory.segment_size
        self.copies: list[Copy] = []
        self._removable_before = removable_before
        self._progress = progress
        self._survivors: DataFrame | None = None
        self._counts: dict[str, int] = {}

    # -- what is left ------------------------------------------------------------------------------

    def decide(self) -> None:
        """Find the survivors, and their places in the new log."""
        from pyspark.sql import functions as f

        if not self.splits:
            return
        found = split_frame(
            self.spark, self.splits, functools.partial(find_last, rules=self.rules), SCHEMA
        ).persist()
        try:
            with watched(self.spark, "compact: last values", self._progress, len(self.splits)):
                totals = found.where("kind in ('kept', 'seen')").collect()
            # Where two records claim one queue offset, the queue points to the first of them.
            newest = f.max_by(
                f.struct("split", "physicalOffset", "size", "stored", "removable"),
                f.struct("queueOffset", -f.col("physicalOffset")),
            )
            merged = (
                found.where("kind in ('key', 'last')")
                .groupBy("kind", "topic", "queueId", "item")
                .agg(newest.alias("newest"))
                .select("kind", "newest.*")
            )
            dead = f.col("removable") & (f.col("stored") < self._removable_before)
            judged = merged.withColumn("dead", dead).persist()
            counted = judged.where("kind = 'key'").agg(
                f.count("*").alias("keys"),
                f.count_if(f.col("removable") & ~f.col("dead")).alias("tombstones"),
                f.count_if("dead").alias("dropped"),
            )
            keys = counted.collect()[0]
            # The last message of a queue counts when others could replace it: otherwise it is kept anyway.
            self._survivors = (
                judged.where("(kind = 'key' and not dead) or (kind = 'last' and removable)")
                .select("split", "physicalOffset", "size")
                .distinct()
                .persist()
            )
            sums = (
                self._survivors.groupBy("split")
                .agg(f.count("*").alias("rows"), f.sum("size").alias("size"))
                .collect()
            )
            judged.unpersist()
        finally:
            found.unpersist()
        kept_sizes = {row.split: row.size for row in totals if row.kind == "kept"}
        key_sizes = {row.split: row.size for row in sums}
        self._place_splits({n: kept_sizes[n] + key_sizes.get(n, 0) for n in kept_sizes})
        self._counts = {
            "records_before": sum(row.rows for row in totals if row.kind == "seen"),
            "bytes_before": sum(row.size for row in totals if row.kind == "seen"),
            "records_after": sum(row.rows for row in totals if row.kind == "kept")
            + sum(row.rows for row in sums),
            "bytes_after": sum(copy.bytes for copy in self.copies),
            "keys": keys["keys"],
            "tombstones_kept": keys.tombstones,
            "tombstones_dropped": keys.dropped,
        }

    def _place_splits(self, sizes: dict[int, int]) -> None:
        """Put the survivors of the splits one behind the other. Those of a split lie in one file: a split of
        the old log lies in one too, and a file is closed by a blank of eight bytes at least.
        """
        room = self.segment_size - END_FILE_MIN_BLANK_LENGTH
        position = self.segment_size
        for numbered in self.splits:
            size = sizes[numbered.number]
            if size > room:
                raise StoreError(
                    f"{size} bytes of records begin between {numbered.split.begin} and {numbered.split.end},"
                    f" more than a file of {self.segment_size} holds",
                    file=self.place.uri,
                    hint="run `penstock spark verify` on the store",
                )
            if position % self.segment_size + size > room:
                position += self.segment_size - position % self.segment_size
            self.copies.append(Copy(numbered, position, size))
            position += size

    @property
    def segments(self) -> dict[int, int]:
        """Files of the new log by their first offset, with the bytes they hold."""
        used: dict[int, int] = {}
        for copy in self.copies:
            begin = copy.target - copy.target % self.segment_size
            if copy.bytes:
                used[begin] = copy.target - begin + copy.bytes
        return used

    # -- copying -----------------------------------------------------------------------------------

    def copy(self, folder: str) -> None:
        """Write the survivors into the log files in ``folder``, which are there already."""
        from pyspark.sql import functions as f

        if self._survivors is None:
            return
        every = self.spark.range(len(self.copies)).select(
            f.col("id").cast("int").alias("split"), f.lit(-1).cast("long").alias("physicalOffset")
        )
        wanted = (
            self._survivors.select("split", "physicalOffset")
            .union(every)
            .repartition(max(1, len(self.copies)), "split")
            .sortWithinPartitions("split", "physicalOffset")
        )
        task = _CopyTask([pickle.dumps(copy) for copy in self.copies], self.rules, folder, self.segment_size)
        with watched(self.spark, "compact: copy", self._progress, len(self.copies)):
            rows = map_in_arrow(wanted, task, COPIED).collect()
        written = {row.split: row.bytes for row in rows}
        for copy in self.copies:
            if written.get(copy.numbered.number) != copy.bytes:
                raise StoreError(
                    f"{written.get(copy.numbered.number)} bytes instead of {copy.bytes} came from the log"
                    f" behind {copy.numbered.split.begin}",
                    file=self.place.uri,
                    hint="the store was changed meanwhile; compact a backup of it",
                )

    def result(self, *, target: str, dry_run: bool) -> dict[str, Any]:
        counts = dict.fromkeys(
            (
                "records_before",
                "bytes_before",
                "records_after",
                "bytes_after",
                "keys",
                "tombstones_kept",
                "tombstones_dropped",
            ),
            0,
        )
        if self._survivors is not None:
            self._survivors.unpersist()
        return {
            "path": self.place.uri,
            "target": target,
            "topics": list(self.rules.topics),
            "segments": len(self.segments),
            "dry_run": dry_run,
            **counts,
            **self._counts,
        }


class _CopyTask:
    """Copies split by split: the offsets of one come in a row."""

    def __init__(self, copies: list[bytes], rules: Rules, folder: str, segment_size: int) -> None:
        self.copies = copies
        self.rules = rules
        self.folder = folder
        self.segment_size = segment_size

    def __call__(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow as pa

        for number, kept in _by_split(batches):
            copy: Copy = pickle.loads(self.copies[number])
            records, size = copy_survivors(copy, kept, self.rules, self.folder, self.segment_size)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([number], pa.int32()),
                    pa.array([records], pa.int64()),
                    pa.array([size], pa.int64()),
                ],
                names=["split", "records", "bytes"],
            )


def _by_split(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[tuple[int, Any]]:
    """(split, physical offsets) of rows that are sorted by both. An offset of -1 says only that there is the
    split.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    number = -1
    parts: list[Any] = []
    for batch in batches:
        splits, offsets = batch.columns
        for found in pc.unique(splits).to_pylist():
            if found != number and number >= 0:
                yield number, pa.concat_arrays(parts)
            if found != number:
                number, parts = found, []
            own = offsets.filter(pc.equal(splits, found))
            parts.append(own.filter(pc.greater_equal(own, 0)))
    if number >= 0:
        yield number, pa.concat_arrays(parts)


# -- the directory -----------------------------------------------------------------------------------


def _write(job: _Compaction, goal: str) -> None:
    """Make the new store beside its goal, and put it there when it is whole."""
    draft = f"{goal}.compacting-{uuid.uuid4().hex[:8]}"
    storage = DiskStorage()
    log = f"{draft}/commitlog"
    try:
        storage.makedirs(log)
        used = job.segments
        if used:
            for begin in [0, *used]:
                storage.open_sparse(f"{log}/{begin:020d}", job.segment_size, create=True).close()
            job.copy(log)
            close_files(storage, log, used, job.segment_size)
        copy_settings(job.place, draft)
        by_tasks = bool(used) and not has_special_queues(job.place)
        complete_store(
            job.spark, draft, job.place.directory.config, by_tasks=by_tasks, split_bytes=job.split_bytes
        )
        if Path(goal).is_dir():
            Path(goal).rmdir()
        storage.rename(draft, goal)
        storage.sync_dir(str(Path(goal).parent))
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


# -- what was asked for ------------------------------------------------------------------------------


def _source(path: str | os.PathLike[str]) -> Place:
    places = open_places(path)
    if len(places) != 1:
        raise UsageError(f"compaction is of one store, and {path} names {len(places)}", hint="run it on each")
    return places[0]


def _checked_topics(topics: Sequence[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys([topics] if isinstance(topics, str) else topics))
    if not names:
        raise UsageError("no topic to compact", hint="name those whose messages have keys")
    for name in names:
        if is_system_topic(name):
            raise UsageError(f"{name} belongs to the broker: its messages are steps, not values")
    return names


def _choice(name: str, value: str) -> bool:
    if value not in ("keep", "drop"):
        raise UsageError(f"{name} is 'keep' or 'drop', not {value!r}")
    return value == "keep"


def _target(place: Place, target: str | os.PathLike[str] | None, in_place: bool, dry_run: bool) -> str:
    if in_place:
        if target is not None:
            raise UsageError("in place and a target contradict each other")
        if place.kind != "store" or not place.is_local:
            raise UsageError("only a store directory on a disk is compacted in place", hint="name a target")
        if place.directory.is_live:
            raise StoreLocked(
                "a process has the store open", file=place.root, hint="stop it, or name a target"
            )
        return f"{place.root.rstrip('/')}.compacted"
    if target is None:
        if dry_run:
            return ""
        raise UsageError("no target", hint="name a directory that does not exist yet, or ask for in place")
    goal = Path(target).absolute()
    if goal.exists() and (not goal.is_dir() or any(goal.iterdir())):
        raise UsageError(
            f"{goal} is there already", hint="name a directory that does not exist yet, or is empty"
        )
    return str(goal)


def _refuse_special(place: Place, rules: Rules) -> None:
    """What a copy cannot keep whole."""
    exists = place.storage.exists
    if rules.others and exists(f"{place.root}/consumequeue/{TIMER_TOPIC}"):
        raise StoreError(
            "the store has timer messages, which its timer log names by their place in the log",
            file=place.uri,
            hint="drop the other topics, or wait until the timer topic is empty and delete it",
        )
    for topic in rules.topics:
        if exists(f"{place.root}/batchconsumequeue/{topic}"):
            raise UsageError(f"{topic} has batch queues, whose units span offsets: it cannot be compacted")
