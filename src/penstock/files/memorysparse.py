"""Queue files and the lock of the memory storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock._native.mapping import Mapping
from penstock.files.memoryfile import MemoryFile


class MemoryLock:
    """The lock of a memory storage; a crash image starts without it."""

    def __init__(self, path: str, held: set[str]) -> None:
        self._path = path
        self._all_held = held
        self._held = True

    @property
    def path(self) -> str:
        return self._path

    def release(self) -> None:
        if self._held:
            self._held = False
            self._all_held.discard(self._path)


class MemorySparseFile:
    """A queue file in memory. Closing it only forbids further use."""

    def __init__(
        self,
        file: MemoryFile,
        *,
        write: Callable[[MemoryFile, int, Any], None],
        sync_name: Callable[[str], None],
        check: Callable[[str, str], None],
    ) -> None:
        self._file = file
        self._write = write
        self._sync_name = sync_name
        self._check = check
        self._closed = False
        self._holds = 0

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def size(self) -> int:
        return len(self._file.body)

    @property
    def memory(self) -> bytearray | None:
        self._file.watch()
        return self._file.body

    @property
    def closed(self) -> bool:
        return self._closed

    def fileno(self) -> int:
        return -1

    def write(self, position: int, data: Any) -> None:
        self._need_open()
        content = bytes(data)
        if position < 0 or position + len(content) > self.size:
            raise ValueError(
                f"{self.path}: {len(content)} bytes at {position} are outside the file of {self.size}"
            )
        self._write(self._file, position, content)

    def read(self, position: int, count: int) -> bytes:
        self._need_open()
        self._check("read", self.path)
        return bytes(self._file.body[position : position + count])

    def zero(self, begin: int, end: int) -> None:
        self._need_open()
        if begin < 0 or end < begin or end > self.size:
            raise ValueError(f"{self.path}: {begin}..{end} is outside the file of {self.size}")
        if begin < end:
            self._file.before("write")
            self._file.write(begin, bytes(end - begin))

    def sync(self) -> None:
        self._need_open()
        self._file.before("sync")
        self._file.on_sync()
        self._sync_name(self.path)

    def map(self) -> Mapping:
        self._need_open()
        return Mapping.over(self._file.body, 0, None, path=self.path, writable=False, reserved=False)

    @property
    def held(self) -> bool:
        return self._holds > 0

    def hold(self) -> None:
        self._need_open()
        self._holds += 1

    def release(self) -> None:
        self._holds -= 1

    def close(self) -> None:
        self._closed = True

    def _need_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self.path}: the file is closed")
