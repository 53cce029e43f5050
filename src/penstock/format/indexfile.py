"""Index files: header, slots and chained entries (store format, section 10)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from penstock.format.javahash import key_hash
from penstock.format.malformed import Buffer, Malformed

INDEX_HEADER_SIZE = 40
INDEX_SLOT_SIZE = 4
INDEX_ENTRY_SIZE = 20
INDEX_TYPE_TAGS = "T"

_HEADER = struct.Struct(">qqqqii")
_SLOT = struct.Struct(">i")
_ENTRY = struct.Struct(">iqii")
_MAX_INT = 0x7FFFFFFF


class IndexHeader(NamedTuple):
    """The first 40 bytes. ``index_count`` is the number of the next entry, so 1 in an empty file."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1

    def matches_time(self, begin: int, end: int) -> bool:
        """Whether a search from ``begin`` to ``end`` has to look into this file."""
        return (
            (begin < self.begin_timestamp and end > self.end_timestamp)
            or self.begin_timestamp <= begin <= self.end_timestamp
            or self.begin_timestamp <= end <= self.end_timestamp
        )


class IndexEntry(NamedTuple):
    """One key of one record; ``previous`` chains the entries of a slot, newest first, 0 at its end."""

    key_hash: int
    physical_offset: int
    seconds: int
    previous: int


def encode_index_header(header: IndexHeader) -> bytes:
    """The 40 bytes of a header."""
    return _HEADER.pack(*header)


def decode_index_header(buffer: Buffer) -> IndexHeader:
    """The header of an index file; a count that was never set reads as 1. Malformed when cut short."""
    if len(buffer) < INDEX_HEADER_SIZE:
        raise Malformed(f"an index file has at least {INDEX_HEADER_SIZE} bytes, not {len(buffer)}")
    header = IndexHeader(*_HEADER.unpack_from(buffer, 0))
    return header if header.index_count > 0 else header._replace(index_count=1)


def encode_index_entry(entry: IndexEntry) -> bytes:
    """The 20 bytes of an entry."""
    return _ENTRY.pack(*entry)


def decode_index_entry(buffer: Buffer, position: int) -> IndexEntry:
    """The entry at a byte position; Malformed when the buffer ends inside it."""
    if position < 0 or position + INDEX_ENTRY_SIZE > len(buffer):
        raise Malformed(f"no index entry at position {position} of {len(buffer)} bytes")
    return IndexEntry(*_ENTRY.unpack_from(buffer, position))


def index_file_size(hash_slots: int, entries: int) -> int:
    """Bytes of a file with that many slots and entry numbers (the first of which is never used)."""
    return INDEX_HEADER_SIZE + hash_slots * INDEX_SLOT_SIZE + entries * INDEX_ENTRY_SIZE


def index_key(topic: str, key: str, index_type: str | None = None) -> str:
    """The text that is hashed for a key of a topic, or for its tags with index type ``T``."""
    return f"{topic}#{INDEX_TYPE_TAGS}#{key}" if index_type == INDEX_TYPE_TAGS else f"{topic}#{key}"


