"""The chains of an index file, followed entry by entry (store format, section 10.3)."""

from __future__ import annotations

import struct

from penstock.format.indexfile import INDEX_ENTRY_SIZE, decode_index_entry
from penstock.format.malformed import Buffer

_HEAD = struct.Struct(">i")
FAULT_LIMIT = 100


def check_chain(heads: bytearray, entries: Buffer, first_number: int, slots: int) -> list[tuple[int, str]]:
    """Follow the chains of an index file over a piece of its entries, which begin with ``first_number``.

    ``heads`` are ``slots`` numbers in the file's own byte order, as they were before these entries; they are
    moved on. Gives (entry number, what) of each fault, at most 100.
    """
    if len(heads) < _HEAD.size * slots or slots < 1:
        raise ValueError("one head for each slot")
    faults: list[tuple[int, str]] = []
    for number in range(len(entries) // INDEX_ENTRY_SIZE):
        entry = decode_index_entry(entries, number * INDEX_ENTRY_SIZE)
        if entry.key_hash < 0:
            faults.append((first_number + number, f"has the negative hash {entry.key_hash}"))
            continue
        at = _HEAD.size * (entry.key_hash % slots)
        (head,) = _HEAD.unpack_from(heads, at)
        if entry.previous != head:
            faults.append((first_number + number, f"is chained to entry {entry.previous} instead of {head}"))
        _HEAD.pack_into(heads, at, first_number + number)
    return faults[:FAULT_LIMIT]


def differing_slots(
    heads: Buffer, slots: Buffer, limit: int = FAULT_LIMIT
) -> tuple[list[tuple[int, int, int]], int]:
    """(slot, expected, found) where two tables of slot heads differ, and how many slots are used in the
    first.
    """
    count = min(len(heads), len(slots)) // _HEAD.size
    expected = struct.unpack_from(f">{count}i", heads)
    found = struct.unpack_from(f">{count}i", slots)
    differing = [(i, expected[i], found[i]) for i in range(count) if expected[i] != found[i]]
    return differing[:limit], sum(head != 0 for head in expected)
