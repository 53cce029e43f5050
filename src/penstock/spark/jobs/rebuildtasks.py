"""What the tasks of a rebuild do: records of a split become queue units, entries of a range one index file.

Both are done by the dispatcher's compiled part, so they are what it would have written. Units go to their
place in the queue's files: two attempts of a task write the same bytes there.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from penstock._native import dispatch as native
from penstock._native.index import Index
from penstock._native.queue import Queue
from penstock.config import StoreConfig
from penstock.errors import CorruptRecord, StoreError
from penstock.files.failure import store_error
from penstock.spark.batches import log_runs
from penstock.spark.jobs.specialqueues import PartQueues, PartSpecial, SpecialKinds, Staging
from penstock.spark.planning import LogSplit
from penstock.store.consumequeue import UNIT, ConsumeQueue
from penstock.store.indexfile import IndexFile, index_size
from penstock.store.queuetable import storable_queue
from penstock.store.scan import Run
from penstock.store.specialdispatch import FAR

QUEUES_SCHEMA = (
    "split int, topic string, queueId int, first long, next long, records long, entries long, last long,"
    " staged string"
)
INDEX_SCHEMA = "number int, entries long"
_COUNTED_AT_ONCE = 1 << 16
_EVERYTHING = 1 << 62


@dataclass(frozen=True)
class QueuePart:
    """A split whose units go to the queues below ``build``; its index entries are counted."""

    number: int
    split: LogSplit
    build: str
    config: StoreConfig
    kinds: SpecialKinds


@dataclass(frozen=True)
class IndexPart:
    """One index file: entries from the splits, without the first ``skip``, until it is full."""

    number: int
    splits: tuple[LogSplit, ...]
    skip: int
    path: str
    config: StoreConfig


class _Full(Exception):
    """The index file has all it can hold."""


class RecordDispatch(ABC):
    """Dispatches runs of records. Subclasses say where units and entries go."""

    def __init__(self, config: StoreConfig) -> None:
        self.native = native.Dispatch(list(config.delay_levels_ms), config.enable_multi_dispatch)
        self.native.indexing = True

    def run(self, run: Run) -> None:
        """Dispatch whole records. Raises CorruptRecord for one that is not right."""
        dispatch, end = self.native, run.base + run.end
        if dispatch.position != run.base:
            dispatch.seek(run.base)
        while (code := dispatch.run(run.view, run.base, end, True)) != native.DONE:
            self._help(code, run)

    @abstractmethod
    def make_queue(self, topic: str, queue_id: int) -> Queue:
        """The queue of the current record, met for the first time."""

    @abstractmethod
    def needs_file(self, queue: Queue) -> None:
        """Attach the file that the queue's staged units go to."""

    @abstractmethod
    def needs_gap(self, queue: Queue, offset: int) -> None:
        """Fill the offsets before this one, which have no record."""

    @abstractmethod
    def needs_index(self) -> None:
        """Give a place for entries: there is none yet, or it is full."""

    @abstractmethod
    def special(self, record: memoryview, position: int) -> None:
        """See to the units of a record that are not those of a plain queue."""

    def _help(self, code: int, run: Run) -> None:
        dispatch = self.native
        at = dispatch.position - run.base
        if code == native.NEED_QUEUE:
            begin, length = dispatch.record_topic_span
            topic = bytes(run.view[at + begin : at + begin + length]).decode("utf-8", "replace")
            if not storable_queue(topic, dispatch.record_queue_id) or len(topic.encode()) != length:
                raise self._corrupt(run, f"the queue {topic!r}-{dispatch.record_queue_id} is not allowed")
            dispatch.add_queue(self.make_queue(topic, dispatch.record_queue_id))
        elif code == native.NEED_FILE:
            self.needs_file(dispatch.needed_queue)
        elif code == native.NEED_GAP:
            self.needs_gap(dispatch.needed_queue, dispatch.record_queue_offset)
        elif code == native.INDEX_FULL:
            self.needs_index()
        elif code == native.SPECIAL:
            self.special(run.view[at:], dispatch.position)
            dispatch.queue_part_done()
        elif code == native.WRITE_FAILED:
            raise store_error(OSError(dispatch.error, "write"), "writing queue units")
        else:
            raise self._corrupt(run, dispatch.bad_reason)

    def _corrupt(self, run: Run, found: str) -> CorruptRecord:
        return CorruptRecord(
            run.file.path,
            self.native.position - run.file.begin,
            found=found,
            hint="`penstock store repair` mends the log and rebuilds queues and index",
        )


