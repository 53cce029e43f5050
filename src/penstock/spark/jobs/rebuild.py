"""Consume queues and key index anew from the log, by many tasks: the files that the dispatcher would write.

First pass: a task for each split puts the units of its records at their places and counts index entries. The
counts say which entries go to which index file; second pass: a task for each of these. All of it is built in
``penstock.rebuild`` inside of the store and put in place at the end, folder by folder.

Index files are named after the time of their making. A rebuilt one takes the name of the one it replaces, or
else the time of the messages it begins with: a second run finds everything as it would make it, and changes
nothing.
"""

from __future__ import annotations

import shutil
import struct
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.clock import SystemClock
from penstock.config import StoreConfig
from penstock.errors import StoreError, UsageError
from penstock.message.topic import LMQ_PREFIX
from penstock.spark.jobs.job import Progress, run_splits
from penstock.spark.jobs.rebuildtasks import (
    INDEX_SCHEMA,
    QUEUES_SCHEMA,
    IndexPart,
    QueuePart,
    build_index,
    build_queues,
    check_gap,
)
from penstock.spark.jobs.specialqueues import (
    SPECIAL_SCHEMA,
    SpecialKinds,
    SpecialPart,
    build_special,
    take_built,
)
from penstock.spark.jobs.swap import differing_files, exchange, restore
from penstock.spark.jobs.verify import single_place
from penstock.spark.places import Place
from penstock.spark.planning import LogSplit, log_splits
from penstock.store import position as positions
from penstock.store.consumequeue import BLANK_UNIT
from penstock.store.directory import StoreDirectory
from penstock.store.foreign import foreign_files
from penstock.store.indexfile import HEADER
from penstock.store.indexservice import index_name
from penstock.store.indexverifier import is_index_name
from penstock.store.queueverifier import UNIT, UnitFiles
from penstock.store.sizes import queue_folders
from penstock.store.topictable import TopicTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUILD = "penstock.rebuild"
SPLIT_BYTES = 256 << 20
SPECIAL_TASKS = 8
"""Tasks that build queues of other kinds."""
_PIECE = 3200


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """What was built. ``changed`` are the files, relative to the store, that are not as they were before."""

    path: str
    dry_run: bool
    records: int = 0
    queues: int = 0
    units: int = 0
    index_files: int = 0
    index_entries: int = 0
    changed: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


@dataclass(slots=True)
class _Extent:
    """Offsets of the records of one queue in the log, and where offsets without a record lie between them."""

    first: int
    next: int
    gaps: list[tuple[int, int]] = field(default_factory=list)


