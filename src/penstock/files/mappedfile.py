"""One file of a file queue, mapped, with the three positions of the articles."""

from __future__ import annotations

import logging
import mmap
import os
import threading
from pathlib import PurePath
from typing import Any

from penstock._native.locking import lock_memory, unlock_memory
from penstock._native.mapping import Mapping
from penstock.errors import CorruptFile, FlushFailed, StoreError
from penstock.files.failure import store_error
from penstock.files.storage import Storage, StoragePath
from penstock.files.transient import TransientStorePool

_log = logging.getLogger(__name__)

PAGE = 4096
WINDOW = 16 << 20
LARGEST_OFFSET = (1 << 63) - 1


def file_name(offset: int) -> str:
    """The name of the file that starts at ``offset``."""
    return f"{offset:020d}"


class MappedFile:
    """One fixed-size file of a file queue.

    Positions are relative to the file; ``file_from_offset`` places it in the queue. They only grow, except in
    recovery:

        wrote_position >= committed_position >= flushed_position

    Without a write buffer the committed position is not kept. Appending and committing need the caller's
    lock.
    """

    def __init__(
        self, storage: Storage, path: str, mapping: Mapping, *, pool: TransientStorePool | None = None
    ) -> None:
        self.storage = storage
        self.path = path
        self.mapping = mapping
        self.first_create_in_queue = False
        self.start_timestamp = -1
        self.stop_timestamp = -1
        self.prepared_position = 0
        self._pool = pool
        self._buffer: mmap.mmap | None = None
        self._guard = threading.Lock()
        self._references = 1
        self._available = True
        self._flush_error: FlushFailed | None = None

    @classmethod
    def create(
        cls,
        storage: Storage,
        path: StoragePath,
        size: int,
        *,
        reserve: bool = True,
        pool: TransientStorePool | None = None,
    ) -> MappedFile:
        """A new file of zeros, durable, its blocks its own when ``reserve``. Positions are 0.

        Raises ``DiskFull`` when there is no room (nothing is left behind, and the call may be repeated) and
        ``CorruptFile`` when the name exists: its bytes would pass for ours.
        """
        name = str(path)
        if storage.exists(name):
            raise CorruptFile(
                name,
                found="a file that the queue does not know is where its next file belongs",
                hint="move it out of the folder",
            )
        try:
            mapping = storage.open_mapping(
                name, size, create=True, writable=True, reserve=reserve, file_from=offset_of(name)
            )
        except OSError as error:
            raise store_error(error, f"making a file of {size} bytes") from error
        made = cls(storage, name, mapping, pool=pool)
        buffer = pool.borrow() if pool is not None else None
        if buffer is not None:
            mapping.attach_write_buffer(buffer)
            made._buffer = buffer
        return made

    @classmethod
    def open(
        cls, storage: Storage, path: StoragePath, size: int, *, writable: bool = True, reserve: bool = False
    ) -> MappedFile:
        """An existing file. All positions stand at its end until recovery knows better."""
        name = str(path)
        try:
            mapping = storage.open_mapping(
                name, size, writable=writable, reserve=reserve, file_from=offset_of(name)
            )
        except OSError as error:
            raise store_error(error, "opening it") from error
        mapping.wrote_position = mapping.committed_position = mapping.flushed_position = size
        return cls(storage, name, mapping)

    # -- what it is --------------------------------------------------------------------------------

    @property
    def file_name(self) -> str:
        return PurePath(self.path).name

    @property
    def file_from_offset(self) -> int:
        return self.mapping.file_from

    @property
    def file_size(self) -> int:
        return self.mapping.size

    @property
    def end_offset(self) -> int:
        """The offset behind the last byte of the file."""
        return self.mapping.file_from + self.mapping.size

    @property
    def wrote_position(self) -> int:
        """End of what was appended. Kept by the mapping, which publishes it last."""
        return self.mapping.wrote_position

    @wrote_position.setter
    def wrote_position(self, value: int) -> None:
        self.mapping.wrote_position = value

    @property
    def committed_position(self) -> int:
        return self.mapping.committed_position

    @committed_position.setter
    def committed_position(self, value: int) -> None:
        self.mapping.committed_position = value

    @property
    def flushed_position(self) -> int:
        return self.mapping.flushed_position

    @flushed_position.setter
    def flushed_position(self, value: int) -> None:
        self.mapping.flushed_position = value

    @property
    def read_position(self) -> int:
        """End of what readers may see: with a write buffer, what was committed."""
        if self._pool is not None and not self._pool.real_commit:
            return self.mapping.wrote_position
        return self.mapping.read_position

    @property
    def store_timestamp(self) -> int:
        """Store time of the last record appended, 0 after loading."""
        return self.mapping.store_timestamp

    @store_timestamp.setter
    def store_timestamp(self, value: int) -> None:
        self.mapping.store_timestamp = value

    @property
    def is_full(self) -> bool:
        return self.mapping.is_full

    @property
    def has_write_buffer(self) -> bool:
        return self.mapping.has_write_buffer

    @property
    def last_modified_ms(self) -> int:
        return self.storage.stat(self.path).mtime_ms

    def __repr__(self) -> str:
        return (
            f"<MappedFile {self.path} wrote={self.wrote_position} committed={self.committed_position}"
            f" flushed={self.flushed_position} of {self.file_size}>"
        )

    # -- appending, committing, flushing -----------------------------------------------------------

    def append_message(self, data: Any) -> bool:
        """Raw append into the mapping (never the write buffer); False, and nothing done, if it does not
        fit."""
        return self._available and self.mapping.append(data)

    def is_able_to_commit(self, least_pages: int) -> bool:
        return self._enough(least_pages, self.wrote_position, self.committed_position)

    def is_able_to_flush(self, least_pages: int) -> bool:
        return self._enough(least_pages, self.read_position, self.flushed_position)

    def _enough(self, least_pages: int, end: int, begin: int) -> bool:
        """A full file always; else ``least_pages`` whole pages, or with 0 anything at all."""
        if self.is_full:
            return True
        if least_pages > 0:
            return end // PAGE - begin // PAGE >= least_pages
        return end > begin

    def commit(self, least_pages: int = 0) -> int:
        """Write what the buffer holds into the file; how far the file is readable now.

        ``DiskFull`` or ``StoreError`` when the write fails: nothing moved, and it may be repeated.
        """
        if not self.has_write_buffer:
            return self.wrote_position
        if self._pool is not None and not self._pool.real_commit:
            self.committed_position = self.wrote_position
        elif self.is_able_to_commit(least_pages) and self.hold():
            try:
                self.mapping.commit()
            except OSError as error:
                raise store_error(error, "committing the write buffer") from error
            finally:
                self.release()
        committed = self.committed_position
        if committed == self.file_size:
            self.return_write_buffer()
        return committed

    def flush(self, least_pages: int = 0) -> int:
        """Sync when there is enough to sync; the flushed position.

        A failed sync is final: ``FlushFailed`` now and at every later call, because a second sync may
        succeed although the pages of the first are lost. A file that is shut down stays where it is.
        """
        if self._flush_error is not None:
            raise self._flush_error
        if self.is_able_to_flush(least_pages) and self.hold():
            try:
                end = self.read_position
                self._sync()
                self.flushed_position = end
            finally:
                self.release()
        return self.flushed_position

    def _sync(self) -> None:
        try:
            self.mapping.sync()
        except OSError as error:
            self._flush_error = FlushFailed(
                f"the disk refused a sync: {error.strerror}",
                file=self.path,
                offset=self.file_from_offset + self.flushed_position,
                hint="what was written from here on may be lost; check the disk, then reopen the store",
            )
            raise self._flush_error from error

    def return_write_buffer(self) -> bool:
        """Give the write buffer back to the pool; False, and nothing done, while it is not all committed."""
        if self.committed_position != self.wrote_position:
            return False
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self.mapping.detach_write_buffer()
            if self._pool is not None:
                self._pool.give_back(buffer)
        return True

    # -- reading -----------------------------------------------------------------------------------

    def select(self, position: int, size: int | None = None) -> memoryview | None:
        """A view of ``size`` bytes (None: up to the read position), or None past the read position or when
        the file is going. The file stays mapped while the view lives."""
        end = self.read_position
        if size is None:
            if not 0 <= position < end:
                return None
            size = end - position
        if position < 0 or size < 0 or position + size > end or not self._available:
            return None
        return self.mapping.view(position, size)

    def slice(self) -> memoryview:
        """The whole file irrespective of positions. For recovery."""
        return self.mapping.view(0, self.file_size)

    def get_data(self, position: int, size: int) -> bytes | None:
        """A copy read through the descriptor, under the rule of ``select``."""
        if position < 0 or size < 0 or position + size > self.read_position or not self._available:
            return None
        return self.mapping.read(position, size)

    # -- holding and going -------------------------------------------------------------------------

    @property
    def available(self) -> bool:
        """False once it is shut down: no new reads, nothing appended."""
        return self._available

    @property
    def cleanup_over(self) -> bool:
        """Shut down, and the last view and holder are gone: the memory is unmapped."""
        return self.mapping.unmapped

    def hold(self) -> bool:
        """Keep the file mapped until ``release``; False when it is going."""
        with self._guard:
            if not self._available or self._references <= 0:
                return False
            self._references += 1
            return True

    def release(self) -> None:
        with self._guard:
            self._references -= 1
            last = self._references == 0
        if last:
            self.mapping.close()

    def shutdown(self) -> None:
        """No new holders. The memory goes with the last view and holder, never under one.

        What a write buffer holds and was not committed is dropped: commit first, unless the file is to go.
        """
        with self._guard:
            if not self._available:
                return
            self._available = False
        if self._buffer is not None:
            self.wrote_position = self.committed_position
            self.return_write_buffer()
        self.release()

    def destroy(self) -> None:
        """Shut down and remove the file at once; who still has a view keeps reading it."""
        self.shutdown()
        try:
            self.storage.unlink(self.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise store_error(error, "removing it") from error

    # -- preparing and cutting ---------------------------------------------------------------------

    def reserve(self) -> None:
        """Give a sparse file all its blocks before it is appended to. ``DiskFull`` when there is no room."""
        try:
            self.mapping.reserve()
        except OSError as error:
            raise store_error(error, f"reserving {self.file_size} bytes") from error

    def prepare(self, end: int, *, written: bool) -> None:
        """Make the pages up to ``end`` ready for writing; what is ready already is not touched again."""
        begin, end = self.prepared_position, min(end, self.file_size)
        if end <= begin or not self.hold():
            return
        try:
            self.mapping.prepare(begin, end - begin, written=written)
            self.prepared_position = end
        except OSError as error:
            raise store_error(error, "preparing pages") from error
        finally:
            self.release()

    def warm_up(self, *, written: bool, window: int = WINDOW) -> None:
        """Make the whole file ready for writing, a window at a time, and keep its pages in memory.

        ``written`` also syncs each window. Where the system refuses to keep them they stay as long as it
        likes.
        """
        for begin in range(0, self.file_size, window):
            self.prepare(begin + window, written=written)
        self.lock_memory()

    def lock_memory(self) -> bool:
        """Keep the pages in memory; False when the system refuses (``ulimit -l``), which is only slower."""
        if not self.hold():
            return False
        try:
            refused = lock_memory(self.mapping)
        finally:
            self.release()
        if refused:
            _log.warning(
                "%s: its pages are not kept in memory: %s (see ulimit -l)", self.path, os.strerror(refused)
            )
        return not refused

    def unlock_memory(self) -> None:
        """Let the system take the pages again. Fine for a file that is gone."""
        if self.hold():
            try:
                unlock_memory(self.mapping)
            finally:
                self.release()

    def truncate(self, position: int) -> None:
        """Everything from ``position`` on is gone: positions stand there and the bytes behind are zeros, on
        disk.

        Zeros, because a record that was cut and is still whole would be taken for a new one after the next
        crash.
        """
        if not 0 <= position <= self.file_size:
            raise StoreError(f"cannot cut at {position}", file=self.path)
        mapping = self.mapping
        if self._buffer is not None:
            self._buffer[position : mapping.wrote_position] = bytes(max(0, mapping.wrote_position - position))
        mapping.flushed_position = min(mapping.flushed_position, position)
        mapping.committed_position = min(mapping.committed_position, position)
        try:
            mapping.punch_zero(position, self.file_size)
        except OSError as error:
            raise store_error(error, f"erasing what was cut at {position}") from error
        self._sync()
        mapping.wrote_position = mapping.committed_position = mapping.flushed_position = position
        self.prepared_position = min(self.prepared_position, position)


def offset_of(path: StoragePath) -> int:
    """The offset that a file's name tells, or ``CorruptFile``."""
    name = PurePath(path).name
    if not (name.isascii() and name.isdigit() and int(name) <= LARGEST_OFFSET):
        raise CorruptFile(str(path), found="a name that is not an offset", hint="move it out of the folder")
    return int(name)
