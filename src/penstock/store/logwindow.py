"""A movable view of a log file, read with ``pread`` into one reused buffer.

Never a mapping: a cut file or a bad sector under somebody else's directory must be an error, not a signal.
"""

from __future__ import annotations

import os

from penstock.files.storage import SparseFile, Storage
from penstock.store.sizes import QueueFile


class LogWindow:
    """Some bytes of one file at a time. A view is valid until the next ``load``."""

    def __init__(self, storage: Storage, capacity: int) -> None:
        self._storage = storage
        self._usual = capacity
        self._buffer = bytearray(capacity)
        self._file: SparseFile | None = None
        self._path = ""

    @property
    def capacity(self) -> int:
        return len(self._buffer)

    def grow(self, capacity: int) -> None:
        """Room for a record of this length; the next ``shrink`` gives it back."""
        if capacity > len(self._buffer):
            self._buffer = bytearray(capacity)

    def shrink(self) -> None:
        """Back to the usual size."""
        if len(self._buffer) > self._usual:
            self._buffer = bytearray(self._usual)

    def load(self, file: QueueFile, position: int, count: int | None = None) -> memoryview:
        """Bytes of the file from ``position`` on, as many as fit; shorter at the end of the file.

        Raises OSError when the system cannot read them.
        """
        opened = self._open(file)
        want = min(self.capacity if count is None else count, file.size - position, self.capacity)
        view = memoryview(self._buffer)
        done = 0
        descriptor = opened.fileno()
        while done < want:
            if descriptor >= 0:
                got = os.preadv(descriptor, [view[done:want]], position + done)
            else:
                piece = opened.read(position + done, want - done)
                got = len(piece)
                view[done : done + got] = piece
            if got == 0:
                break
            done += got
        return view[:done].toreadonly()

    def next_data(self, file: QueueFile, position: int) -> int:
        """The first place from ``position`` on that the file system keeps blocks for; the end if none."""
        descriptor = self._open(file).fileno()
        if descriptor < 0 or not hasattr(os, "SEEK_DATA"):
            return position
        try:
            return os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError:
            return file.size

    def _open(self, file: QueueFile) -> SparseFile:
        if self._file is None or self._path != file.path:
            self.close()
            self._file = self._storage.open_sparse(file.path, file.size, writable=False)
            self._path = file.path
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
