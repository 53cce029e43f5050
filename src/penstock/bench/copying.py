"""Copies of store directories that cost what is in them, not what their files could hold."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_CHUNK = 8 << 20


def copy_store(source: Path, target: Path) -> None:
    """A copy with the holes of the original, and with blocks reserved where the original has them."""
    shutil.copytree(source, target, copy_function=copy_sparse)


def copy_sparse(source: str, target: str) -> None:
    """Copy one file, data only."""
    with open(source, "rb") as read, open(target, "wb") as write:
        status = os.fstat(read.fileno())
        os.truncate(write.fileno(), status.st_size)
        reserved = status.st_blocks * 512 >= status.st_size > 0
        if reserved and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(write.fileno(), 0, status.st_size)
        for start, end in _data(read.fileno(), status.st_size):
            for position in range(start, end, _CHUNK):
                chunk = os.pread(read.fileno(), min(_CHUNK, end - position), position)
                os.pwrite(write.fileno(), chunk, position)
    shutil.copystat(source, target)


def _data(fd: int, size: int) -> list[tuple[int, int]]:
    """The ranges of a file that hold data, as far as the file system can tell."""
    ranges = []
    position = 0
    while position < size:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError:  # ENXIO: nothing but a hole up to the end
            break
        position = os.lseek(fd, start, os.SEEK_HOLE)
        ranges.append((start, position))
    return ranges
