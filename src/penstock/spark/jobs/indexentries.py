"""Index entries, read from wherever a part of the log begins."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from penstock.errors import StoreError
from penstock.spark.jobs.passstate import EntryPlace
from penstock.store.indexfile import HEADER
from penstock.store.indexverifier import (
    ENTRY,
    PIECE,
    EntryPiece,
    IndexVerifier,
    believed_count,
    entry_layout,
)


class EntryReader:
    """Index entries from any place on, unchecked: the files themselves are checked by tasks of their own."""

    def __init__(self, index: IndexVerifier) -> None:
        self.storage = index.storage
        self.layout = index.layout
        self.paths = index.paths
        self._shapes: dict[str, tuple[int, int, int]] = {}

    def pieces(self, place: EntryPlace) -> Iterator[EntryPiece]:
        """Entries from a place on. A piece is valid until the next one is asked for."""
        place = self.settled(place)
        while place is not None:
            path, number = place
            slots, count, begin_timestamp = self._shape(path)
            many = min(count - number, PIECE // ENTRY)
            try:
                data = self.storage.pread(path, HEADER + 4 * slots + ENTRY * number, many * ENTRY)
            except OSError:
                data = b""  # told by the task that checks the file
            got = len(data) // ENTRY
            if not got:
                place = self.settled((path, count))
                continue
            yield EntryPiece(path, memoryview(data)[: got * ENTRY], number, begin_timestamp, slots)
            place = self.settled((path, number + got))

    def first(self) -> EntryPlace:
        """The first entry of all."""
        return self.settled((self.paths[0], 1)) if self.paths else None

    def settled(self, place: EntryPlace) -> EntryPlace:
        """The place itself, or the first entry of the next file that has one."""
        if place is None:
            return None
        path, number = place
        for at in range(self.paths.index(path), len(self.paths)):
            if number < self._shape(self.paths[at])[1]:
                return self.paths[at], number
            number = 1
        return None

    def find(self, physical: int) -> EntryPlace:
        """The first entry that does not point before a place of the log, if offsets only grow."""
        for path in self.paths:
            count = self._shape(path)[1]
            if count > 1 and self._offset(path, count - 1) >= physical:
                low, high = 1, count - 1
                while low < high:
                    middle = (low + high) // 2
                    if self._offset(path, middle) < physical:
                        low = middle + 1
                    else:
                        high = middle
                return path, low
        return None

    def _offset(self, path: str, number: int) -> int:
        data = self.storage.pread(path, HEADER + 4 * self._shape(path)[0] + ENTRY * number + 4, 8)
        return int.from_bytes(data, "big", signed=True)

    def _shape(self, path: str) -> tuple[int, int, int]:
        """Slots, the number behind the last entry, and the time that entries count from."""
        if path not in self._shapes:
            try:
                size = self.storage.stat(path).size
                slots, capacity = entry_layout(self.storage, path, size, self.layout)
                head = self.storage.pread(path, 0, HEADER)
                count = believed_count(struct.unpack_from(">i", head, 36)[0], capacity)
                self._shapes[path] = (slots, count, struct.unpack_from(">q", head)[0])
            except (OSError, ValueError, StoreError, struct.error):
                self._shapes[path] = (0, 1, 0)  # told by the task that checks the file: it has no entries
        return self._shapes[path]
