"""Files in a dict, with what a sync made durable kept apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Entry:
    name: str
    size: int
    is_dir: bool
    mtime_ms: int


@dataclass
class FakeSparse:
    storage: FakeStorage
    path: str
    closed: bool = False

    @property
    def size(self) -> int:
        return len(self.storage.files[self.path])

    def write(self, position: int, data: Any) -> None:
        memory = self.storage.files[self.path]
        assert position + len(data) <= len(memory)
        memory[position : position + len(data)] = data

    def read(self, position: int, count: int) -> bytes:
        return bytes(self.storage.files[self.path][position : position + count])

    def zero(self, begin: int, end: int) -> None:
        self.storage.files[self.path][begin:end] = bytes(end - begin)

    def sync(self) -> None:
        self.storage.durable[self.path] = bytes(self.storage.files[self.path])

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeStorage:
    files: dict[str, bytearray] = field(default_factory=dict)
    durable: dict[str, bytes] = field(default_factory=dict)

    def exists(self, path: Any) -> bool:
        return str(path) in self.files

    def stat(self, path: Any) -> Entry:
        return Entry(str(path).rsplit("/", 1)[-1], len(self.files[str(path)]), False, 0)

    def listdir(self, path: Any) -> list[Entry]:
        prefix = f"{path}/"
        return [
            Entry(name[len(prefix) :], len(data), False, 0)
            for name, data in sorted(self.files.items())
            if name.startswith(prefix) and "/" not in name[len(prefix) :]
        ]

    def makedirs(self, path: Any) -> None:
        pass

    def read_file(self, path: Any) -> bytes:
        try:
            return bytes(self.files[str(path)])
        except KeyError:
            raise FileNotFoundError(2, "no such file", str(path)) from None

    def pread(self, path: Any, position: int, count: int) -> bytes:
        return self.read_file(path)[position : position + count]

    def write_atomic(self, path: Any, data: bytes) -> None:
        self.files[str(path)] = bytearray(data)
        self.durable[str(path)] = bytes(data)

    def unlink(self, path: Any) -> None:
        del self.files[str(path)]
        self.durable.pop(str(path), None)

    def open_sparse(self, path: Any, size: int, *, create: bool = False) -> FakeSparse:
        name = str(path)
        if name not in self.files:
            if not create:
                raise FileNotFoundError(2, "no such file", name)
            self.files[name] = bytearray(size)
        if create and len(self.files[name]) < size:
            self.files[name].extend(bytes(size - len(self.files[name])))
        return FakeSparse(self, name)

    def crashed(self) -> FakeStorage:
        """What a machine finds that lost its power now."""
        files = {name: bytearray(data) for name, data in self.durable.items()}
        return FakeStorage(files, dict(self.durable))
