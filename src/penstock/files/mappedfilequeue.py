"""A row of files of one size that together are one long file."""

from __future__ import annotations

import struct
import threading
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise
from pathlib import PurePath

from penstock.clock import Clock, SystemClock
from penstock.errors import CorruptFile, StoreError
from penstock.files.allocate import AllocateMappedFileService
from penstock.files.failure import store_error
from penstock.files.mappedfile import MappedFile, file_name, offset_of
from penstock.files.storage import Entry, Storage, StoragePath

PIECE = 1 << 20


class MappedFileQueue:
    """The files of a folder, each named by the offset of its first byte.

    ``files`` is replaced, never changed: who took it may go through it without a lock. There is one
    ``MappedFile`` for a name. ``flushed_where`` and ``committed_where`` are offsets in the whole queue.
    """

    def __init__(
        self,
        storage: Storage,
        path: StoragePath,
        mapped_file_size: int,
        *,
        allocate: AllocateMappedFileService | None = None,
        clock: Clock | None = None,
        writable: bool = True,
        reserve: bool = True,
    ) -> None:
        if mapped_file_size <= 0:
            raise StoreError(f"a file size must be positive, not {mapped_file_size}", file=str(path))
        self.storage = storage
        self.path = str(path)
        self.mapped_file_size = mapped_file_size
        self.writable = writable
        self.flushed_where = 0
        self.committed_where = 0
        self.store_timestamp = 0
        self.ignored: list[str] = []
        self._reserve = reserve
        self._allocate = allocate
        self._clock = clock or SystemClock()
        self._guard = threading.RLock()
        self._files: tuple[MappedFile, ...] = ()

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The files in order, as they are now."""
        return self._files

    @property
    def folders(self) -> tuple[str, ...]:
        """Where its files lie."""
        return (self.path,)

    # -- loading -----------------------------------------------------------------------------------

    def load(self, *, strict: bool = True) -> None:
        """Take in the files of the folder; a folder that is not there is an empty queue.

        What a crash leaves of a file that was being made (shorter, and zeros only) is removed when it is the
        last. Any other file of a wrong size, and (unless ``strict`` is off: then it goes to ``ignored``) any
        file that is not named by an offset, is ``CorruptFile``.
        """
        named = sorted(self._named(strict), key=lambda found: int(found[1].name))
        loaded: list[MappedFile] = []
        try:
            for path, entry in named:
                if entry.size != self.mapped_file_size:
                    if entry is named[-1][1] and self._is_unfinished(path, entry):
                        self._remove_unfinished(path)
                        continue
                    raise CorruptFile(
                        path,
                        found=f"{entry.size} bytes instead of {self.mapped_file_size}",
                        hint="restore it from a copy, or open the store with the file size of its writer",
                    )
                loaded.append(
                    MappedFile.open(self.storage, path, self.mapped_file_size, writable=self.writable)
                )
        except BaseException:
            for file in loaded:
                file.shutdown()
            raise
        with self._guard:
            self._files = tuple(loaded)

    def _named(self, strict: bool) -> list[tuple[str, Entry]]:
        """Path and entry of every file that is named by an offset."""
        found = []
        for folder in self.folders:
            try:
                entries = [entry for entry in self.storage.listdir(folder) if not entry.is_dir]
            except FileNotFoundError:
                continue
            for entry in entries:
                path = str(PurePath(folder) / entry.name)
                if entry.name.isascii() and entry.name.isdigit():
                    found.append((path, entry))
                elif strict:
                    offset_of(path)
                else:
                    self.ignored.append(entry.name)
        return found

    def _is_unfinished(self, path: str, entry: Entry) -> bool:
        if entry.size > self.mapped_file_size:
            return False
        for begin in range(0, entry.size, PIECE):
            if any(self.storage.pread(path, begin, min(PIECE, entry.size - begin))):
                return False
        return True

    def _remove_unfinished(self, path: str) -> None:
        if self.writable:
            self.storage.unlink(path)
            self.storage.sync_dir(PurePath(path).parent)

    def check_self(self) -> list[CorruptFile]:
        """Files that do not start where the one before them ends. Not raised: the caller knows what it
        means."""
        found = []
        files = self._files
        for before, after in pairwise(files):
            if after.file_from_offset - before.file_from_offset != self.mapped_file_size:
                found.append(
                    CorruptFile(
                        after.path,
                        found=f"it starts at {after.file_from_offset}, and the file before it ends at"
                        f" {before.file_from_offset + self.mapped_file_size}",
                        hint="a file between them is missing; restore it from a copy",
                        offset=before.file_from_offset + self.mapped_file_size,
                    )
                )
        return found

    # -- finding -----------------------------------------------------------------------------------

    @property
    def first_file(self) -> MappedFile | None:
        files = self._files
        return files[0] if files else None

    @property
    def last_file(self) -> MappedFile | None:
        files = self._files
        return files[-1] if files else None

    def find_mapped_file_by_offset(
        self, offset: int, return_first_on_not_found: bool = False
    ) -> MappedFile | None:
        """The file that covers ``offset``.

        Not found: None, or the first file when asked. RocketMQ asks so for offset 0, which after the head of
        the log was deleted reads as the first surviving record.
        """
        files = self._files
        if not files:
            return None
        index = bisect_right(files, offset, key=lambda file: file.file_from_offset) - 1
        if index >= 0 and offset < files[index].file_from_offset + self.mapped_file_size:
            return files[index]
        return files[0] if return_first_on_not_found else None

    def get_mapped_file_by_time(self, timestamp: int) -> MappedFile | None:
        """The first file modified at or after ``timestamp``, else the last one."""
        files = self._files
        for file in files:
            if file.last_modified_ms >= timestamp:
                return file
        return files[-1] if files else None

    # -- growing -----------------------------------------------------------------------------------

    def get_last_mapped_file(self, start_offset: int = 0, need_create: bool = True) -> MappedFile | None:
        """The file to append to: the last one, or a new one behind it when it is full or there is none.

        None when there is none and none is to be made, or when the allocation service did not make it in
        time (ask again). Raises ``DiskFull`` when there is no room; that can be tried again too.
        """
        create_offset = self._create_offset(start_offset)
        if create_offset is None or not need_create:
            last = self.last_file
            if last is not None and need_create and not last.is_full and self._reserve:
                last.reserve()
            return last
        return self.try_create_mapped_file(create_offset)

    def request_next(self) -> Future[MappedFile] | None:
        """The file behind the last one, asked for and perhaps still being made; None without a service.

        It stays the service's: ``get_last_mapped_file`` takes it when the last one is full.
        """
        last = self.last_file
        if self._allocate is None or last is None:
            return None
        begin = last.file_from_offset + self.mapped_file_size
        ahead = self._place(begin + self.mapped_file_size)
        return self._allocate.request(self._place(begin), ahead, self.mapped_file_size)

    def should_roll(self, size: int) -> bool:
        """True when ``size`` more bytes need a new file."""
        last = self.last_file
        return last is None or last.is_full or last.wrote_position + size > self.mapped_file_size

    @property
    def is_empty_or_current_file_full(self) -> bool:
        last = self.last_file
        return last is None or last.is_full

    def _create_offset(self, start_offset: int) -> int | None:
        last = self.last_file
        if last is None:
            return start_offset - start_offset % self.mapped_file_size
        if last.is_full:
            return last.file_from_offset + self.mapped_file_size
        return None

    def try_create_mapped_file(self, create_offset: int, *, wait: bool = True) -> MappedFile | None:
        """Make the file that starts at ``create_offset``, or take the one made ahead. One object per name,
        ever.

        None when the service has it not yet (with ``wait`` off: at once).
        """
        with self._guard:
            known = self._known(create_offset)
            if known is not None:
                return known
            if not self._files:
                self._make_folders()
        path = self._place(create_offset)
        if self._allocate is not None:
            ahead = self._place(create_offset + self.mapped_file_size)
            made = self._allocate.take(path, ahead, self.mapped_file_size, wait=wait)
            if made is None:
                return self._known(create_offset)
            with self._guard:
                self._append(made)
            return made
        with self._guard:
            known = self._known(create_offset)
            if known is None:
                known = MappedFile.create(self.storage, path, self.mapped_file_size, reserve=self._reserve)
                self._append(known)
            return known

    def _known(self, offset: int) -> MappedFile | None:
        return next((file for file in self._files if file.file_from_offset == offset), None)

    def _append(self, file: MappedFile) -> None:
        file.first_create_in_queue = not self._files
        self._files = (*self._files, file)

    def _make_folders(self) -> None:
        try:
            self.storage.makedirs(self.path)
        except OSError as error:
            raise store_error(error, "making the folder of a file queue") from error

    def _place(self, offset: int) -> str:
        """Where the new file belongs that starts at ``offset``."""
        return str(PurePath(self.path) / file_name(offset))

    # -- offsets -----------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """Where the first file starts, -1 when there is none."""
        first = self.first_file
        return first.file_from_offset if first is not None else -1

    @property
    def max_offset(self) -> int:
        """End of what is readable, 0 when there is no file."""
        last = self.last_file
        return last.file_from_offset + last.read_position if last is not None else 0

    @property
    def max_wrote_position(self) -> int:
        """End of what was appended, readable or not."""
        last = self.last_file
        return last.file_from_offset + last.wrote_position if last is not None else 0

    @property
    def remain_to_commit(self) -> int:
        return self.max_wrote_position - self.committed_where

    @property
    def remain_to_flush(self) -> int:
        return self.max_offset - self.flushed_where

    def flush(self, least_pages: int = 0) -> bool:
        """Flush one file at most, the one at ``flushed_where``. True when nothing advanced. ``FlushFailed``
        is final."""
        where = self._start(self.flushed_where)
        file = self.find_mapped_file_by_offset(where, where == 0)
        if file is None:
            return True
        timestamp = file.store_timestamp
        reached = file.file_from_offset + file.flush(least_pages)
        unmoved = reached == self.flushed_where
        self.flushed_where = reached
        if least_pages == 0:
            self.store_timestamp = timestamp
        return unmoved

    def commit(self, least_pages: int = 0) -> bool:
        """Commit one file at most, the one at ``committed_where``. True when nothing advanced."""
        where = self._start(self.committed_where)
        file = self.find_mapped_file_by_offset(where, where == 0)
        if file is None:
            return True
        reached = file.file_from_offset + file.commit(least_pages)
        unmoved = reached == self.committed_where
        self.committed_where = reached
        return unmoved

    def _start(self, where: int) -> int:
        """A waterline inside a file that was deleted goes on at the first that is left."""
        return max(where, self.min_offset)

    # -- cutting and deleting ----------------------------------------------------------------------

    def truncate_dirty_files(self, offset: int) -> None:
        """Everything from ``offset`` on is gone, on disk too: later files are removed, the rest of its own
        is zeros.

        At the end of the last file nothing changes: it stays full.
        """
        with self._guard:
            keep = [file for file in self._files if file.file_from_offset <= offset]
            drop = [file for file in self._files if file.file_from_offset > offset]
            self._files = tuple(keep)
            self._discard_ahead()
            for file in reversed(drop):  # from the end: a crash in between leaves no gap
                file.destroy()
                self._sync_folder_of(file)
            if keep and offset < keep[-1].file_from_offset + self.mapped_file_size:
                if self._reserve:
                    keep[-1].reserve()
                keep[-1].truncate(offset - keep[-1].file_from_offset)
            self.flushed_where = min(self.flushed_where, offset)
            self.committed_where = min(self.committed_where, offset)

    def reset_offset(self, offset: int) -> bool:
        """Go back to ``offset``; False, and nothing done, when that is more than two files back or before
        the first."""
        last = self.last_file
        if last is not None:
            behind = last.file_from_offset + last.wrote_position - offset
            if behind > 2 * self.mapped_file_size or offset < self.min_offset:
                return False
            self.truncate_dirty_files(offset)
        return True

    def delete_last_mapped_file(self) -> None:
        with self._guard:
            if self._files:
                last = self._files[-1]
                self._files = self._files[:-1]
                self._discard_ahead()
                last.destroy()
                self._sync_folder_of(last)

    def delete_expired_file_by_time(
        self,
        expired_ms: int,
        *,
        clean_immediately: bool = False,
        batch_max: int = 10,
        pause: Callable[[], object] | None = None,
    ) -> int:
        """Remove files last modified ``expired_ms`` ago or earlier, oldest first, never the last one; how
        many.

        ``clean_immediately`` removes them whatever their age. Stops at the first that is young enough, and
        after ``batch_max``; ``pause`` is called between two removals.
        """
        count = 0
        for file in self._files[:-1]:
            if not clean_immediately and self._is_younger(file, expired_ms):
                break
            if count > 0 and pause is not None:
                pause()
            self._forget(file)
            self._sync_folder_of(file)  # in this order on disk too: a crash must not leave a gap
            count += 1
            if count >= batch_max:
                break
        return count

    def _is_younger(self, file: MappedFile, expired_ms: int) -> bool:
        try:
            return self._clock.now_ms() < file.last_modified_ms + expired_ms
        except FileNotFoundError:  # somebody else removed it: nothing left to keep
            return False

    def delete_expired_file_by_offset(self, offset: int, unit_size: int) -> int:
        """For queues of units that begin with a physical offset: remove files whose last unit is before
        ``offset``.

        Oldest first, never the last one; how many.
        """
        count = 0
        for file in self._files[:-1]:
            unit = file.select(self.mapped_file_size - unit_size, unit_size)
            if unit is not None and struct.unpack_from(">q", unit)[0] >= offset:
                break
            if unit is None and file.available:
                break
            del unit
            self._forget(file)
            count += 1
        return count

    def retry_delete_first_file(self) -> bool:
        """Remove the first file if it was shut down but not removed."""
        first = self.first_file
        if first is None or first.available:
            return False
        self._forget(first)
        return True

    def _forget(self, file: MappedFile) -> None:
        with self._guard:
            self._files = tuple(other for other in self._files if other is not file)
        file.destroy()

    def destroy(self) -> None:
        """Remove all files and their folders."""
        with self._guard:
            files, self._files = self._files, ()
            self.flushed_where = self.committed_where = 0
            self._discard_ahead()
            for file in reversed(files):
                file.destroy()
            for folder in self.folders:
                try:
                    self.storage.rmdir(folder)
                    self.storage.sync_dir(PurePath(folder).parent)
                except FileNotFoundError:
                    pass
                except OSError as error:
                    raise store_error(error, "removing the folder of a file queue") from error

    def shutdown(self) -> None:
        """Let go of the files; they stay on disk. Views that are out stay valid."""
        with self._guard:
            files, self._files = self._files, ()
        for file in files:
            file.shutdown()

    def _discard_ahead(self) -> None:
        """Files made ahead are no longer wanted: the queue ends elsewhere now."""
        if self._allocate is not None:
            for folder in self.folders:
                self._allocate.discard(folder)

    def _sync_folder_of(self, file: MappedFile) -> None:
        try:
            self.storage.sync_dir(PurePath(file.path).parent)
        except OSError as error:
            raise store_error(error, "syncing the folder after removing files") from error
