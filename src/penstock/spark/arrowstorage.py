"""Storage over ``pyarrow.fs``: object stores and HDFS, for reading only and by range.

Nothing is copied whole: a read of a file queue's file asks the server for just those bytes. Two exceptions,
which RocketMQ's own sizes do not meet: a key index of unusual size is fetched once to learn its layout, and
``map`` fetches a file of a batch queue.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, NoReturn

import pyarrow.fs as arrow_fs
from pyarrow import ArrowException

from penstock._native.mapping import Mapping
from penstock.errors import StoreReadOnly
from penstock.files.storage import Entry, Lock, SparseFile, StoragePath


class ArrowStorage:
    """A file system of ``pyarrow.fs`` as a store reads it. Threads may share it; forked processes may not.

    Objects are taken to be whole and final. Every call that would write raises StoreReadOnly.
    """

    def __init__(self, filesystem: arrow_fs.FileSystem) -> None:
        self._filesystem = filesystem

    # -- reading -----------------------------------------------------------------------------------

    def listdir(self, path: StoragePath) -> list[Entry]:
        folder = str(path)
        try:
            with _errors_of(folder):
                names = self._filesystem.get_file_info(arrow_fs.FileSelector(folder))
        except OSError as error:
            # Asked only now: a listing that works is one request.
            if self._info(folder).type == arrow_fs.FileType.File:
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", folder) from error
            raise
        # An object store shows a made folder as an object without a name of its own.
        return sorted((_entry(info) for info in names if info.base_name), key=lambda entry: entry.name)

    def exists(self, path: StoragePath) -> bool:
        return bool(self._info(str(path)).type != arrow_fs.FileType.NotFound)

    def stat(self, path: StoragePath) -> Entry:
        info = self._info(str(path))
        if info.type == arrow_fs.FileType.NotFound:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return _entry(info)

    def open_sparse(
        self, path: StoragePath, size: int, *, create: bool = False, writable: bool = True
    ) -> SparseFile:
        if create or writable:
            self._refuse(path)
        return ArrowFile(self, str(path))

    def open_mapping(
        self,
        path: StoragePath,
        size: int,
        *,
        create: bool = False,
        writable: bool = True,
        reserve: bool = False,
        file_from: int = 0,
    ) -> Mapping:
        """A copy in memory: there is nothing to map."""
        if create or writable:
            self._refuse(path)
        data = bytearray(self.read_file(path)[:size])
        return Mapping.over(data, file_from, None, path=str(path), writable=False, reserved=False)

    def read_file(self, path: StoragePath) -> bytes:
        return self.pread(path, 0, 1 << 62)

    def pread(self, path: StoragePath, position: int, count: int) -> bytes:
        file = ArrowFile(self, str(path))
        try:
            return file.read(position, count)
        finally:
            file.close()

    def disk_usage(self, path: StoragePath) -> float:
        return -1.0

    def open_input(self, path: str) -> Any:
        """The random access file of ``pyarrow``. Raises OSError with errno and filename."""
        with _errors_of(path):
            return self._filesystem.open_input_file(path)

    def _info(self, path: str) -> arrow_fs.FileInfo:
        with _errors_of(path):
            return self._filesystem.get_file_info(path)

    # -- what would write --------------------------------------------------------------------------

    def _refuse(self, path: StoragePath) -> NoReturn:
        raise StoreReadOnly(
            "stores behind a URI are only read",
            file=path,
            hint="write into a directory of this machine, and copy that",
        )

    def makedirs(self, path: StoragePath, *, later: bool = False) -> None:
        self._refuse(path)

    def rmdir(self, path: StoragePath) -> None:
        self._refuse(path)

    def create_file(self, path: StoragePath, data: bytes = b"") -> None:
        self._refuse(path)

    def write_atomic(self, path: StoragePath, data: bytes) -> None:
        self._refuse(path)

    def unlink(self, path: StoragePath) -> None:
        self._refuse(path)

    def rename(self, source: StoragePath, target: StoragePath) -> None:
        self._refuse(source)

    def sync_dir(self, path: StoragePath) -> None:
        self._refuse(path)

    def truncate(self, path: StoragePath, size: int) -> None:
        self._refuse(path)

    def set_mtime(self, path: StoragePath, mtime_ms: int) -> None:
        self._refuse(path)

    def lock(self, path: StoragePath) -> Lock:
        self._refuse(path)


class ArrowFile:
    """A file read by range. Its size is that of the moment it was opened."""

    memory: bytearray | None = None

    def __init__(self, storage: ArrowStorage, path: str) -> None:
        self._storage = storage
        self.path = path
        self._input = storage.open_input(path)
        with _errors_of(path):
            self.size = int(self._input.size())
        self.closed = False

    def fileno(self) -> int:
        return -1

    def read(self, position: int, count: int) -> bytes:
        if self.closed:
            raise ValueError(f"{self.path}: the file is closed")
        count = min(count, self.size - position)
        if count <= 0:
            return b""
        try:
            with _errors_of(self.path):
                return bytes(self._input.read_at(count, position))
        except FileNotFoundError:
            raise
        except OSError as error:
            # Object stores word it each in their own way when an object goes while it is read.
            if not self._storage.exists(self.path):
                raise FileNotFoundError(errno.ENOENT, "removed while it was read", self.path) from error
            raise

    def map(self) -> Mapping:
        data = bytearray(self.read(0, self.size))
        return Mapping.over(data, 0, None, path=self.path, writable=False, reserved=False)

    def write(self, position: int, data: Any) -> None:
        self._storage._refuse(self.path)

    def zero(self, begin: int, end: int) -> None:
        self._storage._refuse(self.path)

    def sync(self) -> None:
        self._storage._refuse(self.path)

    @property
    def held(self) -> bool:
        return False

    def hold(self) -> None:
        if self.closed:
            raise ValueError(f"{self.path}: the file is closed")

    def release(self) -> None:
        """Nothing to do: the input lives as long as somebody reads from it."""

    def close(self) -> None:
        self.closed = True


def _entry(info: arrow_fs.FileInfo) -> Entry:
    is_dir = info.type == arrow_fs.FileType.Directory
    when = info.mtime_ns if info.mtime_ns is not None else 0
    return Entry(PurePosixPath(info.path).name, int(info.size or 0), is_dir, max(0, when) // 1_000_000)


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    """What pyarrow raises, as the system would: errno and filename are there."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, str(error), path) from error
    except PermissionError as error:
        raise PermissionError(errno.EACCES, str(error), path) from error
    except (OSError, ArrowException) as error:
        number = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
        raise OSError(number, str(error), path) from error
