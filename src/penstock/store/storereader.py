"""The reading half of the store's face."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from typing import Any

from penstock._native.filtering import Program
from penstock._native.reading import GetResult, UnitReader, matching
from penstock._native.stored import StoredMessage
from penstock.errors import StoreClosed
from penstock.format.extunit import ExtUnit
from penstock.message.ids import decode_message_id
from penstock.store.coldread import SHORT_SCAN, ColdReads
from penstock.store.consumequeue import UNIT, ConsumeQueue
from penstock.store.dispatcher import wait_visible
from penstock.store.following import Follower, GroupReader
from penstock.store.getting import MAX_BYTES, bulk_reader, get_messages, tag_codes, unit_reader
from penstock.store.upkeep import Parts

FOREVER = (1 << 63) - 1


class StoreReader:
    """Gets, finds and follows messages. Any thread may."""

    def __init__(self, parts: Parts) -> None:
        self.config = parts.commit_log.config
        self.clock = parts.commit_log.clock
        self.path = parts.root
        self._parts = parts
        self._log = parts.commit_log
        self._queues = parts.queues
        self._dispatcher = parts.dispatcher
        self._reader = unit_reader(self.config)
        self._bulk_reader = bulk_reader(self.config)
        self._closed = False

    @cached_property
    def cold_reads(self) -> ColdReads:
        """Which gets would wait for the disk, for callers who must not."""
        return ColdReads(self._log, self._queues)

    @cached_property
    def _short_reader(self) -> UnitReader:
        reader = unit_reader(self.config)
        reader.filter_bytes = SHORT_SCAN * UNIT
        return reader

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def background(self) -> bool:
        """Whether threads of the store do what is due; without them its owner steps it by hand."""
        return True

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed", file=self.path)

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
        """Messages of one queue from ``offset`` on, with RocketMQ's status and next offset (format section
        14).
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or self._closed:
            self._check_open()
            return GetResult("NO_MESSAGE_IN_QUEUE", 0, 0, 0)
        if tags is None and type(queue) is ConsumeQueue:
            found = self._reader.get(queue.native, queue.slab, self._log.view, offset, count, max_bytes)
            if found is not None:
                return found
        codes, resolve = tag_codes(tags), self._resolve(queue, tags)
        return get_messages(self._reader, queue, self._log.view, offset, count, codes, max_bytes, resolve)

    def get_bulk(self, topic: str, queue_id: int, offset: int, count: int) -> GetResult:
        """As ``get``, up to the bytes that one get gives but not its number of messages: for those who read
        whole queues.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or self._closed:
            self._check_open()
            return GetResult("NO_MESSAGE_IN_QUEUE", 0, 0, 0)
        reader, view = self._bulk_reader, self._log.view
        if type(queue) is ConsumeQueue:
            found = reader.get(queue.native, queue.slab, view, offset, count, MAX_BYTES)
            if found is not None:
                return found
        return get_messages(reader, queue, view, offset, count, None, MAX_BYTES)

    def get_tagged(
        self, topic: str, queue_id: int, offset: int, count: int, codes: Collection[int]
    ) -> GetResult:
        """As ``get``, for messages whose tags have one of these hashes. At most 64 of them."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or self._closed:
            self._check_open()
            return GetResult("NO_MESSAGE_IN_QUEUE", 0, 0, 0)
        resolve = self._resolve(queue, "")
        view = self._log.view
        return get_messages(self._reader, queue, view, offset, count, list(codes), MAX_BYTES, resolve)

    def get_filtered(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count: int,
        program: Program,
        admit: Callable[[int, ExtUnit], bool] | None = None,
        *,
        short: bool = False,
    ) -> GetResult:
        """As ``get``, for messages of whose properties a filter is true.

        ``admit`` is asked first, with a place in the log and what an extension file has of the message.
        ``short`` looks at no more units than ``cold_reads`` looks after.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or self._closed:
            self._check_open()
            return GetResult("NO_MESSAGE_IN_QUEUE", 0, 0, 0)
        view = self._log.view
        reader = self._short_reader if short else self._reader
        admitted = None
        if admit is not None and self.config.enable_consume_queue_ext:
            admitted = self._admission(queue, admit)
        elif type(queue) is ConsumeQueue:
            found = reader.get(queue.native, queue.slab, view, offset, count, MAX_BYTES, program)
            if found is not None:
                return found
        return get_messages(
            reader, queue, view, offset, count, None, MAX_BYTES, program=program, admit=admitted
        )

    def _admission(self, queue: Any, admit: Callable[[int, ExtUnit], bool]) -> Callable[[int, int], bool]:
        ext = self._queues.extension(queue.topic, queue.queue_id)

        def admitted(physical_offset: int, address: int) -> bool:
            unit = ext.get(address)
            return unit is None or admit(physical_offset, unit)

        return admitted

    def _resolve(self, queue: Any, tags: str | None) -> Any:
        if tags is None or not self.config.enable_consume_queue_ext:
            return None
        ext = self._queues.extension(queue.topic, queue.queue_id)

        def resolve(address: int) -> int | None:
            unit = ext.get(address)
            return unit.tags_code if unit is not None else None

        return resolve

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
        """Messages with this key or unique key, in log order; ``index_type="T"`` asks for tags.

        ``begin`` and ``end`` are store times. At most ``max`` places of the index are looked at (newest
        first).
        """
        self._check_open()
        if self._parts.index is None:
            return []
        limit = self.config.default_query_max_num if max is None else max
        # Without a limit no time is compared at all: the clock may have been set back, or a time be damaged.
        since, until = begin if begin > 0 else -FOREVER, FOREVER if end is None else end
        offsets = self._parts.index.query_offset(topic, key, limit, since, until, index_type)
        return (
            matching(self._log.view, offsets, topic.encode(), key.encode(), index_type == "T")
            if offsets
            else []
        )

    def query_offsets(
        self, topic: str, key: str, limit: int, begin: int, end: int, index_type: str | None = None
    ) -> list[int]:
        """The raw answer of the index, newest first: equal hashes of other keys included."""
        self._check_open()
        return (
            self._parts.index.query_offset(topic, key, limit, begin, end, index_type)
            if self._parts.index
            else []
        )

    @property
    def index_last_update(self) -> tuple[int, int]:
        """Store time and end of the newest message that can be found by key; zeros when there is none."""
        return self._parts.index.last_update if self._parts.index is not None else (0, 0)

    def lookup(self, place: int | str) -> StoredMessage | None:
        """The message at a physical offset, or with an offset message id; None if there is none."""
        self._check_open()
        offset = decode_message_id(place)[1] if isinstance(place, str) else place
        return self._log.view.message(offset)

    def records_at(self, places: Iterable[tuple[int, int]]) -> list[memoryview | None]:
        """The bytes of the log at each offset and size; None where so much cannot be read."""
        self._check_open()
        read = self._log.view.read
        return [read(offset, size) for offset, size in places]

    # -- offsets -----------------------------------------------------------------------------------

    def queues(self) -> list[tuple[str, int]]:
        """All queues that hold or held messages."""
        return sorted((q.topic, q.queue_id) for q in self._queues if q.max_offset > 0)

    @property
    def light_queues(self) -> int:
        """How many light queues there are."""
        return self._queues.light_count

    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.queues()})

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that were written to, whether that can be read yet or not."""
        return sorted(q.queue_id for q in self._queues if q.topic == topic and q.native.next_offset > 0)

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.find(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """One past the last message that can be read."""
        queue = self._queues.find(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset of the next put, messages that are not yet readable included."""
        queue = self._queues.find(topic, queue_id)
        return queue.native.next_offset if queue is not None else 0

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: str = "lower") -> int:
        """The queue offset for a store time. ``lower``: the first not before it; ``upper``: the last not
        after it.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        view = self._log.view
        return queue.offset_by_time(timestamp, boundary, view.store_timestamp, self._log.min_offset)

    def queue_unit(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code of a queue offset, or None outside of the queue."""
        queue = self._queues.find(topic, queue_id)
        unit = queue.unit(offset) if queue is not None else None
        return (unit.physical_offset, unit.size, unit.tags_code) if unit is not None else None

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether there is a message at this queue offset, near enough to the log's end to be cached."""
        unit = self.queue_unit(topic, queue_id, offset)
        return unit is not None and self._log.max_offset - unit[0] <= self._reader.memory_limit

    def store_timestamp_at(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message at this queue offset was stored; -1 when there is none."""
        unit = self.queue_unit(topic, queue_id, offset)
        return self._log.view.store_timestamp(unit[0], unit[1]) if unit is not None else -1

    @property
    def min_physical_offset(self) -> int:
        return self._log.min_offset

    @property
    def max_physical_offset(self) -> int:
        return self._log.max_offset

    @property
    def flushed_where(self) -> int:
        """Everything before this place in the log is on disk."""
        return self._log.flushed_where

    @property
    def committed_where(self) -> int:
        """Everything before it has left the write buffers of the transient pool."""
        return self._log.committed_where

    @property
    def reput_from_offset(self) -> int:
        """Everything before it is in the queues and the index."""
        return self._dispatcher.position

    # -- follow ------------------------------------------------------------------------------------

    def follow(
        self,
        topic: str,
        queue_id: int | None = None,
        *,
        offset: int | str = "earliest",
        wait: bool = True,
        timeout: float | None = None,
    ) -> Iterator[StoredMessage]:
        """Iterate over a topic, all queues or one, waiting for new messages.

        ``offset``: earliest, latest, or a number for each queue. Ends when ``wait`` is false and nothing is
        left, after ``timeout`` seconds without a message, or when the store is closed.
        """
        return Follower(self, topic, queue_id, offset, wait=wait, timeout=timeout)

    def reader(
        self,
        topic: str,
        group: str,
        *,
        wait: bool = True,
        timeout: float | None = None,
        start: str = "earliest",
    ) -> GroupReader:
        """As ``follow``, with the group's offsets kept in ``consumerOffset.json``: moving on acknowledges."""
        return GroupReader(self, topic, group, wait=wait, timeout=timeout, start=start)

    @property
    def consumer_offsets(self) -> Any:
        return self._parts.consumer_offsets

    @property
    def arrived(self) -> Any:
        """Notified when messages became readable."""
        return self._dispatcher.arrived

    def wait_visible(self, offset: int | None = None, timeout: float = 10.0) -> bool:
        """Wait until everything before ``offset`` (default: all that was put) is readable and findable."""
        target = self._log.appender.end_offset if offset is None else offset
        if not self.background:
            self._dispatcher.advance()
        return wait_visible(self._dispatcher, target, timeout, lambda: not self._closed)
