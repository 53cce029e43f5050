"""What a consume queue holds, for reading: its units, in files of one size (format section 9)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock._native.queue import Queue
from penstock._native.stored import Slab
from penstock.files.filecache import FileCache
from penstock.files.mappedfile import file_name
from penstock.files.storage import Storage

UNIT = 20
PIECE = 16_000
unit_struct = struct.Struct(">qiq")


@dataclass(frozen=True, slots=True)
class Unit:
    """One entry of a queue."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int

    @property
    def is_blank(self) -> bool:
        return self.size == 0x7FFFFFFF and self.physical_offset == 0


class ConsumeQueueUnits:
    """The units of one queue between ``min_offset`` and ``max_offset``. ``native`` holds its counters.

    Files are sparse and read by position, or mapped one at a time.
    """

    def __init__(
        self, storage: Storage, folder: str, topic: str, queue_id: int, file_size: int, cache: FileCache
    ) -> None:
        self.storage = storage
        self.folder = folder
        self.file_size = file_size
        self.native = Queue(topic, queue_id, file_size)
        self._cache = cache
        self._files: list[int] = []
        self.slab: Slab | None = None
        """The file that was read last, mapped."""

    # -- what it is --------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        return self.native.topic

    @property
    def queue_id(self) -> int:
        return self.native.queue_id

    @property
    def min_offset(self) -> int:
        """Queue offset of the first valid unit."""
        return self.native.min_logic // UNIT

    @property
    def max_offset(self) -> int:
        """One past the last unit that may be read."""
        return self.native.max_logic // UNIT

    @property
    def max_physical_offset(self) -> int:
        """End of the last record that has a unit, -1 if none has."""
        return self.native.max_physical

    @property
    def files(self) -> tuple[int, ...]:
        """First byte offsets of the files."""
        return tuple(self._files)

    def path_of(self, file_from: int) -> str:
        return f"{self.folder}/{file_name(file_from)}"

    # -- reading -----------------------------------------------------------------------------------

    def read(self, logic: int, count: int) -> bytes:
        """A copy of units by byte offset; within one file, shorter at its end."""
        file_from = logic - logic % self.file_size
        if file_from not in self._files:
            return b""
        with self._cache.use(self.path_of(file_from), self.file_size) as file:
            return file.read(logic - file_from, min(count, self.file_size - (logic - file_from)))

    def unit_at(self, logic: int) -> Unit | None:
        data = self.read(logic, UNIT)
        return Unit(logic // UNIT, *unit_struct.unpack(data)) if len(data) == UNIT else None

    def unit(self, queue_offset: int) -> Unit | None:
        """The unit of a queue offset, or None outside of the queue."""
        if not self.min_offset <= queue_offset < self.max_offset:
            return None
        return self.unit_at(queue_offset * UNIT)

    def spans(self, queue_offset: int, count: int) -> list[tuple[int, int]]:
        """Physical offset and size of so many units at most: fewer at the end of the queue or of a file."""
        if not self.min_offset <= queue_offset < self.max_offset:
            return []
        count = min(count, self.max_offset - queue_offset)
        data = self.read(queue_offset * UNIT, count * UNIT)
        whole = memoryview(data)[: len(data) - len(data) % UNIT]
        return [(physical, size) for physical, size, _ in unit_struct.iter_unpack(whole)]

    def slab_from(self, queue_offset: int) -> tuple[Slab, int, int] | None:
        """Units from ``queue_offset`` to the end of its file or of the queue: bytes [begin, end) of a slab.

        None when no file holds them.
        """
        logic = queue_offset * UNIT
        file_from = logic - logic % self.file_size
        slab = self.slab
        if slab is None or slab.file_from != file_from:
            slab = self._map(file_from)
            if slab is None:
                return None
        end = min(self.native.max_logic - file_from, self.file_size)
        return (slab, logic - file_from, end) if end > logic - file_from else None

    def _map(self, file_from: int) -> Slab | None:
        if file_from not in self._files:
            return None
        try:
            with self._cache.use(self.path_of(file_from), self.file_size) as file:
                mapping = file.map()
        except FileNotFoundError:
            return None
        # The slab keeps the mapping; readers keep the slab as long as they look at it.
        self.slab = slab = Slab(mapping, file_from)
        mapping.close()
        return slab

    def _unmap(self) -> None:
        self.slab = None

    def iterate(self, queue_offset: int) -> Iterator[Unit]:
        """Units from ``queue_offset`` on, over all files, to the end as it is now."""
        logic, end = max(queue_offset * UNIT, self.native.min_logic), self.native.max_logic
        while logic < end:
            data = self.read(logic, min(PIECE, end - logic))
            if not data:
                return
            for position in range(0, len(data) - len(data) % UNIT, UNIT):
                yield Unit((logic + position) // UNIT, *unit_struct.unpack_from(data, position))
            logic += len(data)

    def roll_next_file(self, queue_offset: int) -> int:
        """The first queue offset of the following file."""
        per_file = self.file_size // UNIT
        return queue_offset + per_file - queue_offset % per_file

    def offset_by_time(
        self, timestamp: int, boundary: str, store_time: Callable[[int, int], int], min_physical: int
    ) -> int:
        """The queue offset for a store time (section 9.8); ``store_time(offset, size)`` reads the log, -1
        if it can't.
        """
        from penstock.store.timesearch import search_units

        offset = search_units(self, timestamp, boundary, store_time, min_physical)
        return max(self.min_offset, min(offset, self.max_offset))
