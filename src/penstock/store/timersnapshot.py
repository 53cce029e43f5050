"""Whole copies of the timer wheel, ``timerwheel.<timer log position>``: RocketMQ's other way to keep it.

With ``timer_wheel_snapshot_flush`` the wheel is written whole now and then instead of page by page; the name
says how far the timer log was then. The newest counts; units behind its position come from the timer log.
"""

from __future__ import annotations

from pathlib import PurePath

from penstock.files.storage import Storage
from penstock.format.timerunit import WHEEL_SIZE


class WheelSnapshots:
    """The copies beside one ``timerwheel`` file."""

    def __init__(self, storage: Storage, wheel_path: str) -> None:
        self._storage = storage
        self._folder, self._stem = str(PurePath(wheel_path).parent), PurePath(wheel_path).name + "."

    def newest(self) -> int | None:
        """The position of the newest copy that has the length of a wheel; None without one."""
        return max((p for p, size in self._found() if size == WHEEL_SIZE), default=None)

    def read(self, position: int) -> bytes:
        """The content of a copy."""
        return self._storage.read_file(self._path(position))

    def write(self, position: int, content: bytes) -> None:
        """Keep a copy, durable on return; older ones go."""
        self._storage.write_atomic(self._path(position), content)
        self.remove(but=position)

    def remove(self, but: int | None = None) -> None:
        """Remove the copies: the next owner must not find one that is older than the wheel's own file."""
        gone = [position for position, _ in self._found() if position != but]
        for position in gone:
            self._storage.unlink(self._path(position))
        if gone:
            self._storage.sync_dir(self._folder)

    def _path(self, position: int) -> str:
        return f"{self._folder}/{self._stem}{position}"

    def _found(self) -> list[tuple[int, int]]:
        names = [
            (entry.name.removeprefix(self._stem), entry.size)
            for entry in self._storage.listdir(self._folder)
            if entry.name.startswith(self._stem) and not entry.is_dir
        ]
        return [(int(name), size) for name, size in names if name.isascii() and name.isdigit()]