class _QueueDispatch(RecordDispatch):
    """Units into files, entries only counted."""

    def __init__(self, part: QueuePart) -> None:
        super().__init__(part.config)
        self.staging = Staging(part.build, part.kinds)
        self.queues = PartQueues(part.split.place, part.build, part.config, self.staging, part.kinds)
        self._special = PartSpecial(self.queues, part.config, self.staging, self._begin)
        self._is_staged = part.config.enable_consume_queue_ext
        self.firsts: dict[tuple[str, int], int] = {}
        self._counted = 0
        self._scratch: Index | None = None

    def make_queue(self, topic: str, queue_id: int) -> Queue:
        if self._is_staged or topic in self.queues.batch_topics:
            return self.queues.get(topic, queue_id).native
        return self._begin(topic, queue_id, self.native.record_queue_offset).native

    def _begin(self, topic: str, queue_id: int, first: int) -> ConsumeQueue:
        """A queue whose units are put here, from its first record of the split on."""
        queue = self.queues.get(topic, queue_id)
        assert isinstance(queue, ConsumeQueue)
        if (topic, queue_id) not in self.firsts:
            if first < 0 or first * UNIT >= _EVERYTHING:
                raise StoreError(f"a record of {topic}-{queue_id} has the queue offset {first}")
            # What lies before its first record here is another split's, or the driver's.
            queue.native.max_logic = queue.native.min_logic = first * UNIT
            self.firsts[topic, queue_id] = first
        return queue

    def special(self, record: memoryview, position: int) -> None:
        self._special.put(record, position)

    def needs_file(self, queue: Queue) -> None:
        self.queues.attach(self._queue(queue))

    def needs_gap(self, queue: Queue, offset: int) -> None:
        found = self._queue(queue)
        check_gap(found.topic, found.queue_id, found.max_offset, offset, found.file_size)
        found.fill_gap(offset)

    def needs_index(self) -> None:
        if self._scratch is not None:
            self._counted += self._scratch.count - 1
        self._scratch = Index(bytearray(index_size(1, _COUNTED_AT_ONCE)), 1, _COUNTED_AT_ONCE)
        self.native.use_index(self._scratch)

    @property
    def entries(self) -> int:
        return self._counted + (self._scratch.count - 1 if self._scratch is not None else 0)

    def close(self) -> None:
        """Everything is on disk."""
        self.staging.close()
        self.queues.flush()
        self.queues.close()

    def _queue(self, queue: Queue) -> ConsumeQueue:
        found = self.queues.get(queue.topic, queue.queue_id)
        assert isinstance(found, ConsumeQueue)
        return found


class _IndexDispatch(RecordDispatch):
    """Entries into one file, units nowhere."""

    def __init__(self, part: IndexPart, make: Callable[[], IndexFile]) -> None:
        super().__init__(part.config)
        self.file: IndexFile | None = None
        self._make = make
        self._skipped: Index | None = None
        if part.skip:
            # The entries before it are taken by an index that nobody reads: its end seeds the file's begin.
            self._skipped = Index(bytearray(index_size(1, part.skip + 1)), 1, part.skip + 1)
            self.native.use_index(self._skipped)

    def make_queue(self, topic: str, queue_id: int) -> Queue:
        queue = Queue(topic, queue_id, UNIT)
        queue.max_physical = _EVERYTHING  # every unit is there already
        return queue

    def special(self, record: memoryview, position: int) -> None:
        """Its units are there already."""

    def needs_file(self, queue: Queue) -> None:
        raise StoreError(f"a unit of {queue.topic}-{queue.queue_id} where only entries are written")

    def needs_gap(self, queue: Queue, offset: int) -> None:
        self.needs_file(queue)

    def needs_index(self) -> None:
        if self.file is not None:
            raise _Full
        self.file = self._make()
        if self._skipped is not None:
            self.file.native.seed(self._skipped.end_timestamp, self._skipped.end_offset)
        self.native.use_index(self.file.native)


def build_queues(part: QueuePart) -> Iterator[tuple[Any, ...]]:
    """The work of a task of the first pass: rows of :data:`QUEUES_SCHEMA`; topic "" for the split itself."""
    dispatch = _QueueDispatch(part)
    try:
        for run in log_runs(part.split, check_crc=False):
            dispatch.run(run)
    finally:
        dispatch.close()
    for (topic, queue_id), first in dispatch.firsts.items():
        end = dispatch.queues.get(topic, queue_id).max_offset
        yield part.number, topic, queue_id, first, end, 0, 0, 0, ""
    done, staged = dispatch.native, dispatch.staging.name
    yield part.number, "", 0, 0, 0, done.records, dispatch.entries, done.last_timestamp, staged


def build_index(part: IndexPart) -> Iterator[tuple[int, int]]:
    """The work of one task of the second pass: a row of :data:`INDEX_SCHEMA`."""
    storage = part.splits[0].place.storage
    fresh = f"{part.path}.{uuid.uuid4().hex[:12]}"
    slots, capacity = part.config.max_hash_slot_num, part.config.max_index_num
    storage.makedirs(str(PurePath(part.path).parent))
    dispatch = _IndexDispatch(part, lambda: IndexFile(storage, fresh, slots, capacity, create=True))
    with suppress(_Full):  # the rest is the next file's
        for split in part.splits:
            for run in log_runs(split, check_crc=False):
                dispatch.run(run)
    if dispatch.file is None:
        yield part.number, 0
        return
    entries = dispatch.file.native.count - 1
    dispatch.file.flush()
    dispatch.native.use_index(None)
    dispatch.file.close()
    storage.rename(fresh, part.path)
    yield part.number, entries


def check_gap(topic: str, queue_id: int, end: int, offset: int, file_size: int) -> None:
    """Refuse a queue offset that is no gap left by lost records, but damage."""
    if (offset - end) * UNIT > file_size * FAR:
        raise StoreError(
            f"a record of {topic}-{queue_id} has the queue offset {offset}, far behind {end}",
            hint="run `penstock store verify`",
        )
