"""Storage on a real file system."""

from __future__ import annotations

import os
import shutil
import threading
from math import ceil
from pathlib import Path
from typing import Any

from penstock._native.mapping import Mapping
from penstock.files.lockfile import LockFile
from penstock.files.storage import Entry, Lock, SparseFile, StoragePath


class DiskStorage:
    """The machine's files. Remembers only new names that are still to be synced, and syncs that failed."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._new_names: set[str] = set()
        self._folders_to_sync: set[str] = set()
        self._folder_guard = threading.Lock()
        self._failed_syncs: dict[str, OSError] = {}

    def listdir(self, path: StoragePath) -> list[Entry]:
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    status = entry.stat()
                except FileNotFoundError:  # removed between the listing and the look
                    continue
                found.append(_entry(entry.name, status))
        return sorted(found, key=lambda entry: entry.name)

    def exists(self, path: StoragePath) -> bool:
        return Path(path).exists()

    def stat(self, path: StoragePath) -> Entry:
        return _entry(Path(path).name, Path(path).stat())

    def makedirs(self, path: StoragePath, *, later: bool = False) -> None:
        missing = []
        place = Path(path).absolute()
        while not place.is_dir():
            missing.append(place)
            place = place.parent
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            if later:
                with self._guard:
                    self._folders_to_sync.add(str(folder.parent))
            else:
                self.sync_dir(folder.parent)

    def rmdir(self, path: StoragePath) -> None:
        Path(path).rmdir()

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
        return Mapping.open(
            path, size, create=create, writable=writable, reserve=reserve, file_from=file_from
        )

    def open_sparse(
        self, path: StoragePath, size: int, *, create: bool = False, writable: bool = True
    ) -> SparseFile:
        return DiskSparseFile(self, os.fspath(path), size, create=create and writable, writable=writable)

    def read_file(self, path: StoragePath) -> bytes:
        return Path(path).read_bytes()

    def pread(self, path: StoragePath, position: int, count: int) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if hasattr(os, "posix_fadvise"):
                # Readahead brings large folios; small writes into them later make each sync a large one.
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            return _read_all(descriptor, position, count, os.fspath(path))
        finally:
            os.close(descriptor)

    def create_file(self, path: StoragePath, data: bytes = b"") -> None:
        self._write_whole(os.fspath(path), data)

    def write_atomic(self, path: StoragePath, data: bytes) -> None:
        target = os.fspath(path)
        fresh = f"{target}.tmp"
        try:
            self._write_whole(fresh, data)
            Path(fresh).replace(target)
        except BaseException:
            Path(fresh).unlink(missing_ok=True)
            raise
        self.sync_dir(Path(target).parent)

    @staticmethod
    def _write_whole(path: str, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            _write_all(descriptor, 0, data, path)
            os.fsync(descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error
        finally:
            os.close(descriptor)

    def unlink(self, path: StoragePath) -> None:
        Path(path).unlink()
        self._forget_new_name(os.fspath(path))
        with self._guard:
            self._failed_syncs.pop(os.fspath(path), None)

    def rename(self, source: StoragePath, target: StoragePath) -> None:
        Path(source).replace(target)

    def sync_dir(self, path: StoragePath) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        finally:
            os.close(descriptor)

    def truncate(self, path: StoragePath, size: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        finally:
            os.close(descriptor)

    def set_mtime(self, path: StoragePath, mtime_ms: int) -> None:
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def disk_usage(self, path: StoragePath) -> float:
        place = Path(path)
        while not place.exists() and place != place.parent:
            place = place.parent
        try:
            usage = shutil.disk_usage(place)
        except OSError:
            return -1.0
        whole = usage.used + usage.free  # without the blocks kept for root, as df counts
        return ceil(100 * usage.used / whole) / 100 if whole > 0 else -1.0

    def lock(self, path: StoragePath) -> Lock:
        return LockFile.acquire(path)

    # A new queue file's name and its folder's are synced with its first data, not at creation: 8 000 queues
    # are made in one go.

    def _remember_new_name(self, path: str) -> None:
        with self._guard:
            self._new_names.add(path)

    def _forget_new_name(self, path: str) -> bool:
        with self._guard:
            if path not in self._new_names:
                return False
            self._new_names.discard(path)
            return True

    def _sync_folders_above(self, folder: Path) -> None:
        """Make the names of folders durable that were made with ``later``: one sync for all of a folder."""
        with self._folder_guard:  # whoever finds nothing left to do must not be ahead of whoever does it
            while str(folder := folder.parent) in self._folders_to_sync:
                # Forgotten first: a folder that is made while we sync is remembered again.
                with self._guard:
                    self._folders_to_sync.discard(str(folder))
                try:
                    self.sync_dir(folder)
                except BaseException:
                    with self._guard:
                        self._folders_to_sync.add(str(folder))
                    raise

    # The system tells of a lost write once, to one descriptor. Queue files are closed and opened again at
    # will, so the storage keeps what it heard: no later sync of the file succeeds, until it is removed.

    def _remember_failed_sync(self, path: str, error: OSError) -> None:
        with self._guard:
            self._failed_syncs.setdefault(path, error)

    def _raise_failed_sync(self, path: str) -> None:
        error = self._failed_syncs.get(path)
        if error is not None:
            raise OSError(error.errno, error.strerror, path) from error


class DiskSparseFile:
    """A sparse file on disk: one descriptor, ``pwrite`` and ``pread``."""

    def __init__(self, storage: DiskStorage, path: str, size: int, *, create: bool, writable: bool) -> None:
        self._storage = storage
        self._path = path
        self._guard = threading.Lock()
        self._holds = 0
        self._closed = False
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        made = False
        try:
            self._descriptor = os.open(path, flags)
        except FileNotFoundError:
            if not create:
                raise
            self._descriptor = os.open(path, flags | os.O_CREAT, 0o644)
            made = True
        try:
            found = os.fstat(self._descriptor).st_size
            if found < size and create:
                os.ftruncate(self._descriptor, size)
                found = size
        except OSError as error:
            os.close(self._descriptor)
            if made:
                Path(path).unlink()
            raise OSError(error.errno, error.strerror, path) from error
        self._size = found
        if made:
            storage._remember_new_name(path)

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._size

    @property
    def memory(self) -> bytearray | None:
        return None

    @property
    def closed(self) -> bool:
        return self._closed

    def fileno(self) -> int:
        return self._descriptor

    def write(self, position: int, data: Any) -> None:
        count = memoryview(data).nbytes
        if position < 0 or position + count > self._size:
            raise ValueError(
                f"{self._path}: {count} bytes at {position} are outside the file of {self._size}"
            )
        self.hold()
        try:
            _write_all(self._descriptor, position, data, self._path)
        finally:
            self.release()

    def read(self, position: int, count: int) -> bytes:
        self.hold()
        try:
            return _read_all(self._descriptor, position, count, self._path)
        finally:
            self.release()

    def zero(self, begin: int, end: int) -> None:
        if begin < 0 or end < begin or end > self._size:
            raise ValueError(f"{self._path}: {begin}..{end} is outside the file of {self._size}")
        if begin == end:
            return
        # An unreserved mapping of the same file punches a hole where the system can, else writes zeros.
        mapping = Mapping.open(self._path, self._size)
        try:
            mapping.punch_zero(begin, end)
        finally:
            mapping.close()

    def sync(self) -> None:
        self._storage._raise_failed_sync(self._path)
        self.hold()
        try:
            os.fdatasync(self._descriptor) if hasattr(os, "fdatasync") else os.fsync(self._descriptor)
        except OSError as error:
            self._storage._remember_failed_sync(self._path, error)
            self._storage._raise_failed_sync(self._path)
        finally:
            self.release()
        if self._storage._forget_new_name(self._path):
            try:
                folder = Path(self._path).absolute().parent
                self._storage.sync_dir(folder)
                self._storage._sync_folders_above(folder)
            except BaseException:
                self._storage._remember_new_name(self._path)
                raise

    def map(self) -> Mapping:
        return Mapping.open(self._path, self._size, writable=False, advise_random=False)

    @property
    def held(self) -> bool:
        return self._holds > 0

    def hold(self) -> None:
        with self._guard:
            if self._closed:
                raise ValueError(f"{self._path}: the file is closed")
            self._holds += 1

    def release(self) -> None:
        with self._guard:
            self._holds -= 1
            self._finish()

    def close(self) -> None:
        with self._guard:
            self._closed = True
            self._finish()

    def _finish(self) -> None:
        if self._closed and self._holds == 0 and self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def _entry(name: str, status: os.stat_result) -> Entry:
    is_dir = (status.st_mode & 0o170000) == 0o040000
    return Entry(name, status.st_size, is_dir, status.st_mtime_ns // 1_000_000)


def _write_all(descriptor: int, position: int, data: Any, path: str) -> None:
    rest = memoryview(data).cast("B")
    try:
        while rest:
            done = os.pwrite(descriptor, rest, position)
            position += done
            rest = rest[done:]
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _read_all(descriptor: int, position: int, count: int, path: str) -> bytes:
    pieces = []
    try:
        while count > 0:
            piece = os.pread(descriptor, count, position)
            if not piece:
                break
            pieces.append(piece)
            position += len(piece)
            count -= len(piece)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
