"""The face of an open store: put, get, query, look up, follow."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from types import TracebackType
from typing import Any, NoReturn

import msgspec


from penstock._native.append import HOOK, PutResult, PutResults, refusal
from penstock._native.reading import GetResult, UnitReader, matching
from penstock._native.record import string_hash
from penstock._native.stored import Slab, StoredMessage
from penstock.clock import Clock, SystemClock
from penstock.config import StoreConfig
from penstock.errors import FlushFailed, ForkedProcess, PenstockError, StoreClosed, StoreError, StoreReadOnly
from penstock.files.failure import store_error
from penstock.files.storage import Storage
from penstock.message import Message
from penstock.message.ids import decode_message_id
from penstock.message.properties import delete_property
from penstock.store.batchconsumequeue import BatchConsumeQueue
from penstock.store.consumequeue import UNIT, ConsumeQueue
from penstock.store.dispatcher import wait_visible
from penstock.store.flushmanager import FlushManager
from penstock.store.following import Follower, GroupReader
from penstock.store.innerput import needs_offset, put_with_offset
from penstock.store.queuetable import QueueTable
from penstock.store.recovery import RecoveryReport
from penstock.store.schedules import Schedules
from penstock.store.stats import StoreStats
from penstock.store.upkeep import Parts, Upkeep

MAX_BYTES = 128 << 20
CRC32 = b"__CRC32#"

_open_stores: weakref.WeakSet[MessageStore] = weakref.WeakSet()


def tag_codes(expression: str | None) -> list[int] | None:
    """Hashes of the tags in ``a || b``; None when everything matches."""
    if expression is None or expression.strip() in ("", "*"):
        return None
    return [string_hash(tag.encode()) for part in expression.split("||") if (tag := part.strip())]


class MessageStore:
    """A store directory that this process owns. Made by ``open_store``; a context manager.

    Every method may be called from any thread. ``report`` says what opening found and did.
    """

    def __init__(
        self, parts: Parts, config: StoreConfig, report: RecoveryReport, lock: Any, *, background: bool
    ) -> None:
        self._parts = parts
        self._log = parts.commit_log
        self._queues: QueueTable = parts.queues
        self._dispatcher = parts.dispatcher
        self._lock = lock
        self._background = background
        self.config = config
        self.clock: Clock = parts.commit_log.clock
        self.storage: Storage = parts.commit_log.storage
        self.path = parts.root
        self.report = report
        self._closed = False
        self._disk_full = False
        self.failure: PenstockError | None = None
        """Why nothing can be written any more: a sync that failed. None while all is well."""
        self._appender = parts.commit_log.appender
        self._appender.busy_after_ms = config.os_page_cache_busy_timeout_ms
        self._log.encoder.hooks = True
        self._system_clock = isinstance(self.clock, SystemClock)
        self._put = self._appender.put if self._system_clock else self._put_with_clock
        self._reader = unit_reader(config)
        self.flush_manager = FlushManager(self._log, self._on_flush_failure)
        self._upkeep = Upkeep(parts, self._on_disk)
        self.schedules = Schedules(self)
        if background:
            self._log.start()
            self.flush_manager.start()
            self._dispatcher.start()
            self._upkeep.start()
        self._upkeep.sync_positions()
        self.schedules.resume()
        _open_stores.add(self)

    # -- put ---------------------------------------------------------------------------------------

    def put(self, message: Message) -> PutResult:
        """Store one message. With sync flush it is on disk when this returns with PUT_OK.

        What is wrong with the message is a status of the result; what is wrong with the store is raised:
        ``DiskFull`` (may be tried again), ``FlushFailed`` (final), ``StoreClosed``.
        """
        try:
            result = self._put(message)
        except OSError as error:
            raise self._write_error(error) from error
        if result is HOOK:
            return self._put_hooked(message, wait=True)
        return result  # type: ignore[no-any-return]

    def put_raw(self, message: Message) -> PutResult:
        """As ``put``, without looking at what the properties ask for (delay, timer)."""
        try:
            return self._put_plain(message, wait=True)
        except OSError as error:
            raise self._write_error(error) from error

    def put_many(self, messages: Iterable[Message], *, whole: bool = False) -> PutResults | list[PutResult]:
        """Store messages of any topics: one lock, one wait for the disk, a result each.

        A message that is refused leaves the others alone. ``whole``: all in one log file, as a client batch is.
        """
        batch = messages if isinstance(messages, list) else list(messages)
        try:
            results = self._appender.put_many(batch, self._now(), False, True, whole)
        except OSError as error:
            raise self._write_error(error) from error
        if results is HOOK:
            return self._put_many_hooked(batch)
        return results  # type: ignore[no-any-return]

    async def put_async(self, message: Message) -> PutResult:
        """As ``put``; waits for the disk without holding up the event loop. Many may wait at once."""
        try:
            result = (
                self._put(message, -1, False, False)
                if self._system_clock
                else self._put_with_clock(message, wait=False)
            )
            if result is HOOK:
                result = self._put_hooked(message, wait=False)
            if self._log.sync_flush and message.wait and result.ok:
                if self._log.flusher.memory_backed:
                    self._log.flusher.wait(result.end_offset, self._appender.sync_timeout)
                else:
                    await self.flush_manager.group_commit.future(result.end_offset)
        except OSError as error:
            raise self._write_error(error) from error
        return result  # type: ignore[no-any-return]

    def _now(self) -> int:
        return -1 if self._system_clock else self.clock.now_ms()

    def _put_with_clock(self, message: Message, wait: bool = True) -> Any:
        return self._appender.put(message, self.clock.now_ms(), False, wait)

    def _put_plain(self, message: Message, *, wait: bool) -> PutResult:
        if needs_offset(message, self.config, self._queues.batch_topics):
            return put_with_offset(self._log, self._queues, message, self._now(), wait)
        if self.config.enabled_append_prop_crc and message.raw_properties and CRC32 in message.raw_properties:
            kept = delete_property(message.raw_properties, CRC32.decode())
            message = msgspec.structs.replace(message, raw_properties=kept)
        return self._appender.put(message, self._now(), True, wait)  # type: ignore[no-any-return]

    def _put_hooked(self, message: Message, *, wait: bool) -> PutResult:
        answer = self.schedules.hook(message)
        if isinstance(answer, str):
            return refusal(answer, "the message asks for a delivery that is not possible")  # type: ignore[no-any-return]
        try:
            return self._put_plain(answer, wait=wait)
        except OSError as error:
            raise self._write_error(error) from error

    def _put_many_hooked(self, batch: list[Message]) -> list[PutResult]:
        """Messages with properties of their own: each is looked at, then all are waited for at once."""
        results = [self._put_hooked(message, wait=False) for message in batch]
        ends = [r.end_offset for r, m in zip(results, batch, strict=True) if r.ok and m.wait]
        if self._log.sync_flush and ends:
            try:
                done = self._log.flusher.wait(max(ends), self._appender.sync_timeout)
            except OSError as error:
                raise self._write_error(error) from error
            for result, message in zip(results, batch, strict=True):
                if not done and result.ok and message.wait:
                    result.timed_out()
        return results

    def _write_error(self, error: OSError) -> PenstockError:
        if self._log.flusher.error:
            self._on_flush_failure(error)
            assert self.failure is not None
            return self.failure
        return store_error(error, "writing the log")

    def _on_flush_failure(self, error: OSError) -> None:
        """The first failed sync is final: the kernel may have dropped the pages."""
        if self.failure is None:
            self.failure = FlushFailed(
                f"a sync of the log failed: {error}",
                file=self._log.folder,
                hint="nothing more is accepted; check the disk, then open the store again",
            )
            self._put = self._refuse_failed
            self._appender.unavailable = "a sync of the log failed"

    def _refuse_failed(self, *_: Any, **__: Any) -> NoReturn:
        raise StoreReadOnly(
            "a sync of the log failed: nothing is accepted any more", file=self._log.folder
        ) from self.failure

    def _on_disk(self, full: bool, used: float) -> None:
        """Refuse writing while the disk is nearly full; accept it again as soon as it is not (fault S13)."""
        if full != self._disk_full:
            self._disk_full = full
            self._appender.unavailable = f"the disk is {used:.0%} full" if full else None

    # -- get ---------------------------------------------------------------------------------------

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
        """Messages of one queue from ``offset`` on, with RocketMQ's status and next offset (format section 14)."""
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

        ``begin`` and ``end`` are store times. At most ``max`` places of the index are looked at (newest first).
        """
        self._check_open()
        if self._parts.index is None:
            return []
        limit = self.config.default_query_max_num if max is None else max
        until = self.clock.now_ms() + 1000 if end is None else end
        offsets = self._parts.index.query_offset(topic, key, limit, begin, until, index_type)
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

    def lookup(self, place: int | str) -> StoredMessage | None:
        """The message at a physical offset, or with an offset message id; None if there is none."""
        self._check_open()
        offset = decode_message_id(place)[1] if isinstance(place, str) else place
        return self._log.view.message(offset)

    # -- offsets -----------------------------------------------------------------------------------

    def queues(self) -> list[tuple[str, int]]:
        """All queues that hold or held messages."""
        return sorted((q.topic, q.queue_id) for q in self._queues if q.max_offset > 0)

    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.queues()})

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
        """The queue offset for a store time. ``lower``: the first not before it; ``upper``: the last not after it."""
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

        ``offset``: earliest, latest, or a number for each queue. Ends when ``wait`` is false and nothing is left, after
        ``timeout`` seconds without a message, or when the store is closed.
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
        if not self._background:
            self.dispatch()
        return wait_visible(self._dispatcher, target, timeout, lambda: not self._closed)

    # -- by hand -----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Everything put so far is on disk when this returns."""
        self._check_open()
        try:
            self._log.flush()
        except OSError as error:
            raise self._write_error(error) from error

    def dispatch(self) -> bool:
        """Make everything readable that may be; a running store does that by itself."""
        self._check_open()
        return self._dispatcher.advance()

    def sync_positions(self) -> None:
        """Queues and index are on disk as far as they go, and recovery will start there."""
        self._check_open()
        self._upkeep.sync_positions()

    def upkeep(self) -> None:
        """Do now what a running store does now and then: clean, persist offsets, sync queues."""
        self._check_open()
        self._upkeep.run_once()

    def clean(self, *, manually: bool = True) -> int:
        """Remove expired log files now; how many."""
        self._check_open()
        if manually:
            self._parts.clean.execute_delete_files_manually()
        return self._parts.clean.run()

    def backup(self, target: str | os.PathLike[str]) -> Any:
        """Copy the store as it is at ``flushed_where`` into a new directory, while it is being written."""
        from penstock.store.backup import backup_live

        self._check_open()
        return backup_live(self, os.fspath(target))

    def make_batch_topic(self, topic: str) -> None:
        """Keep this topic in batch queues from now on (``queue.type=BatchCQ``); it must be new."""
        if topic in self._queues.batch_topics:
            return
        if any(q.topic == topic and q.native.next_offset for q in self._queues):
            raise StoreError(f"the topic {topic!r} has simple queues already")
        self._parts.topics.set_attribute(topic, "queue.type", "BatchCQ")
        self._queues.forget(topic)
        self._log.encoder.forget_queues()
        self._queues.batch_topics.add(topic)

    def stats(self) -> StoreStats:
        return StoreStats.of(self)

    # -- life --------------------------------------------------------------------------------------

    @property
    def background(self) -> bool:
        """Whether threads of the store do what is due; without them its owner steps it by hand."""
        return self._background

    @property
    def closed(self) -> bool:
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed", file=self.path)

    def _refuse_closed(self, *_: Any, **__: Any) -> NoReturn:
        raise StoreClosed("the store is closed", file=self.path)

    def _refuse_forked(self, *_: Any, **__: Any) -> NoReturn:
        raise ForkedProcess(
            "this store was opened by the parent process", file=self.path, hint="open it in the child"
        )

    def close(self) -> None:
        """Flush everything and leave the directory clean. May be called twice."""
        if self._closed:
            return
        self.schedules.stop()
        self._put = self._refuse_closed
        self._appender.unavailable = "the store is closed"
        self._upkeep.shutdown()
        self.flush_manager.shutdown()
        self._dispatcher.stop()
        error: Exception | None = None
        try:
            if self.failure is None:
                self._log.flush()
                self._dispatcher.advance()
                end = self._log.flushed_where
                if self._dispatcher.position == end:
                    self._upkeep.sync_positions(clean_end=end)
                    self._remove_abort()
            self._parts.consumer_offsets.persist()
        except (OSError, StoreError) as failed:
            error = failed
        self._closed = True
        self._dispatcher.arrived.notify()
        self._release()
        if isinstance(error, OSError):
            raise self._write_error(error) from error
        if error is not None:
            raise error

    def _remove_abort(self) -> None:
        try:
            self.storage.unlink(str(PurePath(self.path) / "abort"))
        except FileNotFoundError:
            pass

    def _release(self) -> None:
        self._log.shutdown()
        self._queues.close()
        if self._parts.index is not None:
            self._parts.index.close()
        self._lock.release()
        _open_stores.discard(self)

    def abandon(self) -> None:
        """Let go of everything without flushing or tidying, as a killed process would. For tests."""
        if self._closed:
            return
        self._closed = True
        self._put = self._refuse_closed
        self._appender.unavailable = "the store is closed"
        self._upkeep.shutdown()
        self.schedules.abandon()
        self.flush_manager.shutdown()
        self._dispatcher.stop()
        self._release()

    def _after_fork(self) -> None:
        self._put = self._refuse_forked
        self.get = self._refuse_forked  # type: ignore[method-assign]
        self._check_open = self._refuse_forked  # type: ignore[method-assign]
        self.put_many = self._refuse_forked  # type: ignore[method-assign]

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.min_physical_offset}..{self.max_physical_offset}"
        return f"<MessageStore {self.path} {state}>"


