"""The face of an open store: put, get, query, look up, follow; and its life."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from pathlib import PurePath
from types import TracebackType
from typing import Any, NoReturn

from penstock._native.prepared import Prepared
from penstock.config import StoreConfig
from penstock.errors import ForkedProcess, StoreClosed, StoreError
from penstock.files.storage import Storage
from penstock.store.consumequeueunits import UNIT
from penstock.store.flushmanager import FlushManager
from penstock.store.recovery import RecoveryReport
from penstock.store.schedules import Schedules
from penstock.store.specialdispatch import FilterBitmap
from penstock.store.stats import StoreStats
from penstock.store.storereader import StoreReader
from penstock.store.storewriter import StoreWriter
from penstock.store.upkeep import Parts, Upkeep

_open_stores: weakref.WeakSet[MessageStore] = weakref.WeakSet()


class MessageStore(StoreWriter, StoreReader):
    """A store directory that this process owns. Made by ``open_store``; a context manager.

    Every method may be called from any thread. ``report`` says what opening found and did.
    """

    def __init__(
        self, parts: Parts, config: StoreConfig, report: RecoveryReport, lock: Any, *, background: bool
    ) -> None:
        self.schedules = Schedules(self)
        StoreWriter.__init__(self, parts, self.schedules.hook)
        StoreReader.__init__(self, parts)
        self.storage: Storage = parts.commit_log.storage
        self.report = report
        self._lock = lock
        self._background = background
        self.flush_manager = FlushManager(self._log, self._on_flush_failure)
        self._upkeep = Upkeep(parts, self._on_disk, self._on_flush_failure)
        self._upkeep.sync_positions()  # may fail, so before there are threads to end
        if background:
            self._log.start()
            self.flush_manager.start()
            self._dispatcher.start()
            self._upkeep.start()
        self.schedules.resume()
        _open_stores.add(self)

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

    def prepare_dispatch(
        self,
        prepared: Prepared,
        records: memoryview,
        slots: memoryview,
        queues: Sequence[tuple[str, int]],
        notes: memoryview | None = None,
    ) -> None:
        """Work out what the dispatcher will make of records, as ``put_records`` left them, for
        ``dispatch_prepared``. Nothing becomes readable by it. One thread at a time, any one. ``notes`` of the
        encoder that made the records spare most of the work.
        """
        prepared.add(self._dispatcher.native, records, slots, self.native_queues(queues), notes)

    def dispatch_prepared(self, prepared: Prepared) -> None:
        """As ``dispatch``, for records of which the work is prepared: the same files, sooner."""
        self._check_open()
        self._dispatcher.advance_prepared(prepared)
        self._dispatcher.advance()

    def dispatch_by_hand(self) -> None:
        """End the dispatcher's own thread: from now on messages become readable by ``keep_up``."""
        self._check_open()
        self._dispatcher.stop()

    def use_filter_bitmaps(self, make: FilterBitmap) -> None:
        """Have ``make`` give the filter bitmaps of messages that become readable from now on."""
        self._dispatcher.use_filter_bitmaps(make)

    @property
    def undispatched(self) -> int:
        """Bytes of the log that may be readable and are not yet."""
        return self._dispatcher.behind

    def keep_up(self) -> bool:
        """As ``dispatch``, with pages made ready ahead: what the dispatcher's thread does with each step."""
        moved = self.dispatch()
        self._log.prepare_ahead()
        return moved

    def sync_positions(self) -> None:
        """Queues and index are on disk as far as they go, and recovery will start there."""
        self._check_open()
        try:
            self._upkeep.sync_positions()
        except OSError as error:
            raise self._write_error(error) from error

    def upkeep(self) -> None:
        """Do now what a running store does now and then: clean, persist offsets, sync queues."""
        self._check_open()
        self._upkeep.run_once()

    def clean(self, *, manually: bool = True) -> int:
        """Remove expired log files now; how many."""
        self._check_open()
        if manually:
            self._parts.clean.execute_delete_files_manually()
        return self._upkeep.clean()

    def backup(self, target: str | os.PathLike[str]) -> Any:
        """Copy the store as it is at ``flushed_where`` into a new directory, while it is being written."""
        from penstock.store.backup import backup_live

        self._check_open()
        return backup_live(self, os.fspath(target))

    def hide_before(self, topic: str, queue_id: int, offset: int) -> None:
        """Let a queue begin at this offset, as if what is before had expired. Until the store is closed."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return
        with self._dispatcher.standing():  # cleaning moves the same number
            begin = min(offset, queue.max_offset) * UNIT
            queue.native.min_logic = max(queue.native.min_logic, begin)

    def remove_expired_queues(self, topic: str) -> int:
        """Remove the files of those queues of a topic that point at nothing in the log; how many queues.

        For topics that nobody writes to any more. Queues that the log could bring back stay.
        """
        self._check_open()
        with self._dispatcher.standing():
            count = self._queues.remove_expired(topic, self._log.min_offset)
        if count:
            self.sync_positions()
        return count

    def make_batch_topic(self, topic: str, *, save: bool = True) -> None:
        """Keep this topic in batch queues from now on (``queue.type=BatchCQ``); it must be new.

        ``save`` False leaves ``topics.json`` to the caller: a broker keeps that file itself.
        """
        if topic in self._queues.batch_topics:
            return
        if any(q.topic == topic and q.native.next_offset for q in self._queues):
            raise StoreError(f"the topic {topic!r} has simple queues already")
        if save:
            self._parts.topics.set_attribute(topic, "queue.type", "BatchCQ")
        self._queues.forget(topic)
        self._log.encoder.forget_queues()
        self._queues.batch_topics.add(topic)

    @property
    def free_buffers(self) -> int | None:
        """Write buffers of the transient pool that no log file has; None without a pool."""
        return None if self._log.pool is None else self._log.pool.available

    def stats(self) -> StoreStats:
        return StoreStats.of(self)

    # -- life --------------------------------------------------------------------------------------

    @property
    def background(self) -> bool:
        """Whether threads of the store do what is due; without them its owner steps it by hand."""
        return self._background

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
        self.flush_manager.group_commit.append_gathered()
        self._put = self._put_waiting = self._refuse_closed
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
        self._put = self._put_waiting = self._refuse_closed
        self._appender.unavailable = "the store is closed"
        self._upkeep.shutdown()
        self.schedules.abandon()
        self.flush_manager.shutdown()
        self._dispatcher.stop()
        self._release()

    def _after_fork(self) -> None:
        self._put = self._put_waiting = self._refuse_forked
        self._check_open = self._refuse_forked  # type: ignore[method-assign]
        for name in ("get", "put_raw", "put_many", "put_async"):
            setattr(self, name, self._refuse_forked)
        # The files belong to the parent: closing here must neither write nor tidy them.
        self._closed = True

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.min_physical_offset}..{self.max_physical_offset}"
        return f"<MessageStore {self.path} {state}>"


def _forked() -> None:
    for store in list(_open_stores):
        store._after_fork()


os.register_at_fork(after_in_child=_forked)
