"""Injected failures of the memory storage: which calls fail, how often, with what."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch

from penstock.files.memoryfile import MemoryFile

OPERATIONS = frozenset({"write", "sync", "allocate", "create", "rename", "unlink", "sync_dir", "read"})


@dataclass(slots=True)
class Fault:
    """Fail calls of one kind on matching paths: ``left`` times (None: for ever), after ``after`` good
    ones."""

    operation: str
    error: int
    left: int | None
    path_glob: str
    after: int

    def matches(self, operation: str, path: str) -> bool:
        return self.operation == operation and (
            fnmatch(path, self.path_glob) or fnmatch(path, f"*/{self.path_glob}")
        )


class Faults:
    """The faults to come. Native code writes and syncs without asking, so they are handed to the mappings
    too.

    Not locked: the storage calls it under its own lock.
    """

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, operation: str, error: int, times: int, path_glob: str, after: int) -> None:
        if operation not in OPERATIONS:
            raise ValueError(f"no such operation: {operation}; one of {', '.join(sorted(OPERATIONS))}")
        if error not in errno.errorcode:
            raise ValueError(f"not an errno: {error}")
        self._faults.append(Fault(operation, error, times or None, path_glob, after))

    def clear(self) -> None:
        self._faults.clear()

    def check(self, operation: str, path: str, files: Iterable[MemoryFile]) -> None:
        """Raise what is due for this call."""
        if not self._faults:
            return
        known = list(files)
        self.settle(known)
        fault = next((fault for fault in self._faults if fault.matches(operation, path)), None)
        if fault is None:
            return
        if fault.after > 0:
            fault.after -= 1
            self.arm(known)
            return
        if fault.left is not None:
            fault.left -= 1
        self._drop_used()
        self.arm(known)
        raise OSError(fault.error, os.strerror(fault.error), path)

    def arm(self, files: Iterable[MemoryFile]) -> None:
        """Tell the mappings what is due."""
        for file in files:
            write, sync = self._due("write", file.path), self._due("sync", file.path)
            for mapping in file.mappings:
                mapping.inject(
                    write_error=write.error if write else 0,
                    write_times=(write.left or 0) if write else 0,
                    sync_error=sync.error if sync else 0,
                    sync_times=(sync.left or 0) if sync else 0,
                )

    def settle(self, files: Iterable[MemoryFile]) -> None:
        """Count what native code met since ``arm``."""
        known = list(files)
        met = False
        for file in known:
            write, sync = self._due("write", file.path), self._due("sync", file.path)
            for mapping in file.mappings:
                write_error, write_left, sync_error, sync_left = mapping.injected
                for fault, error, times in ((write, write_error, write_left), (sync, sync_error, sync_left)):
                    left = times if error else 0
                    if fault is not None and fault.left is not None and left < fault.left:
                        fault.left = left
                        met = True
        if met:
            self._drop_used()
            self.arm(known)

    def _due(self, operation: str, path: str) -> Fault | None:
        fault = next((fault for fault in self._faults if fault.matches(operation, path)), None)
        return fault if fault is not None and fault.after == 0 else None

    def _drop_used(self) -> None:
        self._faults = [fault for fault in self._faults if fault.left is None or fault.left > 0]
