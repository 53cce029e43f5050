"""Where the files of the log lie: in one folder of the store, or in several, as a rule on several disks.

RocketMQ knows the folders from its settings only: started without them it takes the log for empty and removes
every queue. So a store of ours that has other folders than ``commitlog`` keeps their names in a small file
beside the others, ``penstock.folders``, and whoever opens or reads the directory finds the log. RocketMQ
ignores the file; settings win over it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath

from penstock.config import StoreConfig
from penstock.errors import ConfigError, CorruptFile, StoreError
from penstock.files.disk import DiskStorage
from penstock.files.storage import Storage

NAME = "penstock.folders"
DEFAULT = "commitlog"
SPLITTER = ","
_NAME_THEM = "delete it, and name the folders in store_path_commit_log"


@dataclass(frozen=True, slots=True)
class LogFolders:
    """``writable`` folders get new files, in the order in which they are chosen; the others are only read."""

    root: str
    writable: tuple[str, ...]
    read_only: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return self.writable + self.read_only

    @property
    def several(self) -> bool:
        return len(self.all) > 1

    @property
    def is_default(self) -> bool:
        """Whether it is the one folder inside of the store that everybody looks into."""
        return self.all == (str(PurePath(self.root) / DEFAULT),)

    def remember(self, storage: Storage) -> None:
        """Keep the names for the next one to open the store, durably: before the first file is made there."""
        path = str(PurePath(self.root) / NAME)
        if self.is_default:
            if storage.exists(path):
                storage.unlink(path)
                storage.sync_dir(self.root)
            return
        # Relative to the store where they lie in it: a directory that is moved as a whole still works.
        names = {
            "folders": [_short(self.root, folder) for folder in self.writable],
            "readOnly": [_short(self.root, folder) for folder in self.read_only],
        }
        data = json.dumps(names, indent=1, ensure_ascii=False).encode()
        if not storage.exists(path) or storage.read_file(path) != data:
            storage.write_atomic(path, data)

    def require_present(self, storage: Storage) -> None:
        """Raise StoreError for a folder that the store had and that is gone: a disk that is not mounted.

        Going on without it would take its part of the log for lost.
        """
        known = _remembered(storage, self.root)
        for folder in known.all if known is not None else ():
            if folder in self.all and not storage.exists(folder):
                raise StoreError(
                    "a folder of the log is not there",
                    file=folder,
                    hint="mount its disk; or, if its files are gone for good, make the folder again, empty",
                )


def log_folders(storage: Storage, root: str, config: StoreConfig) -> LogFolders:
    """The folders of a store's log: those of the settings, else those that were remembered, else the usual.

    Folders that the store had before and that still hold files of the log are read, whatever the settings
    say. Raises ConfigError when no folder is left that new files could go to.
    """
    given = _split(storage, config.store_path_commit_log)
    sealed = _split(storage, config.read_only_commit_log_store_paths)
    usual = str(PurePath(root) / DEFAULT)
    known = _remembered(storage, root) or LogFolders(root, (usual,))
    writable = tuple(folder for folder in given or known.writable if folder not in sealed)
    if not writable:
        raise ConfigError(
            f"every folder of the log is for reading only: {', '.join(sealed)}",
            key="read_only_commit_log_store_paths",
            hint="name one in store_path_commit_log that new files can go to",
        )
    before = [folder for folder in (*known.all, usual) if folder not in writable]
    held = [folder for folder in before if _holds_log(storage, folder)]
    return LogFolders(root, writable, tuple(dict.fromkeys((*sealed, *held))))


def refuse_foreign_log(storage: Storage, folders: LogFolders) -> None:
    """For a store that is about to be made: raise StoreError when a folder holds the log of another one."""
    for folder in folders.all:
        if _holds_log(storage, folder):
            raise StoreError(
                "this folder holds a log, and there is no store that it belongs to",
                file=folder,
                hint="name another folder; or, if it is the log of this store, make"
                f" {folders.root}/consumequeue and open it again: its queues are built from the log",
            )


def _split(storage: Storage, text: str) -> tuple[str, ...]:
    """Folders in the order of their names as they were given: RocketMQ's order too."""
    names = sorted({name.strip() for name in text.split(SPLITTER)} - {""})
    if isinstance(storage, DiskStorage):
        return tuple(dict.fromkeys(str(Path(name).absolute()) for name in names))
    return tuple(names)


def _short(root: str, folder: str) -> str:
    place = PurePath(folder)
    return str(place.relative_to(root)) if place.is_relative_to(root) else folder


def _remembered(storage: Storage, root: str) -> LogFolders | None:
    path = str(PurePath(root) / NAME)
    try:
        data = storage.read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CorruptFile(path, found=f"it can't be read: {error.strerror}", hint=_NAME_THEM) from error
    try:
        content = json.loads(data)
        lists = [content["folders"], content["readOnly"]]
        if not lists[0] or not all(isinstance(name, str) for names in lists for name in names):
            raise ValueError("no names of folders")
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(
            path, found=f"not the names of the log's folders: {error}", hint=_NAME_THEM
        ) from None
    writable, read_only = (tuple(str(PurePath(root) / name) for name in names) for names in lists)
    return LogFolders(root, writable, read_only)


def _holds_log(storage: Storage, folder: str) -> bool:
    return bool(list(_log_names(storage, folder)))


def _log_names(storage: Storage, folder: str) -> Iterable[str]:
    try:
        entries = storage.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return (e.name for e in entries if not e.is_dir and len(e.name) >= 20 and e.name.isdigit() and e.size)


class LogPlaces:
    """Which file holds which part of a log that somebody else writes. Files may come and go at any time."""

    def __init__(self, storage: Storage, folders: LogFolders) -> None:
        self._storage = storage
        self._folders = folders.all
        self._known: dict[int, str] = {}

    def look(self) -> list[int]:
        """Where each file begins, in order, as of now."""
        self._known = {
            int(name): str(PurePath(folder) / name)
            for folder in self._folders
            for name in _log_names(self._storage, folder)
            if name.isascii()
        }
        return sorted(self._known)

    def path(self, file_from: int) -> str:
        """Path of the file that begins there, whether it exists or not."""
        if len(self._folders) > 1 and file_from not in self._known:
            self.look()
        return self._known.get(file_from) or str(PurePath(self._folders[0]) / f"{file_from:020d}")
