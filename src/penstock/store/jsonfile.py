"""The files under ``config/``: read as RocketMQ's, written so that a good copy exists at every instant.

RocketMQ moves the file to ``.bak`` and then writes it in place: two crashes can lose both. Here a save is

1. the present file, if it is good, becomes ``.bak``: written beside, synced, renamed over the old one;
2. the new text becomes the file, in the same way.

So both names always hold whole files, and ``.bak`` is always one that could be read. A file that cannot be
read is never copied over a backup that can.

A load takes the file, or the backup when the file is missing, empty, torn or has bytes behind its end. When
neither is good it raises: offsets that silently start at zero would deliver everything again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Protocol

from penstock.errors import CorruptFile, DiskFull, StoreError
from penstock.format.javajson import JsonError, parse, render

MAX_FILE_SIZE = 256 << 20
"""A larger file is refused unread. Offsets of a hundred thousand groups take a tenth of it."""


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


class FileAccess(Protocol):
    """The part of a storage that is needed here."""

    def exists(self, path: str, /) -> bool: ...
    def makedirs(self, path: str, /) -> None: ...
    def stat(self, path: str, /) -> _Sized: ...
    def read_file(self, path: str, /) -> bytes: ...
    def write_atomic(self, path: str, data: bytes, /) -> None: ...


def _as_is(value: Any) -> Any:
    return value


class JsonFile:
    """One file and its backup.

    Not safe for two savers at once; callers hold their own lock.
    """

    def __init__(
        self,
        storage: FileAccess,
        path: str,
        *,
        decode: Callable[[Any], Any] = _as_is,
        pretty: bool = True,
        ascii_only: bool = False,
    ) -> None:
        """``decode`` turns the parsed value into what ``load`` returns; its ValueError makes the file bad."""
        self.path = path
        self.backup_path = path + ".bak"
        self.fault: CorruptFile | None = None
        """Why the last load did not take the file itself; None when it did, or when there was none."""
        self._storage = storage
        self._decode = decode
        self._pretty = pretty
        self._ascii_only = ascii_only
        self._known_good = False

    def load(self) -> Any:
        """What the file holds, or its backup; None when nothing was ever saved. Writes nothing.

        Raises CorruptFile, naming the file, when there is content but none that can be read.
        """
        self.fault = None
        self._known_good = False
        faults: list[CorruptFile] = []
        for path in (self.path, self.backup_path):
            try:
                found, value = self._read(path)
            except CorruptFile as fault:
                faults.append(fault)
                continue
            if found:
                self._known_good = path == self.path
                self.fault = faults[0] if faults else None
                return value
        if faults:
            raise faults[0]
        return None

    def save(self, value: Any) -> None:
        """Make ``value`` the content, durably. On an error the old content stays."""
        data = render(value, pretty=self._pretty, ascii_only=self._ascii_only).encode()
        try:
            self._storage.makedirs(str(PurePath(self.path).parent))
            if self._known_good or self._is_good():
                self._storage.write_atomic(self.backup_path, self._storage.read_file(self.path))
            self._storage.write_atomic(self.path, data)
        except OSError as error:
            # Somebody took the file away, or the disk refused: look again before trusting it as a backup.
            self._known_good = False
            raise _write_error(error, self.path) from error
        self._known_good = True

    def _is_good(self) -> bool:
        try:
            return self._read(self.path)[0]
        except CorruptFile:
            return False

    def _read(self, path: str) -> tuple[bool, Any]:
        """Whether the file has content, and its value. Empty means that its first writing was cut short."""
        try:
            if not self._storage.exists(path):
                return False, None
            size = self._storage.stat(path).size
            if size > MAX_FILE_SIZE:
                raise CorruptFile(path, found=f"{size} bytes, more than any such file has")
            data = self._storage.read_file(path)
        except FileNotFoundError:
            return False, None
        except OSError as error:
            raise CorruptFile(path, found=f"it can't be read: {error.strerror}") from error
        if not data.strip():
            return False, None
        return True, self._parse(path, data)

    def _parse(self, path: str, data: bytes) -> Any:
        hint = "restore it from a copy, or delete it and its .bak to start without"
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise CorruptFile(path, found="bytes that are no UTF-8", offset=error.start, hint=hint) from None
        try:
            return self._decode(parse(text))
        except JsonError as error:
            offset = len(text[: error.position].encode())
            raise CorruptFile(path, found=error.what, offset=offset, hint=hint) from None
        except ValueError as error:
            raise CorruptFile(path, found=str(error), hint=hint) from None


def load_json(storage: FileAccess, path: str) -> Any:
    """What the file at ``path`` holds, or its backup; None when there is neither. See JsonFile.load."""
    return JsonFile(storage, path).load()


def save_json(storage: FileAccess, path: str, value: Any) -> None:
    """Write ``value`` to ``path``, keeping the last good file as ``.bak``. See JsonFile.save."""
    JsonFile(storage, path).save(value)


def _write_error(error: OSError, path: str) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull("no space to write it; what was saved before is still there", file=path)
    return StoreError(f"can't be written: {error.strerror or error}", file=path)
