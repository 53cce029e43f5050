"""A store directory as it lies there, for reading only: which files, whose, how far.

Nothing here opens a store, takes a lock or writes. The directory may be damaged, closed, killed or in use.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import replace
from functools import cached_property
from pathlib import PurePath

from penstock.config import StoreConfig
from penstock.errors import StoreError
from penstock.files.disk import DiskStorage
from penstock.files.storage import Storage
from penstock.format.checkpoint import Checkpoint, decode_checkpoint
from penstock.format.malformed import Malformed
from penstock.store.logfolders import LogFolders, log_folders
from penstock.store.sizes import QueueFile, files_of, log_files_of, queue_folders, require_store, survey

_GETLK: int = getattr(fcntl, "F_OFD_GETLK", 92 if hasattr(fcntl, "F_FULLFSYNC") else 36)
_UNIT_HEAD = struct.Struct(">qi")


class StoreDirectory:
    """Where things are in a store directory. Raises NotAStore if it is none."""

    def __init__(self, storage: Storage | None, root: str, config: StoreConfig | None = None) -> None:
        self.storage: Storage = storage or DiskStorage()
        self.root = root
        require_store(self.storage, root)
        self.size_faults: list[StoreError]
        self.config, self.size_faults = survey(self.storage, root, config or StoreConfig())

    @cached_property
    def log_folders(self) -> LogFolders:
        """Where the files of the log lie."""
        return log_folders(self.storage, self.root, self.config)

    def path(self, *names: str) -> str:
        """A path inside the directory."""
        return str(PurePath(self.root, *names))

    @property
    def log_folder(self) -> str:
        """The folder to name when the log as a whole is meant."""
        return self.path("commitlog") if self.log_folders.is_default else self.log_folders.writable[0]

    @property
    def segment_size(self) -> int:
        """Size of a file of the log."""
        return self.config.mapped_file_size_commit_log

    @cached_property
    def log_files(self) -> list[QueueFile]:
        """Files of the log, oldest first, without empty ones; of one that is too long, what belongs to it."""
        files = [file for file in log_files_of(self.storage, self.log_folders) if file.size]
        return [replace(file, size=min(file.size, self.segment_size)) for file in files]

    @property
    def min_physical_offset(self) -> int:
        """Where the log begins; 0 if there is none."""
        return self.log_files[0].begin if self.log_files else 0

    @cached_property
    def is_closed(self) -> bool:
        """Whether the last owner closed it: there is no ``abort`` file."""
        return not self.storage.exists(self.path("abort"))

    @cached_property
    def is_live(self) -> bool:
        """Whether a process holds its lock at this moment."""
        return is_locked(self.path("lock"))

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The fields of the checkpoint file; zeros when it is missing or cut."""
        try:
            return decode_checkpoint(self.storage.read_file(self.path("checkpoint")))
        except (OSError, Malformed):
            return Checkpoint()

    @cached_property
    def queued_end(self) -> int:
        """End of the last record that any queue points to; -1 without a unit.

        In a closed directory units may be left over behind the end of the log: no proof of data there.
        """
        end = -1
        for kind, unit in (("consumequeue", 20), ("batchconsumequeue", 46)):
            for _, _, folder in queue_folders(self.storage, self.path(kind)):
                end = max(end, last_queued_end(self.storage, folder, unit))
        return end


def is_locked(path: str) -> bool:
    """Whether another open file holds the lock that owners of a store take. Changes nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if hasattr(fcntl, "F_FULLFSYNC"):
            answer = fcntl.fcntl(
                descriptor, _GETLK, struct.pack("qqihh", 0, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)
            )
            kind = struct.unpack("qqihh", answer)[3]
        else:
            question = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            kind = struct.unpack("hhqqi0q", fcntl.fcntl(descriptor, _GETLK, question))[0]
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return bool(kind != fcntl.F_UNLCK)


def last_queued_end(storage: Storage, folder: str, unit: int) -> int:
    """End of the record behind the last valid unit of one queue, -1 if there is none."""
    for file in reversed(files_of(storage, folder)):
        count = file.size // unit
        if not count:
            continue
        try:
            opened = storage.open_sparse(file.path, file.size, writable=False)
        except OSError:
            continue
        try:
            low, high, end = 0, count, -1
            # Valid units come first: what lies behind the last one was never written.
            while low < high:
                middle = (low + high) // 2
                data = opened.read(middle * unit, _UNIT_HEAD.size)
                offset, size = _UNIT_HEAD.unpack(data) if len(data) == _UNIT_HEAD.size else (-1, 0)
                if offset >= 0 and size > 0:
                    end = offset + size if size != 0x7FFFFFFF else end
                    low = middle + 1
                else:
                    high = middle
        except OSError:
            continue
        finally:
            opened.close()
        if low:
            return end
    return -1
