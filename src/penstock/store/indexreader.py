"""Asking index files that somebody else writes: every byte is fetched with a read, never through a
mapping.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import PurePath

from penstock._native.index import key_hash
from penstock.config import StoreConfig
from penstock.errors import CorruptFile
from penstock.files.storage import Storage
from penstock.store.indexfile import HEADER, layout_of
from penstock.store.indexservice import index_key

_header = struct.Struct(">qqqqii")
_entry = struct.Struct(">iqii")


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The first 40 bytes of an index file."""

    begin_timestamp: int
    end_timestamp: int
    begin_offset: int
    end_offset: int
    used_slots: int
    count: int


class IndexReader:
    """All index files of a folder, as they are at each question."""

    def __init__(self, storage: Storage, folder: str, config: StoreConfig) -> None:
        self._storage = storage
        self._folder = folder
        self._configured = (config.max_hash_slot_num, config.max_index_num)
        self._max_results = config.max_msgs_num_batch
        self._layouts: dict[str, tuple[int, int]] = {}

    def query_offset(
        self, topic: str, key: str, limit: int, begin: int, end: int, index_type: str | None = None
    ) -> list[int]:
        """As IndexService.query_offset."""
        limit = min(limit, self._max_results)
        hashed = key_hash(index_key(topic, key, index_type))
        found: list[int] = []
        for path in reversed(self._paths()):
            try:
                header = self._header(path)
                first, last = header.begin_timestamp, header.end_timestamp
                if (begin < first and end > last) or first <= begin <= last or first <= end <= last:
                    found += self._select(path, header, hashed, limit - len(found), begin, end)
            except (FileNotFoundError, CorruptFile):
                continue  # removed meanwhile, or no index file: the others can still answer
            if first < begin or len(found) >= limit:
                break
        return found

    def extents(self) -> list[tuple[int, int]]:
        """Physical offsets of the first and the last indexed record of every file that has an entry."""
        found: list[tuple[int, int]] = []
        for path in self._paths():
            try:
                header = self._header(path)
            except (FileNotFoundError, CorruptFile):
                continue  # as in query_offset
            if header.count > 1:  # entry 0 is never used
                found.append((header.begin_offset, header.end_offset))
        return found

    def _paths(self) -> list[str]:
        try:
            names = [e.name for e in self._storage.listdir(self._folder) if not e.is_dir and e.name.isdigit()]
        except FileNotFoundError:
            return []
        return [str(PurePath(self._folder) / name) for name in sorted(names)]

    def _header(self, path: str) -> IndexHeader:
        data = self._storage.pread(path, 0, HEADER)
        if len(data) < HEADER:
            raise CorruptFile(path, found=f"{len(data)} bytes")
        return IndexHeader(*_header.unpack(data))

    def _select(
        self, path: str, header: IndexHeader, hashed: int, limit: int, begin: int, end: int
    ) -> list[int]:
        if path not in self._layouts:
            self._layouts[path] = layout_of(self._storage, path, self._configured)
        slots, capacity = self._layouts[path]
        found: list[int] = []
        number = self._int(path, HEADER + 4 * (hashed % slots))
        for _ in range(header.count):
            if not (0 < number <= header.count and number < capacity) or len(found) >= limit:
                break
            data = self._storage.pread(path, HEADER + 4 * slots + 20 * number, 20)
            if len(data) < 20:
                break
            entry_hash, offset, seconds, previous = _entry.unpack(data)
            if seconds < 0:
                break
            when = header.begin_timestamp + seconds * 1000
            if entry_hash == hashed and begin <= when <= end:
                found.append(offset)
            if previous == number or when < begin:
                break
            number = previous
        return found

    def _int(self, path: str, position: int) -> int:
        return int.from_bytes(self._storage.pread(path, position, 4), "big", signed=True)
