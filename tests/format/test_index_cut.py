"""An index after a crash: cut to what was synced, whatever of the rest reached the disk."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock._native.index import Index

HEADER, SLOTS, CAPACITY = 40, 64, 200
SIZE = HEADER + 4 * SLOTS + 20 * CAPACITY
BLOCK = 64
BEGIN = 1_700_000_000_000

hashes = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=CAPACITY - 2)


def filled(keys: list[int]) -> bytearray:
    memory = bytearray(SIZE)
    index = Index(memory, SLOTS, CAPACITY)
    for number, key in enumerate(keys):
        assert index.put(key, number * 100, BEGIN + number * 1000)
    index.store_header()
    return memory


@given(hashes, st.data())
def test_cut_gives_the_index_of_the_synced_entries_whichever_later_blocks_were_lost(
    keys: list[int], data: st.DataObject
) -> None:
    synced = data.draw(st.integers(0, len(keys)))
    before, after = filled(keys[:synced]), filled(keys)
    blocks = range(0, SIZE, BLOCK)
    kept = data.draw(st.lists(st.booleans(), min_size=len(blocks), max_size=len(blocks)))
    found = bytearray(before)
    for at, reached in zip(blocks, kept, strict=True):
        if reached:
            found[at : at + BLOCK] = after[at : at + BLOCK]
    index = Index(found, SLOTS, CAPACITY)
    index.begin_timestamp = BEGIN if synced else 0
    index.cut(synced + 1)
    assert found == before
    assert index.used_slots == Index(before, SLOTS, CAPACITY).used_slots
    assert index.faults() == []
