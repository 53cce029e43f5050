"""Units whose place depends on those before them: of batch queues, and of queues with extension files.

A task that reads a split does not know how many there were before it. So it stages what its records ask for,
by queue; then a task for some queues at a time puts all of it, in the order of the log, with the classes that
the dispatcher uses. Light queues need none of this: their records say which unit is theirs.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from penstock.config import StoreConfig
from penstock.format.dispatch import light_queues
from penstock.format.record import RecordFields
from penstock.spark.places import Place
from penstock.store.batchconsumequeue import BatchConsumeQueue
from penstock.store.consumequeue import UNIT, ConsumeQueue
from penstock.store.queuetable import QueueTable, legal_queue
from penstock.store.specialdispatch import SpecialDispatch

SPECIAL_SCHEMA = "bucket int, built string, topic string, queueId int, kind string, first long, next long"
STAGED = "staged"
_AT_ONCE = 10_000


class StagedUnit(NamedTuple):
    """What one record asks for in one queue. ``messages``: of a batch, 0 in a queue with extension."""

    topic: str
    queue_id: int
    physical_offset: int
    total_size: int
    code: int
    store_timestamp: int
    queue_offset: int
    messages: int


@dataclass(frozen=True)
class SpecialKinds:
    """Which queues of a store are of a special kind."""

    batch_topics: frozenset[str] = frozenset()
    extended: bool = False
    light: bool = False
    buckets: int = 1

    @property
    def are_staged(self) -> bool:
        return bool(self.batch_topics) or self.extended

    def config(self, given: StoreConfig) -> StoreConfig:
        """The configuration that lets a dispatcher make them."""
        return given.replace(enable_consume_queue_ext=self.extended, enable_multi_dispatch=self.light)


@dataclass(frozen=True)
class SpecialPart:
    """Some of the queues: the staged units of one bucket, split by split."""

    bucket: int
    place: Place
    build: str
    staged: tuple[str, ...]
    kinds: SpecialKinds
    config: StoreConfig


class Staging:
    """What one attempt of a task stages: a file for each bucket that gets something."""

    def __init__(self, build: str, kinds: SpecialKinds) -> None:
        self.name = uuid.uuid4().hex
        self._folder = Path(build) / STAGED
        self._buckets = kinds.buckets
        self._held: dict[int, list[StagedUnit]] = {}

    def add(self, unit: StagedUnit) -> None:
        bucket = crc32(f"{unit.topic}-{unit.queue_id}".encode()) % self._buckets
        held = self._held.setdefault(bucket, [])
        held.append(unit)
        if len(held) >= _AT_ONCE:
            self._write(bucket, held)

    def close(self) -> None:
        """Everything that was added is in its file."""
        for bucket, held in self._held.items():
            self._write(bucket, held)

    def _write(self, bucket: int, held: list[StagedUnit]) -> None:
        if held:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / f"{self.name}-{bucket}").open("ab") as file:
                pickle.dump([tuple(unit) for unit in held], file)
            held.clear()


def staged_units(build: str, name: str, bucket: int) -> Iterator[StagedUnit]:
    """What an attempt staged for a bucket, in order."""
    path = Path(build) / STAGED / f"{name}-{bucket}"
    if not path.exists():
        return
    with path.open("rb") as file:
        while True:
            try:
                units = pickle.load(file)
            except EOFError:
                return
            yield from (StagedUnit(*unit) for unit in units)


class _StagedBatches(BatchConsumeQueue):
    """A batch queue as a task sees it: its units are put later."""

    staging: Staging

    def put(
        self,
        physical: int,
        size: int,
        tags_code: int,
        store_timestamp: int,
        base_offset: int,
        batch_size: int,
    ) -> bool:
        queue = (self.topic, self.queue_id)
        self.staging.add(
            StagedUnit(*queue, physical, size, tags_code, store_timestamp, base_offset, batch_size)
        )
        return True


class PartQueues(QueueTable):
    """The queues that the records of a split belong to."""

    def __init__(self, place: Place, build: str, config: StoreConfig, staging: Staging, kinds: SpecialKinds):
        super().__init__(place.storage, build, config)
        self.batch_topics |= kinds.batch_topics
        self._staging = staging

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue | BatchConsumeQueue:
        if topic not in self.batch_topics:
            return super()._make(topic, queue_id)
        folder = f"{self.batch_folder}/{topic}/{queue_id}"
        queue = _StagedBatches(
            self.storage, folder, topic, queue_id, self.config.mapper_file_size_batch_consume_queue
        )
        queue.staging = self._staging
        return queue


class PartSpecial(SpecialDispatch):
    """Units of records of a split: staged, or where they say themselves.

    ``begin`` makes a queue known whose first record here has the given offset.
    """

    def __init__(
        self,
        queues: QueueTable,
        config: StoreConfig,
        staging: Staging,
        begin: Callable[[str, int, int], ConsumeQueue],
    ) -> None:
        super().__init__(queues, config)
        self._staging = staging
        self._begin = begin

    def _put_extended(self, queue: ConsumeQueue, fields: RecordFields, code: int) -> None:
        place = (fields.physical_offset, fields.total_size)
        self._staging.add(
            StagedUnit(
                queue.topic, queue.queue_id, *place, code, fields.store_timestamp, fields.queue_offset, 0
            )
        )

    def _put_light(self, fields: RecordFields, code: int) -> None:
        for name, queue_id, offset in light_queues(fields):
            if not legal_queue(name, queue_id) or name in self.queues.batch_topics:
                continue
            queue = self._begin(name, queue_id, offset)
            queue.put_message_position_info(fields.physical_offset, fields.total_size, code, offset)
            queue.detach()


def build_special(part: SpecialPart) -> Iterator[tuple[Any, ...]]:
    """The work of a task: rows of :data:`SPECIAL_SCHEMA`, one for each queue.

    Each attempt builds in a folder of its own; the driver takes the one that it is told of.
    """
    built = f"{part.build}/special-{uuid.uuid4().hex}"
    queues = QueueTable(part.place.storage, built, part.config)
    queues.batch_topics |= part.kinds.batch_topics
    special = SpecialDispatch(queues, part.config)
    firsts: dict[tuple[str, int], int] = {}
    try:
        for name in part.staged:
            for unit in staged_units(part.build, name, part.bucket):
                queue = queues.get(unit.topic, unit.queue_id)
                key = (unit.topic, unit.queue_id)
                if isinstance(queue, BatchConsumeQueue):
                    firsts.setdefault(key, unit.queue_offset)
                    queue.put(*unit[2:])
                    continue
                if key not in firsts:
                    firsts[key] = unit.queue_offset
                    # Units before it, of messages that retention removed, are the driver's.
                    queue.native.max_logic = queue.native.min_logic = unit.queue_offset * UNIT
                special._put_extended(queue, _fields(unit), unit.code)
                queue.detach()
        queues.flush()
        for key, first in firsts.items():
            found = queues.get(*key)
            kind = "batch" if isinstance(found, BatchConsumeQueue) else "extended"
            yield part.bucket, Path(built).name, *key, kind, first, found.max_offset
    finally:
        queues.close()


def _fields(unit: StagedUnit) -> RecordFields:
    """A record as far as its queue units need it."""
    return RecordFields(
        total_size=unit.total_size,
        magic=0,
        body_crc=0,
        queue_id=unit.queue_id,
        flag=0,
        queue_offset=unit.queue_offset,
        physical_offset=unit.physical_offset,
        sys_flag=0,
        born_timestamp=0,
        born_host="",
        store_timestamp=unit.store_timestamp,
        store_host="",
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"",
        topic_bytes=unit.topic.encode(),
        properties_bytes=b"",
    )


def take_built(build: Path, built: set[str]) -> None:
    """Move what the attempts that count have built to where everything is built."""
    for name in sorted(built):
        for folder in sorted((build / name).glob("*/*/*")):
            target = build / folder.relative_to(build / name)
            target.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(target)
