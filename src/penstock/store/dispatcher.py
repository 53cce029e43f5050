"""Follows the log and tells queues and index where each record is (RocketMQ's ReputMessageService, format
section 8).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from penstock._native import dispatch as native
from penstock._native.prepared import Prepared
from penstock._native.putresult import PutResults
from penstock._native.signal import Signal
from penstock._native.units import record_header
from penstock.errors import CorruptRecord, StoreError
from penstock.files.failure import store_error
from penstock.format.record import BLANK_MAGIC_CODE, END_FILE_MIN_BLANK_LENGTH
from penstock.store.commitlog import CommitLog
from penstock.store.consumequeue import ConsumeQueue
from penstock.store.indexservice import IndexService
from penstock.store.queuetable import QueueTable, storable_queue
from penstock.store.specialdispatch import FilterBitmap, SpecialDispatch

log = logging.getLogger("penstock.store")

Fault = Callable[[StoreError], object]

_HELPED = (native.NEED_FILE, native.INDEX_FULL, native.WRITE_FAILED)
MOST_READY = 16_384
"""Records of batches of which is known, at most, what they ask for: about 100 bytes each."""


class Dispatcher:
    """Turns records into queue units and index entries. One thread at a time: ``lock`` sees to it.

    ``arrived`` is notified when messages became visible. A failed write leaves everything where it was; the
    next ``advance`` tries again, so space that returns is enough to go on.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: QueueTable,
        index: IndexService | None,
        *,
        on_fault: Fault | None = None,
    ) -> None:
        config = commit_log.config
        self.commit_log = commit_log
        self.queues = queues
        self.index = index
        self.arrived = Signal()
        self.lock = threading.RLock()
        self.error: StoreError | None = None
        """Why dispatching stands still at the moment; None while it does not."""
        self.gaps_filled = 0
        self.native = native.Dispatch(list(config.delay_levels_ms), config.enable_multi_dispatch)
        self.native.indexing = index is not None
        self._special = SpecialDispatch(queues, config)
        self._on_fault = on_fault
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._wanted = 0
        self._ready = Prepared(MOST_READY)

    # -- set-up ------------------------------------------------------------------------------------

    def add_queues(self) -> None:
        """Make all queues known that were loaded from disk."""
        for queue in self.queues:
            self.native.add_queue(queue.native)

    @property
    def position(self) -> int:
        """Offset of the next record to dispatch (RocketMQ's reputFromOffset)."""
        return self.native.position

    def use_filter_bitmaps(self, make: FilterBitmap) -> None:
        """Have ``make`` give the bitmaps of the records that are dispatched from now on."""
        self._special.filter_bitmap = make

    @property
    def behind(self) -> int:
        """Bytes that may be dispatched and are not yet."""
        return max(0, self.commit_log.confirm_offset - self.native.position)

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Hold the dispatcher still, so that positions, queues and index agree with each other."""
        self._wanted += 1
        try:
            with self.lock:
                yield
        finally:
            self._wanted -= 1

    # -- dispatching -------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Dispatch all that may be visible now. True if anything was. Raises StoreError when the disk
        refuses.
        """
        with self.lock:
            before = self.native.position
            self._advance(naps=0)
            moved = self.native.position > before
        if moved:
            self.arrived.notify()
        return moved

    def appended_batch(
        self, results: PutResults, sys_flag: int, body: bytes | bytearray | memoryview
    ) -> None:
        """A client's batch was appended: its records need not be read again when they may be visible.

        That is for those who dispatch by hand, soon; a thread of its own is behind the log most of the time.
        """
        if self._thread is None:
            self._ready.add_batch(self.native, results, sys_flag, body)

    def _run_ready(self) -> None:
        """Dispatch what is known of batches. Where something else lies between, the rest is read."""
        ready = self._ready
        if not all(map(self.native.follows, ready.queues)):
            ready.clear()  # a queue is new, or another of its name
            return
        while (code := ready.run(self.native, self.commit_log.confirm_offset)) in _HELPED:
            self.help(code, memoryview(b""), "")
        if not ready.left:
            ready.clear()

    def advance_prepared(self, prepared: Prepared) -> None:
        """Dispatch the records of which ``prepared`` knows what they ask for, as far as they may be visible.

        What it does not know of, or what gets in its way, the next ``advance`` sees to. Raises as that does.
        """
        with self.lock:
            for queue in prepared.queues:
                if not self.native.knows(queue.topic, queue.queue_id):
                    self.native.add_queue(self.queues.get(queue.topic, queue.queue_id).native)
            while self._advance_stretch(prepared):
                pass
        self.arrived.notify()

    def _advance_stretch(self, prepared: Prepared) -> bool:
        """Dispatch records that follow each other in one file; whether another file begins behind them."""
        end = self.commit_log.confirm_offset
        with self._putting_keys(prepared, end):
            while (code := prepared.run(self.native, end)) != native.DONE:
                if code not in _HELPED:
                    break
                self.help(code, memoryview(b""), "")
        return code == native.BLANK and self._pass_blank()

    @contextmanager
    def _putting_keys(self, prepared: Prepared, end: int) -> Iterator[None]:
        """Fill the index beside what is done meanwhile, if its file has room for all of a stretch.

        Until it ends, what is visible may not be in the index yet.
        """
        begin = max(self.native.index_from, self.native.position)
        end, keys = prepared.stretch(self.native.position, end)
        if self.index is None or not self.native.indexing or not self.native.is_settled or not keys:
            yield
            return
        self._guarded(self.use_index, "making an index file")
        file = self.index.files[-1].native
        if keys > file.room:
            yield
            return
        self.native.index_from = max(begin, end)
        self.native.use_index(None)  # one thread at a time: the run has nothing for it
        with ThreadPoolExecutor(1, "index") as beside:
            putting = beside.submit(prepared.put_keys, file, begin, end)
            try:
                yield
            finally:
                putting.result()
                self.native.use_index(file)

    def _pass_blank(self) -> bool:
        """Go behind the blank that closes a log file; False when something else lies there."""
        mapping = self.commit_log.mapping_at(self.native.position)
        if mapping is None:
            return False
        at, end = self.native.position - mapping.file_from, mapping.size
        magic = bytes(memoryview(mapping)[at + 4 : at + END_FILE_MIN_BLANK_LENGTH])
        if at + END_FILE_MIN_BLANK_LENGTH <= end and magic != BLANK_MAGIC_CODE.to_bytes(4, "big"):
            return False
        self.native.seek(mapping.file_from + end)
        return True

    def _advance(self, naps: int) -> None:
        commit_log = self.commit_log
        if len(self._ready):
            self._run_ready()
        while True:
            position = self.native.position
            if position < commit_log.min_offset:
                self.native.seek(commit_log.min_offset)
                continue
            if position >= commit_log.confirm_offset:
                self._flush_rest()
                if naps == 0:
                    return
            mapping = commit_log.mapping_at(position)
            if mapping is None:
                later = [f.file_from_offset for f in commit_log.files.files if f.file_from_offset > position]
                if not later or position >= commit_log.confirm_offset:
                    return
                self._fault(
                    CorruptRecord(commit_log.folder, position, found="no file holds this part of the log")
                )
                self.native.seek(later[0])
                continue
            only_flushed = commit_log.sync_flush and not commit_log.config.read_uncommitted
            code = self.native.follow(mapping, commit_log.flusher, self.arrived, only_flushed, naps)
            if code == native.DONE:
                if self.native.position < mapping.file_from + mapping.size:
                    return
                continue
            if code == native.BLANK:
                self.native.seek(mapping.file_from + mapping.size)
                continue
            view = memoryview(mapping)
            self.help(code, view[self.native.position - mapping.file_from :], mapping.path)

    def _flush_rest(self) -> None:
        """Units that could not be written last time are still staged: write them."""
        while (code := self.native.run(b"", self.native.position, 0)) != native.DONE:
            self.help(code, memoryview(b""), "")

    def help(self, code: int, record: memoryview, path: str) -> None:
        """Do what the native run asked for, so that it can go on. ``record`` starts at its position."""
        if code == native.NEED_QUEUE:
            at, length = self.native.record_topic_span
            topic, queue_id = (
                bytes(record[at : at + length]).decode("utf-8", "replace"),
                self.native.record_queue_id,
            )
            if not storable_queue(topic, queue_id) or len(topic.encode()) != length:
                self._skip(record, path, f"the queue {topic!r}-{queue_id}, which is not allowed")
                return
            self.native.add_queue(self.queues.get(topic, queue_id).native)
        elif code == native.NEED_FILE:
            self._guarded(lambda: self.queues.attach(self._needed()), "opening a queue file")
        elif code == native.NEED_GAP:
            queue, offset = self._needed(), self.native.record_queue_offset
            if offset * 20 - queue.native.max_logic > queue.file_size * 1000 and queue.files:
                self._skip(record, path, f"queue offset {offset}, far behind {queue.max_offset}")
                return
            filled = 0

            def fill() -> None:
                nonlocal filled
                filled = queue.fill_gap(offset)

            self._guarded(fill, "filling a gap of a queue")
            if filled:
                self.gaps_filled += filled
                self._fault(
                    StoreError(
                        f"{queue.topic}-{queue.queue_id} has no record for {filled} offsets before {offset}"
                    )
                )
        elif code == native.SPECIAL:
            self._guarded(lambda: self._special.put(record, self.native.position), "writing a queue")
            self.native.queue_part_done()
        elif code == native.INDEX_FULL:
            if self.index is None:
                raise StoreError("the index is full, and there is no index service")
            self._guarded(self.use_index, "making an index file")
        elif code == native.WRITE_FAILED:
            failed = self._needed()
            raise self._stand(
                store_error(OSError(self.native.error, "write", failed.folder), "writing queue units")
            )
        else:
            self._skip(record, path, self.native.bad_reason)

    def use_index(self, *, make: bool = True) -> None:
        """Put entries into the file that has room; without ``make`` only if there is one."""
        if self.index is not None and (make or (self.index.files and not self.index.files[-1].is_full)):
            self.native.use_index(self.index.writable_file().native)

    def _needed(self) -> ConsumeQueue:
        needed = self.native.needed_queue
        queue = self.queues.get(needed.topic, needed.queue_id)
        assert isinstance(queue, ConsumeQueue)
        return queue

    def _guarded(self, work: Callable[[], object], doing: str) -> None:
        try:
            work()
        except OSError as error:
            raise self._stand(store_error(error, doing)) from error
        except StoreError as error:
            raise self._stand(error) from error

    def _stand(self, error: StoreError) -> StoreError:
        self.error = error
        return error

    def _skip(self, record: memoryview, path: str, found: str) -> None:
        """Leave a damaged record out. Its length is believed if a whole record follows, else the file is
        left.
        """
        size = self.native.record_size
        position = self.native.position
        header = record_header(record[size:]) if 0 < size < len(record) else None
        if header is not None and header[3] == position + size:
            target = position + size
        else:
            target = position + len(record)
        self._fault(CorruptRecord(path, position, found=found, hint="run `penstock store verify`"))
        self.native.seek(target)

    def _fault(self, error: StoreError) -> None:
        log.error("%s", error)
        if self._on_fault is not None:
            self._on_fault(error)

    # -- the thread --------------------------------------------------------------------------------

    def start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="Dispatcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what it has not dispatched stays for ``advance``."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        while thread is not None and thread.is_alive():
            self.commit_log.appended.notify()
            thread.join(0.05)

    def _run(self) -> None:
        signal = self.commit_log.appended
        while not self._stopping.is_set():
            ticket = signal.ticket()
            waiting = True
            try:
                if self.behind == 0 and not self._stopping.is_set():
                    signal.wait(ticket, 1.0)
                    waiting = False
            finally:
                if waiting:
                    signal.drop()
            while self._wanted and not self._stopping.is_set():
                time.sleep(0.0005)  # locks are not fair: let those who asked have it
            try:
                with self.lock:
                    self._advance(naps=10)
                self.error = None
                self.commit_log.prepare_ahead()
            except StoreError as error:
                self._fault(error)
                self._stopping.wait(0.1)
            except Exception as error:  # a defect must not end dispatching silently
                log.exception("dispatching failed")
                self.error = StoreError(f"dispatching failed: {error}")
                self._stopping.wait(1.0)


def wait_visible(dispatcher: Dispatcher, offset: int, timeout: float, alive: Callable[[], bool]) -> bool:
    """Wait until everything before ``offset`` is dispatched; False past ``timeout`` seconds."""
    until = time.monotonic() + timeout
    signal: Any = dispatcher.arrived
    while dispatcher.native.visible < offset:
        left = until - time.monotonic()
        if left <= 0 or not alive():
            return False
        ticket = signal.ticket()
        if dispatcher.native.visible >= offset:
            signal.drop()
            return True
        signal.wait(ticket, min(left, 0.05))
    return True