def unit_reader(config: StoreConfig) -> UnitReader:
    """The native get loop with a store's limits."""
    reader = UnitReader()
    reader.filter_bytes = config.max_filter_message_size
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    reader.memory_limit = memory * config.access_message_in_memory_max_ratio // 100
    reader.memory_bytes = config.max_transfer_bytes_on_message_in_memory
    reader.memory_count = config.max_transfer_count_on_message_in_memory
    reader.disk_bytes = config.max_transfer_bytes_on_message_in_disk
    reader.disk_count = config.max_transfer_count_on_message_in_disk
    reader.log_file_size = config.mapped_file_size_commit_log
    return reader


def get_messages(
    reader: UnitReader,
    queue: ConsumeQueue | BatchConsumeQueue,
    view: Any,
    offset: int,
    count: int,
    codes: list[int] | None,
    max_bytes: int,
    resolve: Any = None,
    fetch: Any = None,
    end: int | None = None,
) -> GetResult:
    """Section 14.1: the conditions in their order, then the loop over units. ``view`` or ``fetch`` gives the records."""
    low, high = queue.min_offset, queue.max_offset
    if high == 0:
        return GetResult("NO_MESSAGE_IN_QUEUE", 0, low, high)
    if offset < low:
        return GetResult("OFFSET_TOO_SMALL", low, low, high)
    if offset == high:
        return GetResult("OFFSET_OVERFLOW_ONE", offset, low, high)
    if offset > high:
        return GetResult("OFFSET_OVERFLOW_BADLY", high, low, high)
    last = view.end if end is None else end
    if isinstance(queue, BatchConsumeQueue):
        units = queue.units_from(offset)
        if units is None:
            return GetResult("OFFSET_FOUND_NULL", offset, low, high)
        return reader.read(
            Slab(units),
            0,
            len(units),
            46,
            view,
            fetch,
            offset,
            offset,
            low,
            high,
            count,
            max_bytes,
            last,
            codes,
            resolve,
        )
    place = queue.slab_from(offset)
    if place is None:
        return GetResult("OFFSET_FOUND_NULL", queue.roll_next_file(offset), low, high)
    slab, begin, stop = place
    return reader.read(
        slab,
        begin,
        stop,
        UNIT,
        view,
        fetch,
        offset,
        offset,
        low,
        high,
        count,
        max_bytes,
        last,
        codes,
        resolve,
    )


def _forked() -> None:
    for store in list(_open_stores):
        store._after_fork()


os.register_at_fork(after_in_child=_forked)

__all__ = ["MessageStore", "get_messages", "tag_codes", "unit_reader"]
