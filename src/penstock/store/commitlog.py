"""The one log of all topics: append, flush, read (format sections 5 to 7)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from penstock._native.append import MAPPED, WRITTEN, Appender
from penstock._native.encode import Encoder
from penstock._native.flush import Flusher
from penstock._native.mapping import Mapping
from penstock._native.putresult import PutResult, PutResults
from penstock._native.queue import Queue
from penstock._native.reading import LogView
from penstock._native.signal import Signal
from penstock._native.waiting import LoopPuts
from penstock.clock import Clock, SystemClock
from penstock.config import StoreConfig
from penstock.errors import StoreError
from penstock.files.allocate import AllocateMappedFileService
from penstock.files.mappedfile import PAGE, MappedFile
from penstock.files.mappedfilequeue import MappedFileQueue
from penstock.files.multipath import MultiPathMappedFileQueue
from penstock.files.storage import Storage
from penstock.files.transient import TransientStorePool
from penstock.message import Message
from penstock.message.host import parse_host
from penstock.message.ids import UniqueIdGenerator
from penstock.store.logfolders import LogFolders

BLANK = 8
LARGE_FOLIO = 2 << 20
PIECE = 4 << 20
UNLOCK_AFTER_SECONDS = 6.0
LONGEST_HEAD = 68 << 10
"""More than any record has beside its body: topic and properties are at most 32 KiB each."""


class CommitLog:
    """Files of one size, appended to at the end. Any thread may put; readers take ``view``.

    ``appender`` is the put path, ``flusher`` knows how far the log is on disk. Both are native.
    """

    def __init__(
        self,
        storage: Storage,
        folders: LogFolders,
        config: StoreConfig,
        clock: Clock,
        find_queue: Callable[[str, int], Queue | None],
        *,
        background: bool = True,
    ) -> None:
        self.storage = storage
        self.folders = folders
        self.full_folders: frozenset[str] = frozenset()
        """Folders on disks that are nearly full: new files go elsewhere, as long as there is room."""
        self.config = config
        self.clock = clock
        self.system_clock = isinstance(clock, SystemClock)
        self.file_size = config.mapped_file_size_commit_log
        self.sync_flush = config.flush_disk_type == "sync"
        self.pool: TransientStorePool | None = None
        if config.transient_store_pool_enable:
            self.pool = TransientStorePool(config.transient_store_pool_size, self.file_size)
        self.allocate = AllocateMappedFileService(
            storage,
            window=min(32 << 20, self.file_size),
            written=self.sync_flush,
            warm=config.warm_mapped_file_enable,
            warm_window=config.flush_least_pages_when_warm_mapped_file * PAGE,
            pool=self.pool,
            fast_fail_without_buffer=config.fast_fail_if_no_buffer_in_store_pool,
        )
        self.files: MappedFileQueue
        if folders.several:
            self.files = MultiPathMappedFileQueue(
                storage,
                folders.writable,
                self.file_size,
                read_only_folders=folders.read_only,
                full=lambda: self.full_folders,
                allocate=self.allocate,
                clock=clock,
            )
        else:
            self.files = MappedFileQueue(
                storage, folders.writable[0], self.file_size, allocate=self.allocate, clock=clock
            )
        self.appended = Signal()
        """Notified when something was appended (async flush) or flushed: the dispatcher has work."""
        self.flusher = Flusher(self.appended)
        host, port = parse_host(config.store_host)
        # A generator of its own for each store: two stores of one process must not make the same unique id.
        unique = bytes.fromhex(UniqueIdGenerator(host[:4])())[:10]
        self.encoder = Encoder(
            Message, find_queue, parse_host, host + port.to_bytes(4, "big"), config.max_message_size, unique
        )
        self.encoder.property_crc = config.enabled_append_prop_crc
        self.encoder.generate_unique_key = config.generate_unique_key
        self.encoder.max_record_size = min(config.max_message_size + 65536, self.file_size - BLANK)
        self.appender = Appender(self.encoder, self.flusher, self.appended, self._roll)
        self.appender.sync = self.sync_flush
        self.appender.sync_timeout = config.sync_flush_timeout_ms / 1000
        self.appender.mode = WRITTEN if self.sync_flush else MAPPED
        self.loop_puts = LoopPuts(self.appender)
        self._background = background
        self._rolling = threading.Lock()
        self._unlocking: list[threading.Timer] = []
        self._view: tuple[tuple[MappedFile, ...], LogView] | None = None
        self.roll_error: StoreError | None = None
        """Why the last attempt to make a file failed; None since one was made."""

    @property
    def folder(self) -> str:
        """The folder to name in errors that concern the whole log."""
        return self.folders.writable[0]

    # -- life --------------------------------------------------------------------------------------

    def load(self) -> list[StoreError]:
        """Take in the files; gaps between them, as errors that the caller weighs."""
        self.files.load()
        return list(self.files.check_self())

    def start(self) -> None:
        """Begin to make files ahead."""
        if self._background:
            self.allocate.start()

    def open_end(self, end: int) -> None:
        """The log ends at ``end``: append there, count everything before it as flushed."""
        self.flusher.release_files()
        self.flusher.flushed_where = end
        self.files.flushed_where = self.files.committed_where = end
        last = self.files.last_file
        if last is not None:
            if not last.is_full:
                last.reserve()
                self._refresh_tail(last)
                self.allocate.prepare_ahead(last)
            self.flusher.use_file(last.mapping)
            self.appender.use_file(last.mapping)

    def _refresh_tail(self, file: MappedFile) -> None:
        """Have the pages in front of the write position in memory, one by one.

        A scan leaves them in large folios, and then each small write and sync is a large one. What was made
        ready in an earlier life has blocks with zeros in them: without its pages in memory every write would
        wait for a read.
        """
        descriptor = file.mapping.fileno()
        if descriptor < 0 or not hasattr(os, "posix_fadvise"):
            return
        begin = file.wrote_position // LARGE_FOLIO * LARGE_FOLIO
        os.posix_fadvise(descriptor, begin, 0, os.POSIX_FADV_DONTNEED)
        end = file.wrote_position + self.allocate.window
        for low, high in file.mapping.data_extents(begin):
            if low > file.wrote_position or low >= end:
                break
            stop = min(high, end)
            for at in range(low, stop, PIECE):
                self.storage.pread(file.path, at, min(PIECE, stop - at))
            file.prepared_position = max(file.prepared_position, stop)

    def shutdown(self) -> None:
        for timer in self._unlocking:
            timer.cancel()
        self.appender.use_file(None)
        self.flusher.stop()
        self.flusher.release_files()
        self.allocate.shutdown()
        self._view = None
        self.files.shutdown()
        if self.pool is not None:
            self.pool.destroy()

    # -- writing -----------------------------------------------------------------------------------

    def _roll(self) -> str | None:
        """Have the appender use a file with room; why there is none, if so. Called without the put lock."""
        with self._rolling:
            current = self.appender.current
            if current is not None and not current.is_full:
                return None  # another writer was here first
            try:
                file = self.files.get_last_mapped_file(0)
            except StoreError as error:
                self.roll_error = error
                return str(error)
            if file is None:
                return "the next log file is not ready yet: try again"
            self.roll_error = None
            if self.pool is not None:
                # The next file may have to do without a buffer: its records must not reach
                # the disk before those that still lie in one.
                while not self.files.commit(0):
                    pass
            self.flusher.use_file(file.mapping)
            self.appender.use_file(file.mapping)
            if self.config.warm_mapped_file_enable:
                self._unlock_later()
            return None

    def _unlock_later(self) -> None:
        """The file before the last one is full: its pages need not stay in memory once it is on disk."""
        for file in self.files.files[-2:-1]:
            timer = threading.Timer(UNLOCK_AFTER_SECONDS, file.unlock_memory)
            timer.daemon = True
            self._unlocking = [other for other in self._unlocking if other.is_alive()] + [timer]
            timer.start()

    def awaited_file(self, body_bytes: int) -> Future[MappedFile] | None:
        """What a put of such a message would wait for: the next file, if it is needed and still being made.

        None when there is room. Where making it fails the put says so.
        """
        current = self.appender.current
        if current is None or current.size - current.wrote_position > body_bytes + LONGEST_HEAD:
            return None
        if not self._background:
            return None
        try:
            future = self.files.request_next()
        except StoreError:
            return None
        return None if future is None or future.done() else future

    def prepare_ahead(self) -> None:
        """Have pages ready in front of the write position. Cheap when they are."""
        last = self.files.last_file
        if last is not None:
            self.allocate.prepare_ahead(last)

    def commit(self, least_pages: int = 0) -> bool:
        """Move what lies in write buffers into the files; True when nothing advanced."""
        unmoved = self.files.commit(least_pages)
        if not unmoved:
            self.appended.notify()
        return unmoved

    def flush(self) -> None:
        """Everything put so far is on disk. OSError is final: the store must not acknowledge anything
        after it.
        """
        self.flusher.sync()
        self.files.flushed_where = self.files.committed_where = self.flusher.flushed_where
        if self.pool is not None:
            for file in self.files.files:
                if file.is_full and file.has_write_buffer:
                    file.return_write_buffer()

    # -- putting -----------------------------------------------------------------------------------

    def put_message(self, message: Message, *, wait: bool = True) -> PutResult:
        """Append one message as it is: whoever has put hooks has run them. Any thread may.

        The result has the status of format section 7.5. With sync flush and ``wait`` the record is on disk
        when this returns with PUT_OK. OSError when a write or the sync failed.
        """
        return self.appender.put(message, self.store_time(), True, wait)  # type: ignore[no-any-return]

    def put_messages(self, messages: list[Message], *, wait: bool = True, whole: bool = True) -> PutResults:
        """Append messages under one lock and wait for the disk once; ``whole``: all in one file, as a
        client's batch is.
        """
        return self.appender.put_many(messages, self.store_time(), True, wait, whole)  # type: ignore[no-any-return]

    def store_time(self) -> int:
        """What to hand the appender: -1 for the system's clock, which it reads by itself."""
        return -1 if self.system_clock else self.clock.now_ms()

    # -- offsets -----------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """First offset that can be read, -1 without files."""
        return self.files.min_offset

    @property
    def max_offset(self) -> int:
        """End of what can be read."""
        return self.files.max_offset

    @property
    def flushed_where(self) -> int:
        """Everything before it is on disk."""
        return self.flusher.flushed_where

    @property
    def committed_where(self) -> int:
        """Everything before it is in the files, if not on disk."""
        return self.files.committed_where if self.pool is not None else self.files.max_offset

    @property
    def confirm_offset(self) -> int:
        """End of what may become visible: with sync flush only what is on disk."""
        return self.flushed_where if self.sync_flush and not self.config.read_uncommitted else self.max_offset

    def roll_next_file(self, offset: int) -> int:
        return offset + self.file_size - offset % self.file_size

    # -- reading -----------------------------------------------------------------------------------

    @property
    def view(self) -> LogView:
        """The files as readers see them now."""
        files = self.files.files
        known = self._view
        if known is None or known[0] is not files:
            mappings: list[Any] = [file.mapping for file in files]
            known = self._view = (files, LogView(mappings, self.file_size))
        return known[1]

    def get_message(self, offset: int, size: int) -> memoryview | None:
        """The ``size`` bytes at ``offset``, without a copy; None when they are not in one file."""
        return self.view.read(offset, size)

    def mapping_at(self, offset: int) -> Mapping | None:
        file = self.files.find_mapped_file_by_offset(offset)
        return file.mapping if file is not None else None