def rebuild(
    spark: SparkSession,
    path: str,
    *,
    queues: bool = True,
    index: bool | None = None,
    split_bytes: int = SPLIT_BYTES,
    config: StoreConfig | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> RebuildResult:
    """Rebuild queues and index of a closed store on a file system that every worker can write.

    ``index`` None: if the store has one. Raises StoreLocked when somebody uses the store, StoreError when it
    was not closed, and CorruptRecord when its log is damaged (``penstock store repair`` does both); nothing
    is changed then. A crash leaves the old files, or the new ones. ``dry_run`` builds too, and says what
    differs.

    Batch queues, extension files and light queues are built if the store has any, or if ``config`` says so.

    File sizes are those of the files that are there; where none is left to tell, those of ``config``.
    """
    place = single_place(path)
    if not place.is_local:
        raise UsageError("a store is rebuilt where it can be written", hint="name a directory, not a URI")
    lock = place.storage.lock(f"{place.root}/lock")
    try:
        owned = place.refreshed()
        owned.__dict__["directory"] = _OwnedDirectory(place.storage, place.root, config)
        return _Rebuild(spark, owned, split_bytes, progress).run(queues=queues, index=index, dry_run=dry_run)
    finally:
        lock.release()


class _OwnedDirectory(StoreDirectory):
    """A store whose lock is ours: nobody is at work in it."""

    @cached_property
    def is_live(self) -> bool:
        return False


class _Rebuild:
    def __init__(
        self, spark: SparkSession, place: Place, split_bytes: int, progress: Progress | None
    ) -> None:
        self.spark = spark
        self.place = place
        self.split_bytes = split_bytes
        self.progress = progress
        self.root = Path(place.root)
        self.build = self.root / BUILD
        restore(self.root, self.build)
        self.directory = place.directory
        self.folders = {
            (topic, queue): folder
            for topic, queue, folder in queue_folders(place.storage, self.directory.path("consumequeue"))
        }
        self.kinds = self._special_kinds()
        self.config = self.kinds.config(self.directory.config)
        self.records = 0
        self.counts: list[int] = []
        self.times: list[int] = []

    def run(self, *, queues: bool, index: bool | None, dry_run: bool) -> RebuildResult:
        self._check()
        old_names = self._index_names()
        with_index = bool(old_names) if index is None else index
        splits = log_splits(self.place, split_bytes=self.split_bytes)
        try:
            extents = self._queue_pass(splits)
            entries = self._index_pass(splits, old_names) if with_index else 0
            changed: list[str] = []
            kinds = ["consumequeue"] * queues + ["index"] * with_index
            kinds += ["batchconsumequeue"] * (queues and bool(self.kinds.batch_topics))
            kinds += ["consumequeue_ext"] * (queues and self.kinds.extended)
            for kind in kinds:
                made = self.build / kind
                made.mkdir(parents=True, exist_ok=True)
                different = differing_files(self.root / kind, made)
                changed += [f"{kind}/{name}" for name in different]
                if different and not dry_run:
                    exchange(self.root / kind, made)
                    self.place.storage.sync_dir(str(self.root))
                    if kind == "index":
                        self._record_index(entries)
        finally:
            shutil.rmtree(self.build, ignore_errors=True)
        return RebuildResult(
            str(self.root),
            dry_run,
            self.records,
            len(extents),
            sum(extent.next - extent.first for extent in extents.values()),
            self._file_count(entries),
            entries,
            changed,
        )

    def _special_kinds(self) -> SpecialKinds:
        """Other kinds of queues that the store has, by its folders, its topics and its configuration."""
        storage, config = self.place.storage, self.directory.config
        topics = TopicTable(storage, str(self.root / "config" / "topics.json"), SystemClock())
        topics.load()
        batches = {topic for topic, _, _ in queue_folders(storage, self.directory.path("batchconsumequeue"))}
        return SpecialKinds(
            frozenset(batches | topics.with_attribute("queue.type", "BatchCQ")),
            config.enable_consume_queue_ext or (self.root / "consumequeue_ext").is_dir(),
            config.enable_multi_dispatch or any(topic.startswith(LMQ_PREFIX) for topic, _ in self.folders),
            buckets=SPECIAL_TASKS,
        )

    def _check(self) -> None:
        directory = self.directory
        if not directory.is_closed:
            raise StoreError(
                "the last owner did not close the store",
                file=directory.root,
                hint="open it once, which recovers it, or run `penstock store repair`",
            )
        foreign = next(iter(foreign_files(directory)), None)
        if foreign is not None:
            raise StoreError(f"{foreign[1]}", file=foreign[0], hint="move it away: it would be lost")

    # -- queues ------------------------------------------------------------------------------------

    def _queue_pass(self, splits: list[LogSplit]) -> dict[tuple[str, int], _Extent]:
        parts = [
            QueuePart(number, split, str(self.build), self.config, self.kinds)
            for number, split in enumerate(splits)
        ]
        rows = run_splits(
            self.spark, parts, build_queues, QUEUES_SCHEMA, name="rebuild queues", progress=self.progress
        )
        self.counts, self.times = [0] * len(splits), [0] * len(splits)
        extents: dict[tuple[str, int], _Extent] = {}
        staged = []
        for row in sorted(rows, key=lambda row: int(row["split"])):
            if not row["topic"]:
                staged.append(row["staged"])
                self.records += row["records"]
                self.counts[row["split"]], self.times[row["split"]] = row["entries"], row["last"]
                continue
            key = (row["topic"], row["queueId"])
            known = extents.get(key)
            if known is None:
                extents[key] = _Extent(row["first"], row["next"])
                continue
            if row["first"] < known.next:
                raise StoreError(
                    f"a record says it is {row['first']} of {key[0]}-{key[1]}, where {known.next} was due",
                    file=self.directory.path("commitlog"),
                    hint="run `penstock store verify`, then `penstock store repair`",
                )
            if row["first"] > known.next:
                size = self.directory.config.mapped_file_size_consume_queue
                check_gap(*key, known.next, row["first"], size)
                known.gaps.append((known.next, row["first"]))
            known.next = row["next"]
        if self.kinds.are_staged:
            extents |= self._special_pass(tuple(staged))
        for key, extent in extents.items():
            if key[0] in self.kinds.batch_topics:
                continue
            writer = _Units(self, key)
            for begin, end in extent.gaps:
                writer.blank(begin, end)
            writer.head(extent.first)
        for key in self.folders.keys() - extents.keys():
            _Units(self, key).head(None)
        return extents

    def _special_pass(self, staged: tuple[str, ...]) -> dict[tuple[str, int], _Extent]:
        """Put what the tasks have staged; the queues that got something."""
        parts = [
            SpecialPart(bucket, self.place, str(self.build), staged, self.kinds, self.config)
            for bucket in range(self.kinds.buckets)
        ]
        rows = run_splits(
            self.spark,
            parts,
            build_special,
            SPECIAL_SCHEMA,
            name="rebuild other queues",
            progress=self.progress,
        )
        take_built(self.build, {row["built"] for row in rows})
        return {(row["topic"], row["queueId"]): _Extent(row["first"], row["next"]) for row in rows}

    # -- index -------------------------------------------------------------------------------------

    def _index_names(self) -> list[str]:
        folder = self.root / "index"
        return (
            sorted(file.name for file in folder.iterdir() if is_index_name(file.name))
            if folder.is_dir()
            else []
        )

    def _file_count(self, entries: int) -> int:
        return -(-entries // (self.directory.config.max_index_num - 1))

    def _record_index(self, entries: int) -> None:
        """The next owner believes the index as far as the recorded position goes with it."""
        recorded = positions.load(self.place.storage, str(self.root))
        names = self._index_names()
        if recorded is None or not names:
            return
        head = self.place.storage.pread(str(self.root / "index" / names[-1]), 0, HEADER)
        begin, end, _, _, _, count = struct.unpack(">qqqqii", head)
        place = positions.IndexPosition(names[-1], count, begin, end, recorded.index.log_offset, entries)
        positions.save(self.place.storage, str(self.root), replace(recorded, index=place))

    def _index_pass(self, splits: list[LogSplit], names: list[str]) -> int:
        """Entries 1 to ``max_index_num`` - 1 go to the first file, and so on."""
        total = sum(self.counts)
        each = self.directory.config.max_index_num - 1
        parts = []
        last = ""
        for number in range(self._file_count(total)):
            # From the entry before the file's first on: its time and place begin the file's header.
            wanted = max(0, number * each - 1)
            at, before = 0, 0
            while before + self.counts[at] <= wanted:
                before += self.counts[at]
                at += 1
            name = names[number] if number < len(names) else index_name(self.times[at])
            if name <= last:
                name = f"{int(last) + 1:017d}"
            last = name
            path = str(self.build / "index" / name)
            skip = number * each - before if number else 0
            parts.append(IndexPart(number, tuple(splits[at:]), skip, path, self.config))
        rows = run_splits(
            self.spark, parts, build_index, INDEX_SCHEMA, name="rebuild index", progress=self.progress
        )
        made = sum(row["entries"] for row in rows)
        if made != total:
            raise StoreError(
                f"{made} index entries were written, {total} were counted: the log changed meanwhile",
                file=self.directory.path("commitlog"),
            )
        return total


class _Units:
    """The units of one queue that no record of the log gives."""

    def __init__(self, job: _Rebuild, key: tuple[str, int]) -> None:
        self.storage = job.place.storage
        self.folder = job.build / "consumequeue" / key[0] / str(key[1])
        self.old = UnitFiles(self.storage, job.folders.get(key, ""))
        self.size = job.directory.config.mapped_file_size_consume_queue
        self.log_begin = job.directory.min_physical_offset

    def head(self, first: int | None) -> None:
        """Units before the first record: those of messages that were deleted from the log stay as they are.

        Without a record all units of the queue are such. Where there was none, the first file has blanks.
        """
        per_file = self.size // UNIT
        begin = self.old.begin if self.old.files else None
        if first is None:
            first = self._old_end() if begin is not None else 0
        if begin is None or begin > first:
            begin = first - first % per_file
        number = begin
        while number < first:
            count = min(first - number, _PIECE)
            data = bytearray(self.old.read(number, count).ljust(count * UNIT, b"\0"))
            for at in range(0, len(data), UNIT):
                if not self._is_old(data[at : at + UNIT]):
                    data[at : at + UNIT] = BLANK_UNIT
            self._write(number, bytes(data))
            number += count

    def blank(self, begin: int, end: int) -> None:
        """Offsets that have no record."""
        while begin < end:
            count = min(end - begin, _PIECE)
            self._write(begin, BLANK_UNIT * count)
            begin += count

    def _is_old(self, unit: bytes | bytearray) -> bool:
        physical, size = (
            int.from_bytes(unit[:8], "big", signed=True),
            int.from_bytes(unit[8:12], "big", signed=True),
        )
        return bytes(unit) == BLANK_UNIT or (physical >= 0 and size > 0 and physical + size <= self.log_begin)

    def _old_end(self) -> int:
        number = self.old.begin
        while data := self.old.read(number, _PIECE):
            for at in range(0, len(data), UNIT):
                if not self._is_old(data[at : at + UNIT]):
                    return number + at // UNIT
            number += len(data) // UNIT
        return number

    def _write(self, number: int, data: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        place = number * UNIT
        while data:
            file_from = place - place % self.size
            room = file_from + self.size - place
            file = self.storage.open_sparse(str(self.folder / f"{file_from:020d}"), self.size, create=True)
            try:
                file.write(place - file_from, data[:room])
                file.sync()
            finally:
                file.close()
            place, data = place + len(data[:room]), data[room:]
