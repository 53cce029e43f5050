"""Index files against themselves: the part of ``verify`` that knows slots and chains.

Whether entries point at records with their keys is for the pass over the log, which gets the entries from
here, file by file and a piece at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

from penstock._native.chains import check_chain, differing_slots
from penstock.errors import CorruptFile, StoreError
from penstock.files.storage import Storage
from penstock.store.fault import Fault
from penstock.store.indexfile import HEADER, index_size, layout_of
from penstock.store.logwindow import LogWindow
from penstock.store.sizes import QueueFile

ENTRY = 20
PIECE = 20 * 50_000
# Larger than any real one, which has four-byte numbers of 20-byte entries: a bound for what is believed.
_SLOTS_LIMIT = 1 << 28
_header = struct.Struct(">qqqqii")
_HINT = "run `penstock store repair`: the index is rebuilt from the log"


@dataclass(frozen=True, slots=True)
class EntryPiece:
    """Some entries of one file, in order."""

    path: str
    entries: memoryview
    first_number: int
    begin_timestamp: int
    slots: int

    def position(self, number: int) -> int:
        """Where an entry lies in its file."""
        return HEADER + 4 * self.slots + ENTRY * number


class IndexVerifier:
    """Reads every index file once. Faults of a file do not keep its entries from being handed on."""

    def __init__(
        self,
        storage: Storage,
        folder: str,
        layout: tuple[int, int],
        report: Callable[[Fault], None],
        *,
        live: bool,
        closed: bool,
    ) -> None:
        self.storage = storage
        self.layout = layout
        self.live = live
        self.closed = closed
        self.files = 0
        self._report = report
        try:
            self._entries = [e for e in storage.listdir(folder) if not e.is_dir and is_index_name(e.name)]
        except (FileNotFoundError, NotADirectoryError):
            self._entries = []
        self._folder = folder

    @property
    def present(self) -> bool:
        """Whether there is any index file."""
        return bool(self._entries)

    @property
    def paths(self) -> list[str]:
        """The index files, oldest first."""
        return [str(PurePath(self._folder) / entry.name) for entry in self._entries]

    def pieces(self) -> Iterator[EntryPiece]:
        """All entries, oldest file first. A piece is valid until the next one is asked for."""
        for path in self.paths:
            yield from self.file_pieces(path)

    def file_pieces(self, path: str) -> Iterator[EntryPiece]:
        """The entries of one file, which is checked by the way."""
        size = next(entry.size for entry in self._entries if PurePath(path).name == entry.name)
        try:
            yield from self._file(path, size)
        except StoreError as error:
            self._tell(path, 0, str(error.message), kind="index-file")
        except (OSError, ValueError) as error:
            self._tell(path, 0, f"cannot be read: {error}", kind="unreadable")

    def _file(self, path: str, size: int) -> Iterator[EntryPiece]:
        if size == 0 and path == str(PurePath(self._folder) / self._entries[-1].name):
            return  # being made, or left by a crash in its making
        try:
            slots, capacity = entry_layout(self.storage, path, size, self.layout)
        except CorruptFile as error:
            self._tell(path, 0, error.found, kind="index-file")
            return
        self.files += 1
        file = QueueFile(path, 0, size, True)
        window = LogWindow(self.storage, min(PIECE, size))
        try:
            head = bytes(window.load(file, 0, HEADER))
            begin_time, end_time, begin, end, used, count = _header.unpack(head)
            if not 0 <= count <= capacity:
                self._tell(path, 36, f"counts {count} entries of {capacity}")
            count = believed_count(count, capacity)
            heads = bytearray(4 * slots)
            first_offset = last_offset = -1
            last_seconds = -1
            number = 1
            while number < count:
                many = min(count - number, PIECE // ENTRY)
                view = window.load(file, HEADER + 4 * slots + ENTRY * number, many * ENTRY)
                if len(view) < ENTRY:
                    break
                view = view[: len(view) // ENTRY * ENTRY]
                for bad, what in check_chain(heads, view, number, slots):
                    self._tell(path, HEADER + 4 * slots + ENTRY * bad, f"entry {bad} {what}")
                if number == 1:
                    first_offset = struct.unpack_from(">q", view, 4)[0]
                last_offset, last_seconds = struct.unpack_from(">qi", view, len(view) - ENTRY + 4)
                yield EntryPiece(path, view, number, begin_time, slots)
                number += len(view) // ENTRY
            if self.live:
                return  # header, slots and entries are written one after the other while we read
            self._check_slots(file, window, heads, slots, used, count)
            if not self.closed:
                return  # entries that were on their way: their slots are written, the header is not
            if count > 1 and (begin, end) != (first_offset, last_offset):
                self._tell(
                    path,
                    16,
                    f"says {begin} to {end}, but its entries go from {first_offset} to {last_offset}",
                )
            if count > 2 and abs((end_time - begin_time) // 1000 - last_seconds) > 1:
                self._tell(
                    path,
                    8,
                    f"ends {end_time - begin_time} ms after its begin, its last entry after {last_seconds} s",
                )
        finally:
            window.close()

    def _check_slots(
        self, file: QueueFile, window: LogWindow, heads: bytearray, slots: int, used: int, count: int
    ) -> None:
        at = counted = 0
        whole = memoryview(heads)
        while at < 4 * slots:
            view = window.load(file, HEADER + at, min(PIECE, 4 * slots - at))
            if not view:
                break
            differing, in_use = differing_slots(whole[at : at + len(view)], view)
            counted += in_use
            for slot, expected, found in differing:
                if not self.closed and found >= count:
                    continue
                number = at // 4 + slot
                self._tell(
                    file.path,
                    HEADER + 4 * number,
                    f"slot {number} heads at entry {found} instead of {expected}",
                )
            at += len(view)
        if used != counted and self.closed:
            self._tell(file.path, 32, f"counts {used} slots in use, but {counted} are")

    def _tell(self, path: str, offset: int, found: str, kind: str = "index") -> None:
        # An owner at work, or one that was killed there, makes files, and writes entry, slot and header one
        # after the other. Opening a store that was not closed builds such a file again.
        note = self.live or (kind == "index-file" and not self.closed)
        self._report(Fault(kind, path, found, offset, hint=_HINT, note=note))


def entry_layout(storage: Storage, path: str, size: int, layout: tuple[int, int]) -> tuple[int, int]:
    """Slots and capacity of an index file. Raises CorruptFile when its size does not go with them."""
    if size < HEADER:
        raise CorruptFile(path, found=f"{size} bytes, too short for a header")
    slots, capacity = layout_of(storage, path, layout)
    if slots > _SLOTS_LIMIT or size != index_size(slots, capacity):
        raise CorruptFile(path, found=f"{size} bytes do not hold {slots} slots and {capacity} entries")
    return slots, capacity


def believed_count(stored: int, capacity: int) -> int:
    """How many entries are looked at when the header says ``stored``; number 0 is none of them."""
    return min(capacity, max(1, stored))


def is_index_name(name: str) -> bool:
    """Index files are named after the time of their making, in digits."""
    return name.isascii() and name.isdigit()
