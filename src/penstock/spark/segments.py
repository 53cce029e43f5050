"""Directories that are not quite a store: segments of a log alone, and stores that nobody here can lock."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import PurePosixPath

from penstock.config import StoreConfig
from penstock.errors import StoreError
from penstock.files.storage import Storage
from penstock.format.checkpoint import Checkpoint
from penstock.store.directory import StoreDirectory
from penstock.store.sizes import QueueFile, files_of


class RemoteDirectory(StoreDirectory):
    """A store directory behind a URI: its lock says nothing here, so no owner is seen."""

    @cached_property
    def is_live(self) -> bool:
        return False


class SegmentDirectory(StoreDirectory):
    """Log segments in a folder: no queues, no index, no owner, and no claim that a writer closed them."""

    def __init__(self, storage: Storage, root: str, names: Iterable[str] | None, segment_size: int) -> None:
        self.storage = storage
        self.root = root
        config = StoreConfig()
        self.config = config.replace(mapped_file_size_commit_log=segment_size) if segment_size else config
        self.size_faults: list[StoreError] = []
        self._names = None if names is None else frozenset(names)

    @cached_property
    def log_files(self) -> list[QueueFile]:
        return chosen_files(files_of(self.storage, self.root), self._names, self.segment_size)

    @cached_property
    def is_closed(self) -> bool:
        return False

    @cached_property
    def is_live(self) -> bool:
        return False

    @cached_property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint()

    @cached_property
    def queued_end(self) -> int:
        return -1


def chosen_files(
    found: Iterable[QueueFile], names: Iterable[str] | None, segment_size: int
) -> list[QueueFile]:
    """Files of the log without empty ones; of one that is too long, what belongs to it."""
    files = [file for file in found if file.size]
    if names is not None:
        wanted = frozenset(names)
        files = [file for file in files if PurePosixPath(file.path).name in wanted]
    last = len(files) - 1
    return [
        QueueFile(file.path, file.begin, min(file.size, segment_size or file.size), number == last)
        for number, file in enumerate(files)
    ]