class IndexOracle:
    """One index file in memory, written and searched the plain way.

    ``data`` is the whole file at any moment. Bytes of an existing file may be given; a chain in them that
    runs in a circle ends a search after as many steps as there are entries.
    """

    def __init__(self, hash_slots: int, entries: int, data: Buffer | None = None) -> None:
        size = index_file_size(hash_slots, entries)
        if hash_slots < 1 or entries < 1 or (data is not None and len(data) != size):
            found = size if data is None else len(data)
            raise Malformed(f"{hash_slots} slots and {entries} entries make {size} bytes, not {found}")
        self.hash_slots = hash_slots
        self.entries = entries
        self.data = bytearray(size) if data is None else bytearray(data)
        self.header = decode_index_header(self.data)

    @classmethod
    def following(cls, previous: IndexOracle) -> IndexOracle:
        """A new file after a full one.

        It starts with that one's end as its own begin and end (section 10.3).
        """
        new = cls(previous.hash_slots, previous.entries)
        end = previous.header
        new._write_header(
            IndexHeader(
                begin_timestamp=max(0, end.end_timestamp),
                end_timestamp=max(0, end.end_timestamp),
                begin_physical_offset=max(0, end.end_physical_offset),
                end_physical_offset=max(0, end.end_physical_offset),
            )
        )
        return new

    def _write_header(self, header: IndexHeader) -> None:
        self.header = header
        self.data[:INDEX_HEADER_SIZE] = encode_index_header(header)

    @property
    def is_full(self) -> bool:
        """Whether no key fits any more."""
        return self.header.index_count >= self.entries

    def slot(self, number: int) -> int:
        """The newest entry number of a slot; 0 when it is empty or holds no entry that was written."""
        (value,) = _SLOT.unpack_from(self.data, INDEX_HEADER_SIZE + number * INDEX_SLOT_SIZE)
        return value if 0 < value <= self.header.index_count else 0

    def entry(self, number: int) -> IndexEntry:
        """The entry of a number; Malformed when it lies outside the file."""
        position = INDEX_HEADER_SIZE + self.hash_slots * INDEX_SLOT_SIZE + number * INDEX_ENTRY_SIZE
        return decode_index_entry(self.data, position)

    def put_key(self, key: str, physical_offset: int, store_timestamp: int) -> bool:
        """Add a key (``topic#key``); False when the file is full."""
        return self.put_hash(key_hash(key), physical_offset, store_timestamp)

    def put_hash(self, hashed: int, physical_offset: int, store_timestamp: int) -> bool:
        """Add a key by its hash; False when the file is full."""
        if self.is_full:
            return False
        header = self.header
        slot_number = hashed % self.hash_slots
        previous = self.slot(slot_number)
        seconds = 0
        if header.begin_timestamp > 0:
            seconds = min(max(store_timestamp - header.begin_timestamp, 0) // 1000, _MAX_INT)
        number = header.index_count
        position = INDEX_HEADER_SIZE + self.hash_slots * INDEX_SLOT_SIZE + number * INDEX_ENTRY_SIZE
        self.data[position : position + INDEX_ENTRY_SIZE] = encode_index_entry(
            IndexEntry(hashed, physical_offset, seconds, previous)
        )
        _SLOT.pack_into(self.data, INDEX_HEADER_SIZE + slot_number * INDEX_SLOT_SIZE, number)
        first = number <= 1
        self._write_header(
            IndexHeader(
                begin_timestamp=store_timestamp if first else header.begin_timestamp,
                end_timestamp=store_timestamp,
                begin_physical_offset=physical_offset if first else header.begin_physical_offset,
                end_physical_offset=physical_offset,
                hash_slot_count=header.hash_slot_count + (previous == 0),
                index_count=number + 1,
            )
        )
        return True

    def select(self, key: str, maximum: int, begin: int, end: int) -> list[int]:
        """Physical offsets of records that may have the key, newest first.

        Only hash and time are compared: the caller looks at topic and key of what it fetches.
        """
        hashed = key_hash(key)
        found: list[int] = []
        number = self.slot(hashed % self.hash_slots)
        if self.header.index_count <= 1:
            return found
        for _ in range(self.header.index_count):
            if not 0 < number < self.entries or len(found) >= maximum:
                break
            entry = self.entry(number)
            if entry.seconds < 0:
                break
            time = self.header.begin_timestamp + entry.seconds * 1000
            if entry.key_hash == hashed and begin <= time <= end:
                found.append(entry.physical_offset)
            if entry.previous > self.header.index_count or entry.previous == number or time < begin:
                break
            number = entry.previous
        return found


def query_offsets(
    files: Sequence[IndexOracle], key: str, maximum: int, begin: int, end: int, *, max_batch: int = 64
) -> list[int]:
    """The answer of all index files, given oldest first: newest entries first, at most ``max_batch``."""
    maximum = min(maximum, max_batch)
    found: list[int] = []
    for file in reversed(files):
        if file.header.matches_time(begin, end):
            found += file.select(key, maximum - len(found), begin, end)
        if file.header.begin_timestamp < begin or len(found) >= maximum:
            break
    return found
