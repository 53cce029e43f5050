"""Putting a folder that was built beside another in its place."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_CHUNK = 4 << 20
_OLD = ".old"


def exchange(present: Path, built: Path) -> None:
    """Let two folders of one file system change places: in one step where the system can do that.

    Elsewhere the present one is moved aside first; ``restore`` undoes what was stopped in between.
    """
    if not present.exists():
        built.rename(present)
        return
    if _exchange_at_once(present, built):
        return
    aside = built.with_name(built.name + _OLD)
    present.rename(aside)
    built.rename(present)


def restore(root: Path, build: Path) -> None:
    """Bring back folders that an earlier run had moved aside and not replaced, and remove what it built."""
    if not build.exists():
        return
    for aside in build.glob(f"*{_OLD}"):
        present = root / aside.name.removesuffix(_OLD)
        if not present.exists():
            aside.rename(present)
    shutil.rmtree(build)


def _exchange_at_once(one: Path, other: Path) -> bool:
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(one))


def differing_files(present: Path, built: Path) -> list[str]:
    """Files that are not the same in both folders, or only in one; relative, sorted."""
    ours, theirs = _files(present), _files(built)
    return sorted(
        name
        for name in ours.keys() | theirs.keys()
        if name not in ours or name not in theirs or not same_bytes(ours[name], theirs[name])
    )


def _files(folder: Path) -> dict[str, Path]:
    return {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}


def same_bytes(one: Path, other: Path) -> bool:
    """Whether two files are equal. Where both have holes nothing is read."""
    with one.open("rb", buffering=0) as first, other.open("rb", buffering=0) as second:
        size = os.fstat(first.fileno()).st_size
        if size != os.fstat(second.fileno()).st_size:
            return False
        at = 0
        while at < size:
            at = min(_next_data(first.fileno(), at, size), _next_data(second.fileno(), at, size))
            count = min(_CHUNK, size - at)
            if count and os.pread(first.fileno(), count, at) != os.pread(second.fileno(), count, at):
                return False
            at += count
    return True


def _next_data(descriptor: int, at: int, size: int) -> int:
    if not hasattr(os, "SEEK_DATA"):
        return at
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        raise
