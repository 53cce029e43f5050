"""Queue files that are open, at most so many: thousands of queues must not cost thousands of descriptors."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.files.storage import SparseFile, Storage, StoragePath


class FileCache:
    """Open sparse files, the least recently used closed first. Written bytes survive the closing: the system
    has them.

    A file that is in use stays, and others go for it; more than ``limit`` are open only while more than that
    are in use.
    """

    def __init__(self, storage: Storage, limit: int = 512, *, writable: bool = True) -> None:
        if limit < 1:
            raise ValueError(f"a file cache holds at least one file, not {limit}")
        self.storage = storage
        self.limit = limit
        self._writable = writable
        self._guard = threading.Lock()
        self._open: OrderedDict[str, SparseFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def acquire(self, path: StoragePath, size: int, *, create: bool = False) -> SparseFile:
        """The file, held: pair with its ``release``. ``create`` makes it when it is not there."""
        name = str(path)
        with self._guard:
            file = self._open.get(name)
            if file is not None:
                self._open.move_to_end(name)
                file.hold()
                return file
        fresh = self.storage.open_sparse(name, size, create=create, writable=self._writable)
        surplus: list[SparseFile] = []
        with self._guard:
            file = self._open.get(name)
            if file is None:
                file = self._open[name] = fresh
            else:  # another thread was quicker: one descriptor per file
                surplus.append(fresh)
            self._open.move_to_end(name)
            file.hold()
            while len(self._open) > self.limit and (old := self._take_idle()) is not None:
                surplus.append(old)
        for old in surplus:
            old.close()
        return file

    def _take_idle(self) -> SparseFile | None:
        """Take out the file that nobody has used for longest; None when all are in use."""
        for _ in range(len(self._open)):
            name, file = self._open.popitem(last=False)
            if not file.held:
                return file
            self._open[name] = file  # in use now, so it counts as used last: the next look does not meet it
        return None

    @contextmanager
    def use(self, path: StoragePath, size: int, *, create: bool = False) -> Iterator[SparseFile]:
        """The file, for the length of a ``with`` block."""
        file = self.acquire(path, size, create=create)
        try:
            yield file
        finally:
            file.release()

    def forget(self, path: StoragePath) -> None:
        """Close one file: it is about to be removed or replaced."""
        with self._guard:
            file = self._open.pop(str(path), None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all of them."""
        with self._guard:
            files = list(self._open.values())
            self._open.clear()
        for file in files:
            file.close()


def raise_descriptor_limit(wanted: int) -> int:
    """Raise this process's own soft limit of open files to ``wanted``, as far as the hard limit lets it; the
    limit that holds now. Only commands call this: a library does not change its host's limits."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):
        return soft
    return target
