"""Write buffers outside the page cache: append here, commit to the file in one write."""

from __future__ import annotations

import mmap
import platform
import threading
from collections import deque

DROPPED_PAGES_ARE_ZERO = platform.system() == "Linux"


class TransientStorePool:
    """``size`` buffers of ``file_size`` bytes, lent to new log files one each.

    ``real_commit`` False (a replica that copies bytes straight into the mapping) makes everything written
    readable without a commit. Buffers come zeroed: a file that ends in a blank is committed whole, and bytes
    of an older file behind the blank would look like records.
    """

    def __init__(self, size: int, file_size: int, *, real_commit: bool = True) -> None:
        self.size = size
        self.file_size = file_size
        self.real_commit = real_commit
        self._guard = threading.Lock()
        self._free: deque[mmap.mmap] = deque()
        self._made = 0
        self._destroyed = False

    @property
    def available(self) -> int:
        """Buffers that ``borrow`` can still give."""
        with self._guard:
            return len(self._free) + self.size - self._made

    def borrow(self) -> mmap.mmap | None:
        """A zeroed buffer, or None when all are lent: the file then works without one."""
        with self._guard:
            if self._destroyed:
                return None
            if self._free:
                return self._free.popleft()
            if self._made == self.size:
                return None
            self._made += 1
        # Anonymous and private: the system gives zeroed pages when they are first touched.
        return mmap.mmap(-1, self.file_size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def give_back(self, buffer: mmap.mmap) -> None:
        """Take a buffer back, zeroed, to the front of the line. Nobody may use it any more."""
        _zero(buffer)
        with self._guard:
            if not self._destroyed:
                self._free.appendleft(buffer)
                return
        buffer.close()

    def destroy(self) -> None:
        """Free the buffers that are not lent; the others go when they come back."""
        with self._guard:
            self._destroyed = True
            free, self._free = list(self._free), deque()
        for buffer in free:
            buffer.close()


def _zero(buffer: mmap.mmap) -> None:
    if DROPPED_PAGES_ARE_ZERO:
        buffer.madvise(mmap.MADV_DONTNEED)
        return
    buffer[:] = bytes(len(buffer))
