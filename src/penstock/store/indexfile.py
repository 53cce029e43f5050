"""One index file: keys to places in the log (format section 10)."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import PurePath

from penstock._native.index import Index, guess_layout
from penstock._native.mapping import Mapping
from penstock.errors import CorruptFile
from penstock.files.storage import Storage

HEADER = 40
DEFAULT_LAYOUT = (5_000_000, 20_000_000)


def index_size(slots: int, capacity: int) -> int:
    return HEADER + 4 * slots + 20 * capacity


def layout_of(storage: Storage, path: str, configured: tuple[int, int]) -> tuple[int, int]:
    """Slots and entries of an existing file: as configured, else RocketMQ's defaults, else what its chains
    say.
    """
    size = storage.stat(path).size
    for slots, capacity in (configured, DEFAULT_LAYOUT):
        if size == index_size(slots, capacity):
            return slots, capacity
    mapping = storage.open_mapping(path, size, writable=False)
    try:
        view = memoryview(mapping)
        found = guess_layout(view)
        sound = found is not None and not Index(view, *found, False).faults()
        view.release()
    finally:
        mapping.close()
    if not sound or found is None:
        raise CorruptFile(
            path,
            found=f"{size} bytes, which fits neither the configured nor the default slots and entries",
            hint="set max_hash_slot_num and max_index_num to the writer's; or remove the file, it is rebuilt",
        )
    return found


class IndexFile:
    """Entries of one file. Its name is the local time of its making."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        slots: int,
        capacity: int,
        *,
        create: bool = False,
        writable: bool = True,
    ) -> None:
        size = index_size(slots, capacity)
        if not create and (found := storage.stat(path).size) != size:
            raise CorruptFile(
                path, found=f"{found} bytes instead of {size}", hint="remove it: it is rebuilt from the log"
            )
        self.storage = storage
        self.path = path
        self.slots = slots
        self.capacity = capacity
        self.mapping: Mapping = storage.open_mapping(
            path, size, create=create, writable=writable, reserve=create, file_from=0
        )
        self._view = self.mapping.view_writable(0, size) if writable else memoryview(self.mapping)
        self.native = Index(self._view, slots, capacity, writable)
        self.synced_count = 0
        """The native ``count`` of the last flush; 0 before the first."""

    @property
    def name(self) -> str:
        return PurePath(self.path).name

    @property
    def is_full(self) -> bool:
        return self.native.is_full

    @property
    def begin_timestamp(self) -> int:
        return self.native.begin_timestamp

    @property
    def end_timestamp(self) -> int:
        return self.native.end_timestamp

    @property
    def end_phy_offset(self) -> int:
        return self.native.end_offset

    def is_time_matched(self, begin: int, end: int) -> bool:
        first, last = self.begin_timestamp, self.end_timestamp
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last

    def select_phy_offset(self, key_hash: int, limit: int, begin: int, end: int) -> list[int]:
        """Places under a key's hash, newest first; callers check what they fetch."""
        found: list[int] = self.native.select(key_hash, limit, begin, end)
        return found

    def cut_behind(self, log_end: int) -> None:
        """Drop the entries of records at or behind ``log_end``; entries lie in the order of the log."""
        first = HEADER + 4 * self.slots + 4
        count = bisect_left(
            range(1, self.native.count),
            log_end,
            key=lambda number: int.from_bytes(
                self._view[first + 20 * number : first + 20 * number + 8], "big"
            ),
        )
        self.cut(count + 1)
        self.flush()

    def cut(self, count: int) -> None:
        """Keep entries 1 to ``count`` - 1, with slots and header made anew from them. Not flushed."""
        self.native.cut(count, self._written_end())

    def _written_end(self) -> int:
        """The byte from which on nothing was ever written: a new file is one reserved hole of 400 MB, and
        writing zeros into it would be most of the work."""
        extents = self.mapping.data_extents(0)
        return extents[-1][1] if extents else 0

    def flush(self) -> None:
        """Header and entries are on disk."""
        count = self.native.count
        self.native.store_header()
        self.mapping.sync()
        self.synced_count = count

    def close(self) -> None:
        self._view.release()
        self.mapping.close()

    def destroy(self) -> None:
        self.close()
        try:
            self.storage.unlink(self.path)
        except FileNotFoundError:
            pass
