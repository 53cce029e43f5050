"""Storage in memory, with a crash model and injected faults.

The model, as unkind as a disk may be: a page (4096 bytes) that is not synced may be on disk in any version
it had since it last was; so may the size of a file; making, renaming and removing a name each happened or
did not until the folder is synced, independently of one another. Folders themselves are durable when made.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import PurePath
from typing import Any

from penstock._native.mapping import Mapping
from penstock._native.pages import differing_pages
from penstock.clock import Clock, SystemClock
from penstock.errors import StoreLocked
from penstock.files.crash import SECTOR, Cut, NameChange, apply_change, choices
from penstock.files.faults import Faults
from penstock.files.memoryfile import PAGE, MemoryFile
from penstock.files.memorysparse import MemoryLock, MemorySparseFile
from penstock.files.storage import Entry, Lock, SparseFile, StoragePath


class MemoryStorage:
    """Files in memory. ``crash_states`` gives the storages that a power cut at this moment may leave.

    Memory that is written directly (through a mapping, or natively) is looked at whenever the storage is
    called and by ``observe``; a version between two looks goes unseen. ``on_step(operation, path)`` is
    called inside the calls that have several steps, so a test can cut the power there too.
    """

    def __init__(self, *, capacity: int | None = None, clock: Clock | None = None) -> None:
        self.capacity = capacity
        self.on_step: Callable[[str, str], None] | None = None
        self._clock = clock or SystemClock()
        self._guard = threading.RLock()
        self._time = 0
        self._folders: set[str] = {"/", "."}
        self._names: dict[str, MemoryFile] = {}
        self._durable: dict[str, MemoryFile] = {}
        self._changes: list[NameChange] = []
        self._faults = Faults()
        self._locked: set[str] = set()

    # -- names -------------------------------------------------------------------------------------

    def listdir(self, path: StoragePath) -> list[Entry]:
        folder = _norm(path)
        with self._guard:
            self._need_folder(folder)
            found = {_base(name): self._entry(name) for name in self._names if _parent(name) == folder}
            for name in self._folders:
                if name != folder and _parent(name) == folder:
                    found[_base(name)] = Entry(_base(name), 0, True, 0)
        return [found[name] for name in sorted(found)]

    def exists(self, path: StoragePath) -> bool:
        name = _norm(path)
        return name in self._names or name in self._folders

    def stat(self, path: StoragePath) -> Entry:
        name = _norm(path)
        with self._guard:
            if name in self._folders:
                return Entry(PurePath(name).name, 0, True, 0)
            return self._entry(name)

    def _entry(self, name: str) -> Entry:
        file = self._file(name)
        file.observe()
        return Entry(_base(name), len(file.body), False, file.mtime_ms)

    def makedirs(self, path: StoragePath, *, later: bool = False) -> None:
        name = _norm(path)
        with self._guard:
            while name not in self._folders:
                if name in self._names:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
                self._folders.add(name)
                name = _parent(name)

    def rmdir(self, path: StoragePath) -> None:
        name = _norm(path)
        with self._guard:
            if self.listdir(name):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), name)
            self._folders.discard(name)

    def unlink(self, path: StoragePath) -> None:
        name = _norm(path)
        with self._guard:
            file = self._file(name)
            self._check("unlink", name)
            file.observe()
            self._change((name, None))
        self._step("unlink", name)

    def rename(self, source: StoragePath, target: StoragePath) -> None:
        old, new = _norm(source), _norm(target)
        with self._guard:
            file = self._file(old)
            self._need_folder(_parent(new))
            self._check("rename", new)
            file.path = new
            self._change((old, None), (new, file))
        self._step("rename", new)

    def sync_dir(self, path: StoragePath) -> None:
        folder = _norm(path)
        with self._guard:
            self._need_folder(folder)
            self._check("sync_dir", folder)
            waiting = []
            for change in self._changes:
                if any(_parent(name) == folder for name, _ in change.names):
                    apply_change(self._durable, change)
                else:
                    waiting.append(change)
            self._changes = waiting
            for name in [name for name in self._durable if _parent(name) not in self._folders]:
                if folder in map(str, PurePath(name).parents):
                    del self._durable[name]
        self._step("sync_dir", folder)

    def _sync_name(self, name: str) -> None:
        """Make a new name durable, as a queue file does with its first data."""
        with self._guard:
            if any(name == changed for change in self._changes for changed, _ in change.names):
                self.sync_dir(_parent(name))

    def _change(self, *names: tuple[str, MemoryFile | None]) -> None:
        self.observe()
        change = NameChange(self._tick(), names)
        self._changes.append(change)
        apply_change(self._names, change)

    # -- files -------------------------------------------------------------------------------------

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
        name = _norm(path)
        if size <= 0 or ((create or reserve) and not writable):
            raise ValueError(
                f"{name}: a mapping needs a positive size, and to create or reserve, to be writable"
            )
        with self._guard:
            file = self._make(name, size, reserve) if create else self._file(name)
            if len(file.body) < size:
                raise OSError(errno.EINVAL, f"file is {len(file.body)} bytes long, not {size}", name)
            if reserve and not file.reserved:
                self._check("allocate", name)
                self._need_space(size - _blocks(file), name)
                file.reserved = True
            if writable:
                file.watch()
            memory = file.body if len(file.body) == size else memoryview(file.body)[:size]
            mapping = Mapping.over(
                memory, file_from, file, path=name, writable=writable, reserved=file.reserved
            )
            file.mappings.add(mapping)
            self._faults.arm([file])
        return mapping

    def _make(self, name: str, size: int, reserve: bool) -> MemoryFile:
        """A durable file of ``size``, as Mapping.open makes it: on failure there is none."""
        made = name not in self._names
        file = self._new(name) if made else self._names[name]
        old_size = len(file.body)
        if old_size > size:
            raise OSError(errno.EINVAL, f"file is {old_size} bytes long, not {size}", name)
        if old_size == size:
            return file
        try:
            self._step("create", name)
            self._check("allocate", name)
            if reserve:
                self._need_space(size, name)
            for part in (size // 2, size):  # a large file gets its blocks in several transactions
                if part > len(file.body):
                    file.resize(part)
                    self._step("allocate", name)
            file.reserved = reserve
            file.before("sync")
            file.on_sync()
            self._step("sync", name)
            if made:
                self.sync_dir(_parent(name))
        except BaseException:
            if made:
                self._change((name, None))
            else:
                file.resize(old_size)
            raise
        return file

    def open_sparse(
        self, path: StoragePath, size: int, *, create: bool = False, writable: bool = True
    ) -> SparseFile:
        name = _norm(path)
        with self._guard:
            create = create and writable
            file = self._new(name) if create and name not in self._names else self._file(name)
            if create and len(file.body) < size:
                file.resize(size)
        self._step("create", name)
        return MemorySparseFile(file, write=self.write_into, sync_name=self._sync_name, check=self._check)

    def read_file(self, path: StoragePath) -> bytes:
        with self._guard:
            self._check("read", _norm(path))
            return bytes(self._file(_norm(path)).body)

    def pread(self, path: StoragePath, position: int, count: int) -> bytes:
        with self._guard:
            self._check("read", _norm(path))
            return bytes(self._file(_norm(path)).body[position : position + count])

    def create_file(self, path: StoragePath, data: bytes = b"") -> None:
        name = _norm(path)
        with self._guard:
            if name in self._names:
                file = self._names[name]
                file.resize(0)
            else:
                file = self._new(name)
            self._step("create", name)
            self.write_into(file, 0, data)
            self._step("write", name)
            file.before("sync")
            file.on_sync()
        self._step("sync", name)

    def write_atomic(self, path: StoragePath, data: bytes) -> None:
        name = _norm(path)
        fresh = f"{name}.tmp"
        with self._guard:
            try:
                self.create_file(fresh, data)
                self.rename(fresh, name)
            except OSError:
                if fresh in self._names:
                    self._change((fresh, None))
                raise
            self.sync_dir(_parent(name))

    def truncate(self, path: StoragePath, size: int) -> None:
        name = _norm(path)
        with self._guard:
            file = self._file(name)
            self._check("write", name)
            file.resize(size)
            self._step("truncate", name)
            file.before("sync")
            file.on_sync()

    def set_mtime(self, path: StoragePath, mtime_ms: int) -> None:
        file = self._file(_norm(path))
        file.observe()
        file.mtime_ms = mtime_ms

    def disk_usage(self, path: StoragePath) -> float:
        if not self.capacity:
            return -1.0 if self.capacity == 0 else 0.0
        return ceil(100 * self.used / self.capacity) / 100

    def lock(self, path: StoragePath) -> Lock:
        name = _norm(path)
        with self._guard:
            if name in self._locked:
                raise StoreLocked(
                    "another store owns this directory: this process",
                    file=name,
                    hint="close it, or open this directory read-only",
                )
            self.create_file(name, b"lock")
            self._locked.add(name)
        return MemoryLock(name, self._locked)

    def write_into(self, file: MemoryFile, position: int, data: Any) -> None:
        """Write, lengthening the file if need be; nothing is written when the space does not suffice."""
        content = bytes(data)
        with self._guard:
            self._before("write", file)
            if not content:
                return
            end = position + len(content)
            touched = set(range(position // PAGE, (end - 1) // PAGE + 1))
            if not file.reserved:
                self._need_space(PAGE * len(touched - file.allocated), file.path)
            if end > len(file.body):
                file.resize(end)
            file.write(position, content)

    @property
    def used(self) -> int:
        """Bytes of the blocks that files have."""
        with self._guard:
            return sum(_blocks(file) for file in self._names.values())

    def _need_space(self, count: int, name: str) -> None:
        if self.capacity is not None and count > 0 and self.used + count > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    def _new(self, name: str) -> MemoryFile:
        self._need_folder(_parent(name))
        if name in self._folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        self._check("create", name)
        file = self._build(name, bytearray())
        self._change((name, file))
        return file

    def _build(self, name: str, body: bytearray) -> MemoryFile:
        return MemoryFile(
            name, body, tick=self._tick, before=self._before, clock=self._clock, guard=self._guard
        )

    def _file(self, name: str) -> MemoryFile:
        file = self._names.get(name)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return file

    def _need_folder(self, folder: str) -> None:
        if folder not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)

    def _tick(self) -> int:
        with self._guard:
            self._time += 1
            return self._time

    def _step(self, operation: str, path: str) -> None:
        if self.on_step is not None:
            self.on_step(operation, path)

    # -- faults ------------------------------------------------------------------------------------

    def fail(
        self, operation: str, error: int = errno.EIO, times: int = 1, path_glob: str = "*", after: int = 0
    ) -> None:
        """Make calls fail: "write", "sync", "allocate", "create", "rename", "unlink", "sync_dir" or "read".

        After ``after`` good ones, ``times`` times (0: until ``heal``). Native writes and syncs fail alike.
        """
        with self._guard:
            self._faults.settle(self._names.values())
            self._faults.add(operation, error, times, path_glob, after)
            self._faults.arm(self._names.values())

    def heal(self) -> None:
        """No more injected faults."""
        with self._guard:
            self._faults.clear()
            self._faults.arm(self._names.values())

    def _before(self, operation: str, file: MemoryFile) -> None:
        """Asked by a file before a call that would reach the disk."""
        with self._guard:
            if operation == "sync":
                self.observe()
            else:
                file.observe()
            self._check(operation, file.path)
            if operation == "allocate":
                self._need_space(len(file.body) - _blocks(file), file.path)
                file.reserved = True

    def _check(self, operation: str, path: str) -> None:
        with self._guard:
            self._faults.check(operation, path, self._names.values())

    def flip_bit(self, path: StoragePath, position: int, bit: int = 0) -> None:
        """A bit of a file turns, on disk and in memory."""
        name = _norm(path)
        with self._guard:
            self.overwrite(name, position, bytes([self._file(name).body[position] ^ (1 << bit)]))

    def overwrite(self, path: StoragePath, position: int, data: bytes) -> None:
        """Damage: these bytes are what is on disk now."""
        with self._guard:
            file = self._file(_norm(path))
            file.write(position, data)
            for number in range(position // PAGE, (position + len(data) - 1) // PAGE + 1):
                file.pages.pop(number, None)

    # -- the crash ---------------------------------------------------------------------------------

    def observe(self) -> None:
        """Look at all memory that is written directly, and record what changed."""
        with self._guard:
            for file in list(self._names.values()):
                file.observe()

    def crash_states(self, limit: int = 256, seed: int = 0, *, torn: bool = False) -> Iterator[MemoryStorage]:
        """Storages that a power cut now may leave: all of them when there are few, a chosen ``limit``
        otherwise.

        ``torn`` adds, for each open page, one state in which only some of its first sectors are new.
        """
        with self._guard:
            self.observe()
            cut = Cut(self._durable, self._changes)
        rng = random.Random(seed)
        for choice in choices(cut.times, limit, rng):
            yield self._image(cut.contents(choice))
        if torn:
            for place in cut.page_places:
                yield self._image(cut.contents(cut.kept, torn={place: rng.randrange(1, PAGE // SECTOR)}))

    def copy(self) -> MemoryStorage:
        """A storage with the same files, all durable: what a clean shutdown of the machine leaves."""
        with self._guard:
            self.observe()
            return self._image({name: bytes(file.body) for name, file in self._names.items()})

    def _image(self, contents: dict[str, bytes]) -> MemoryStorage:
        result = MemoryStorage(capacity=self.capacity, clock=self._clock)
        for folder in self._folders:
            result.makedirs(folder)
        for name, content in contents.items():
            result.makedirs(_parent(name))
            file = result._build(name, bytearray(content))
            file.allocated = set(differing_pages(content, bytes(len(content)), PAGE))
            known = self._names.get(name) or self._durable.get(name)
            if known is not None:
                file.reserved, file.mtime_ms = known.reserved, known.mtime_ms
            result._names[name] = result._durable[name] = file
        return result


def _norm(path: StoragePath) -> str:
    return os.path.normpath(os.fspath(path))


def _parent(name: str) -> str:
    """The folder of a normalized name. Crash tests ask a million times: no path objects here."""
    return name.rpartition("/")[0] or ("/" if name.startswith("/") else ".")


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _blocks(file: MemoryFile) -> int:
    return len(file.body) if file.reserved else PAGE * len(file.allocated)
