"""Files that do not belong where they lie in a store directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from penstock.files.storage import Entry, Storage
from penstock.store.directory import StoreDirectory
from penstock.store.indexverifier import is_index_name
from penstock.store.sizes import is_queue_file_name

# Only folders whose every file is read as part of a file queue: elsewhere, other programs may keep things.
_QUEUES = {"timerlog": 0, "consumequeue": 2, "batchconsumequeue": 2, "consumequeue_ext": 2}


def foreign_files(directory: StoreDirectory) -> Iterator[tuple[str, str]]:
    """Path of each such file, and what is wrong with it."""
    storage, root = directory.storage, directory.root
    for folder in directory.log_folders.all:
        yield from _foreign(storage, folder, 0)
    for folder, depth in _QUEUES.items():
        yield from _foreign(storage, str(PurePath(root) / folder), depth)
    for entry in _list(storage, str(PurePath(root) / "index")):
        if not entry.is_dir and not is_index_name(entry.name):
            yield str(PurePath(root) / "index" / entry.name), "not the name of an index file"


def _foreign(storage: Storage, folder: str, depth: int) -> Iterator[tuple[str, str]]:
    for entry in _list(storage, folder):
        path = str(PurePath(folder) / entry.name)
        if entry.is_dir:
            if depth:
                yield from _foreign(storage, path, depth - 1)
        elif depth:
            yield path, "a file where only folders of queues should be"
        elif not is_queue_file_name(entry.name) and not entry.name.endswith(".delete"):
            yield path, "not the name of a file of a file queue"


def _list(storage: Storage, folder: str) -> list[Entry]:
    try:
        return storage.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
