"""Index files: every key is found, and damaged chains end."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.format.indexfile import IndexOracle, index_key, query_offsets
from penstock.format.malformed import Malformed

FOREVER = 1 << 62
keys = st.sampled_from(["T#a", "T#b", "T#Aa", "T#BB", "T#polygenelubricants", "polygenelubricants"])


@given(st.lists(st.tuples(keys, st.integers(0, 1 << 40), st.integers(1, 1 << 41)), max_size=30))
def test_a_key_finds_all_its_offsets_newest_first(puts: list[tuple[str, int, int]]) -> None:
    index = IndexOracle(3, 31)
    for put in puts:
        assert index.put_key(*put)
    for key in {put[0] for put in puts}:
        same = {"T#Aa": {"T#Aa", "T#BB"}, "T#BB": {"T#Aa", "T#BB"}}.get(key, {key})
        expected = [offset for name, offset, _ in reversed(puts) if name in same]
        assert index.select(key, 100, 0, FOREVER) == expected
        assert index.select(key, 1, 0, FOREVER) == expected[:1]


def test_a_full_file_takes_no_more_and_the_next_goes_on_from_it() -> None:
    first = IndexOracle(4, 3)
    assert [first.put_key("T#a", i, 1_000_000 + i) for i in range(3)] == [True, True, False]
    second = IndexOracle.following(first)
    assert second.header == (1_000_001, 1_000_001, 1, 1, 0, 1)
    assert second.put_key("T#a", 9, 1_005_000)
    assert second.entry(1).seconds == 4  # against the begin it was seeded with, which this put replaces
    assert second.header.begin_timestamp == 1_005_000
    assert query_offsets([first, second], "T#a", 10, 0, FOREVER) == [9, 1, 0]
    assert query_offsets([first, second], "T#a", 2, 0, FOREVER) == [9, 1]
    assert query_offsets([first, second], "T#a", 10, 0, FOREVER, max_batch=1) == [9]


def test_a_search_keeps_to_its_time() -> None:
    index = IndexOracle(4, 10)
    for second in range(5):
        index.put_key("T#a", second, 10_000 + second * 1000)
    assert index.select("T#a", 10, 11_000, 13_000) == [3, 2, 1]
    header = index.header
    assert header.matches_time(0, FOREVER)
    assert header.matches_time(12_000, 12_000)
    assert not header.matches_time(0, 9_999)
    assert not header.matches_time(14_001, FOREVER)


def test_a_chain_that_runs_in_a_circle_ends() -> None:
    index = IndexOracle(1, 10)
    for i in range(4):
        index.put_key("T#a", i, 1000)
    entry_1 = 40 + 4 + 20
    struct.pack_into(">i", index.data, entry_1 + 16, 4)  # the oldest entry leads back to the newest
    damaged = IndexOracle(1, 10, index.data)
    assert damaged.select("T#b", 64, 0, FOREVER) == []
    assert len(damaged.select("T#a", 64, 0, FOREVER)) <= 10


@given(st.binary(min_size=264, max_size=264), keys)
def test_any_bytes_can_be_searched(data: bytes, key: str) -> None:
    index = IndexOracle(6, 10, data)
    assert len(index.select(key, 64, -FOREVER, FOREVER)) <= 64


def test_a_size_that_does_not_fit_slots_and_entries_is_malformed() -> None:
    with pytest.raises(Malformed):
        IndexOracle(6, 10, bytes(240))
    with pytest.raises(Malformed):
        IndexOracle(0, 10)


def test_tags_have_a_key_of_their_own() -> None:
    assert index_key("T", "k") == "T#k"
    assert index_key("T", "k", "T") == "T#T#k"
    assert index_key("T", "k", "K") == "T#k"
