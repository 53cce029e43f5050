"""The ``lock`` file: one owner of a store directory, Java's processes included.

An open-file-description lock on byte 0. It meets the record lock that Java's ``FileLock`` takes, and it
meets a second opening in the same process; ``flock`` does not see Java, and ``lockf`` is lost when any
descriptor of the file closes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

from penstock.errors import StoreLocked
from penstock.files.storage import StoragePath

CONTENT = b"lock"


def _flock(kind: int) -> bytes:
    """``struct flock`` for byte 0; the field order differs between Linux and macOS."""
    if hasattr(fcntl, "F_FULLFSYNC"):
        return struct.pack("qqihh", 0, 1, 0, kind, os.SEEK_SET)
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, 0, 1, 0)


_SETLK: int = getattr(fcntl, "F_OFD_SETLK", 90 if hasattr(fcntl, "F_FULLFSYNC") else 37)


class LockFile:
    """A held lock. Taken by ``acquire``; gone with ``release`` or with the process."""

    __slots__ = ("_descriptor", "_path", "_process")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._process = os.getpid()

    @classmethod
    def acquire(cls, path: StoragePath) -> LockFile:
        """Lock without waiting, or raise ``StoreLocked``. Writes the four bytes ``lock`` as RocketMQ does."""
        name = os.fspath(path)
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.fcntl(descriptor, _SETLK, _flock(fcntl.F_WRLCK))
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise OSError(error.errno, error.strerror, name) from error
                raise StoreLocked(
                    f"another store owns this directory: {_holder(descriptor)}",
                    file=name,
                    hint="close it, or open this directory read-only",
                ) from None
            os.pwrite(descriptor, CONTENT, 0)
            os.fsync(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(name, descriptor)

    @property
    def path(self) -> str:
        return self._path

    @property
    def held(self) -> bool:
        return self._descriptor >= 0

    def release(self) -> None:
        """Unlock and close; the file stays. In a forked child the lock is the parent's and only the copy
        closes."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        if os.getpid() == self._process:
            # Unlocked by hand: a forked child may still have the same open file, which would keep it locked.
            fcntl.fcntl(descriptor, _SETLK, _flock(fcntl.F_UNLCK))
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    """Who has the file open, as far as this user may see."""
    status = os.fstat(descriptor)
    mine = os.getpid()
    opened_here = 0
    others: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = list((process / "fd").iterdir())
        except OSError:
            continue
        for link in links:
            try:
                found = link.stat()
            except OSError:
                continue
            if (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino):
                if int(process.name) == mine:
                    opened_here += 1
                else:
                    others.append(_describe(process))
                    break
    if others:
        return ", ".join(sorted(others))
    if opened_here > 1:
        return f"this process ({mine})"
    return "a process that cannot be named"


def _describe(process: Path) -> str:
    try:
        name = (process / "comm").read_text().strip()
    except OSError:
        name = "?"
    return f"process {process.name} ({name})"
