"""A store that somebody else owns: no lock is taken, nothing is written, every byte comes from a read.

Visible is what the queues point to, each record checked. Files may vanish at any time; their messages are
reported as removed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any

from penstock._native.reading import GetResult
from penstock._native.record import walk
from penstock._native.signal import Signal
from penstock._native.stored import Slab, StoredMessage, message_at
from penstock.clock import Clock, SystemClock
from penstock.config import StoreConfig
from penstock.errors import StoreClosed
from penstock.files.disk import DiskStorage
from penstock.files.storage import Storage
from penstock.format.record import BLANK_MAGIC_CODE
from penstock.message.ids import decode_message_id
from penstock.store.batchconsumequeue import BatchConsumeQueue
from penstock.store.consumequeue import UNIT, ConsumeQueue
from penstock.store.consumeroffset import consumer_offsets
from penstock.store.following import Follower
from penstock.store.getting import MAX_BYTES, tag_codes, unit_reader
from penstock.store.indexreader import IndexReader
from penstock.store.logfolders import LogPlaces, log_folders
from penstock.store.queuetable import AnyQueue, QueueTable
from penstock.store.queueunits import read_units
from penstock.store.sizes import require_store, survey

RECORD_LIMIT = 256 << 20
UNITS_AT_ONCE = 1024
LOOK_BACK = 100_000


class ReadOnlyStore:
    """The reading half of ``MessageStore``'s face, for directories that others write or wrote."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        config: StoreConfig | None = None,
        storage: Storage | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.path = str(Path(path).absolute()) if storage is None else os.fspath(path)
        self.storage: Storage = storage if storage is not None else DiskStorage()
        self.clock: Clock = clock or SystemClock()
        require_store(self.storage, self.path)
        self.config, self.faults = survey(self.storage, self.path, config or StoreConfig())
        self._log = LogPlaces(self.storage, log_folders(self.storage, self.path, self.config))
        self._file_size = self.config.mapped_file_size_commit_log
        self._queues = QueueTable(self.storage, self.path, self.config, writable=False)
        self._index = IndexReader(self.storage, str(PurePath(self.path) / "index"), self.config)
        self._reader = unit_reader(self.config)
        self._guard = threading.RLock()
        self._closed = False
        self._polled_first = self._polled_end = -1
        self.arrived = Signal()
        light = True if self.config.enable_lmq else None
        self.consumer_offsets = consumer_offsets(self.storage, self.path, light=light, clock=self.clock)
        self.consumer_offsets.load()
        self.faults += self._queues.load()
        for queue in self._queues:
            self._drop_dangling(queue)
            queue.correct_min_offset(self.min_physical_offset)

    # -- the log -----------------------------------------------------------------------------------

    def _read(self, offset: int, size: int) -> bytes:
        """Bytes of one log file; fewer, or none, when they are not there."""
        file_from = offset - offset % self._file_size
        size = min(size, file_from + self._file_size - offset)
        if offset < 0 or size <= 0 or size > RECORD_LIMIT:
            return b""
        try:
            return self.storage.pread(self._log.path(file_from), offset - file_from, size)
        except FileNotFoundError:
            return b""

    def _fetch(self, offset: int, size: int) -> tuple[Slab, int] | None:
        data = self._read(offset, size)
        if len(data) != size or walk(data, 0, size, offset, check_torn=True).records != 1:
            return None
        return Slab(data), 0

    def _store_time(self, offset: int, size: int) -> int:
        head = self._read(offset, 76) if size >= 76 else b""
        if len(head) < 76:
            return -1
        at = 68 if head[39] & 0x10 else 56
        return int.from_bytes(head[at : at + 8], "big", signed=True)

    def _drop_dangling(self, queue: AnyQueue) -> None:
        """Units behind the end of the log are leftovers of a recovery that shortened it: they do not
        count.
        """
        if not isinstance(queue, ConsumeQueue):
            return
        logic, end = queue.native.max_logic, queue.native.max_physical
        stop = max(queue.native.min_logic, logic - LOOK_BACK * UNIT)
        while logic > stop:
            unit = queue.unit_at(logic - UNIT)
            if unit is None or unit.physical_offset < self.min_physical_offset:
                break
            if unit.is_blank or self._fetch(unit.physical_offset, unit.size) is not None:
                break
            logic, end = logic - UNIT, -1
        if (
            end < 0
            and logic > stop
            and (last := queue.unit_at(logic - UNIT)) is not None
            and not last.is_blank
        ):
            end = last.physical_offset + last.size
        queue.native.max_logic, queue.native.max_physical = logic, end

    # -- reading -----------------------------------------------------------------------------------

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count: int = 32,
        *,
        tags: str | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> GetResult:
        """As ``MessageStore.get``."""
        self._check_open()
        with self._guard:
            queue = self._queues.find(topic, queue_id)
            if queue is not None:
                self._refresh(queue)
            if queue is None or queue.max_offset == 0:
                return GetResult("NO_MESSAGE_IN_QUEUE", 0, 0, 0)
            low, high = queue.min_offset, queue.max_offset
            if offset < low:
                return GetResult("OFFSET_TOO_SMALL", low, low, high)
            if offset >= high:
                status = "OFFSET_OVERFLOW_ONE" if offset == high else "OFFSET_OVERFLOW_BADLY"
                return GetResult(status, high, low, high)
            units, size = self._units(queue, offset)
        if not units:
            following = queue.roll_next_file(offset) if isinstance(queue, ConsumeQueue) else offset
            return GetResult("OFFSET_FOUND_NULL", following, low, high)
        return self._reader.read(
            Slab(units),
            0,
            len(units),
            size,
            None,
            self._fetch,
            offset,
            offset,
            low,
            high,
            count,
            max_bytes,
            self.max_physical_offset,
            tag_codes(tags),
            self._resolve(queue, tags),
        )

    def _units(self, queue: AnyQueue, offset: int) -> tuple[bytes, int]:
        if isinstance(queue, BatchConsumeQueue):
            view = queue.units_from(offset)
            return (bytes(view) if view is not None else b""), 46
        end = min(queue.native.max_logic, (offset + UNITS_AT_ONCE) * UNIT)
        return queue.read(offset * UNIT, end - offset * UNIT), UNIT

    def _resolve(self, queue: AnyQueue, tags: str | None) -> Any:
        key = (queue.topic, queue.queue_id)
        if tags is None or key not in self._queues.extensions:
            return None
        ext = self._queues.extensions[key]

        def resolve(address: int) -> int | None:
            unit = ext.get(address)
            return unit.tags_code if unit is not None else None

        return resolve

    def _refresh(self, queue: AnyQueue) -> None:
        """Take in what the writer added, and forget what it removed."""
        if isinstance(queue, ConsumeQueue):
            before = queue.native.max_logic
            queue.load()
            minimum = queue.native.min_logic
            queue.recover()
            queue.native.min_logic = max(minimum, queue.native.min_logic)
            if queue.native.max_logic != before:
                self._drop_dangling(queue)
        else:
            queue.load()
            queue.recover()
        queue.correct_min_offset(self.min_physical_offset)

    def refresh(self) -> None:
        """Look again which queues there are."""
        with self._guard:
            self._queues.load()
            first = self.min_physical_offset
            for queue in self._queues:
                self._drop_dangling(queue)
                queue.correct_min_offset(first)

    def poll(self) -> bool:
        """Take in what was added to the known queues, and forget what was removed; False if that is nothing.

        While nothing is appended to the log that is one small read, else one for each queue: fit to be called
        many times a second. A log that was cut shorter is noticed by ``refresh``.
        """
        with self._guard:
            first = self._polled_first
            if first < 0 or not self.storage.exists(self._log.path(first)):
                first = self.min_physical_offset
            elif self._is_quiet():
                return False
            # The end as it was before the look: a queue that grew behind our back is looked at again.
            end = self._queues.max_physical_offset
            for queue in self._queues:
                if isinstance(queue, ConsumeQueue) and first == self._polled_first and not queue.has_grown():
                    continue
                self._refresh(queue)
            self._polled_first, self._polled_end = first, end
            return True

    def _is_quiet(self) -> bool:
        """Whether nothing lies behind the last record that the queues knew: then none of them has grown."""
        end = self._polled_end
        head = self._read(end, 8)
        if int.from_bytes(head[4:], "big") == BLANK_MAGIC_CODE:
            end += self._file_size - end % self._file_size
            head = self._read(end, 8)
        return head == bytes(8) or (not head and end % self._file_size == 0)

    def extents(self) -> dict[tuple[str, int], tuple[int, int]]:
        """First offset and end of every queue that holds or held messages, as of the last look."""
        return {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in self._queues if q.max_offset > 0}

    def units(self, topic: str, queue_id: int, offset: int, count: int) -> tuple[bytes, int]:
        """Units from the one that holds ``offset`` on, at most ``count``, and the size of one.

        Fewer at the end of a file; none where the queue has none.
        """
        queue = self._queues.find(topic, queue_id)
        return read_units(queue, offset, count) if queue is not None else (b"", UNIT)

    def query(
        self,
        topic: str,
        key: str,
        *,
        max: int | None = None,
        begin: int = 0,
        end: int | None = None,
        index_type: str | None = None,
    ) -> list[StoredMessage]:
        """As ``MessageStore.query``."""
        limit = self.config.default_query_max_num if max is None else max
        until = 2**63 - 1 if end is None else end
        found = []
        for offset in sorted(set(self.query_offsets(topic, key, limit, begin, until, index_type))):
            message = self.lookup(offset)
            if message is None or message.topic != topic:
                continue
            words = (
                [message.tags]
                if index_type == "T"
                else [message.unique_key, *(message.keys or "").split(" ")]
            )
            if key in words:
                found.append(message)
        return found

    def query_offsets(
        self, topic: str, key: str, limit: int, begin: int, end: int, index_type: str | None = None
    ) -> list[int]:
        """As ``MessageStore.query_offsets``."""
        self._check_open()
        return self._index.query_offset(topic, key, limit, begin, end, index_type)

    def lookup(self, place: int | str) -> StoredMessage | None:
        """As ``MessageStore.lookup``."""
        self._check_open()
        offset = decode_message_id(place)[1] if isinstance(place, str) else place
        head = self._read(offset, 8)
        size = int.from_bytes(head[:4], "big") if len(head) == 8 else 0
        fetched = self._fetch(offset, size) if 0 < size <= RECORD_LIMIT else None
        return message_at(*fetched) if fetched is not None else None

    # -- offsets -----------------------------------------------------------------------------------

    def queues(self) -> list[tuple[str, int]]:
        return sorted((q.topic, q.queue_id) for q in self._queues if q.max_offset > 0)

    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.queues()})

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.find(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        with self._guard:
            queue = self._queues.find(topic, queue_id)
            if queue is None:
                return 0
            self._refresh(queue)
            return queue.max_offset

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: str = "lower") -> int:
        with self._guard:
            queue = self._queues.find(topic, queue_id)
            if queue is None:
                return 0
            self._refresh(queue)
            return queue.offset_by_time(timestamp, boundary, self._store_time, self.min_physical_offset)

    def queue_unit(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        queue = self._queues.find(topic, queue_id)
        unit = queue.unit(offset) if queue is not None else None
        return (unit.physical_offset, unit.size, unit.tags_code) if unit is not None else None

    @property
    def min_physical_offset(self) -> int:
        files = self._log.look()
        return files[0] if files else -1

    @property
    def max_physical_offset(self) -> int:
        """End of the last record that a queue knows."""
        return max(0, self._queues.max_physical_offset)

    def follow(
        self,
        topic: str,
        queue_id: int | None = None,
        *,
        offset: int | str = "earliest",
        wait: bool = True,
        timeout: float | None = None,
    ) -> Iterator[StoredMessage]:
        """As ``MessageStore.follow``; new messages are looked for every second at least."""
        return Follower(self, topic, queue_id, offset, wait=wait, timeout=timeout)

    # -- life --------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed", file=self.path)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.arrived.notify()
            self._queues.close()

    def __enter__(self) -> ReadOnlyStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ReadOnlyStore {self.path}{' closed' if self._closed else ''}>"
