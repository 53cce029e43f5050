"""What a store asks of the place its bytes live in. Two bodies: the disk, and memory with a crash model.

Everything raises ``OSError`` with errno and filename, as the system does; a missing file is
``FileNotFoundError``.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol, TypeAlias

from penstock._native.mapping import Mapping

StoragePath: TypeAlias = str | PathLike[str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder."""

    name: str
    size: int
    is_dir: bool
    mtime_ms: int


class Lock(Protocol):
    """Ownership of a store directory, until ``release`` (which may be called twice)."""

    @property
    def path(self) -> str: ...

    def release(self) -> None: ...


class SparseFile(Protocol):
    """A file written and read by position, without blocks where nothing was written. For queue files.

    ``close`` waits for the last ``hold``: a descriptor is never closed under somebody who works with it.
    """

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Length of the file, holes included."""
        ...

    @property
    def memory(self) -> bytearray | None:
        """The bytes themselves when the storage is memory; None on disk. May be written by native code."""
        ...

    @property
    def closed(self) -> bool: ...

    def fileno(self) -> int:
        """The descriptor on disk, -1 in memory."""
        ...

    def write(self, position: int, data: Any) -> None:
        """Write inside ``size``. Not durable before ``sync``."""
        ...

    def read(self, position: int, count: int) -> bytes:
        """A copy; shorter at the end of the file."""
        ...

    def zero(self, begin: int, end: int) -> None:
        """Zeros in [begin, end); the blocks go back."""
        ...

    def sync(self) -> None:
        """Everything written is on disk, and so is the file's name if it is new."""
        ...

    def map(self) -> Mapping:
        """A read-only mapping of the whole file. Belongs to the caller; outlives ``close``."""
        ...

    @property
    def held(self) -> bool:
        """Whether somebody works with it."""
        ...

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def close(self) -> None: ...


class Storage(Protocol):
    """A tree of folders and files."""

    def listdir(self, path: StoragePath) -> list[Entry]:
        """The names in a folder, sorted."""
        ...

    def exists(self, path: StoragePath) -> bool: ...

    def stat(self, path: StoragePath) -> Entry: ...

    def makedirs(self, path: StoragePath, *, later: bool = False) -> None:
        """Make a folder and those above it, durably. Fine if it is there.

        ``later``: durable not before a sparse file in it, made afterwards, is synced.
        """
        ...

    def rmdir(self, path: StoragePath) -> None:
        """Remove an empty folder."""
        ...

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
        """Map a file of ``size`` bytes. ``create`` makes it durably, or leaves nothing; ``reserve`` gives it
        its blocks first, so that storing into the mapping cannot meet a full disk."""
        ...

    def open_sparse(
        self, path: StoragePath, size: int, *, create: bool = False, writable: bool = True
    ) -> SparseFile:
        """Open a file for writing and reading by position; ``create`` makes or lengthens it to ``size``."""
        ...

    def read_file(self, path: StoragePath) -> bytes: ...

    def pread(self, path: StoragePath, position: int, count: int) -> bytes: ...

    def create_file(self, path: StoragePath, data: bytes = b"") -> None:
        """A new or replaced file with this content, on disk but not atomic. The folder is not synced."""
        ...

    def write_atomic(self, path: StoragePath, data: bytes) -> None:
        """Replace a file: after a crash it holds the old content or the new, never a mixture; durable on
        return."""
        ...

    def unlink(self, path: StoragePath) -> None: ...

    def rename(self, source: StoragePath, target: StoragePath) -> None: ...

    def sync_dir(self, path: StoragePath) -> None:
        """Names made, renamed and removed in this folder are durable."""
        ...

    def truncate(self, path: StoragePath, size: int) -> None:
        """Cut or lengthen a file, durably. Nobody may have it mapped beyond ``size``."""
        ...

    def set_mtime(self, path: StoragePath, mtime_ms: int) -> None: ...

    def disk_usage(self, path: StoragePath) -> float:
        """Used part of the partition, 0..1, in steps of a percent rounded up; -1 when it cannot be told."""
        ...

    def lock(self, path: StoragePath) -> Lock:
        """Take the lock file at ``path`` or raise ``StoreLocked``."""
        ...
