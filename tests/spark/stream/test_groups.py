"""A group's offsets are published exactly, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import open_store
from penstock.errors import StoreLocked, UsageError
from penstock.spark.groups import GroupOffsets
from penstock.spark.places import open_places
from spark.stream.stores import fill, opened


def test_published_offsets_are_the_next_to_read_and_others_stay(tmp_path: Path) -> None:
    fill(tmp_path, range(10))
    with opened(tmp_path) as store:
        store.consumer_offsets.commit("other", "t", 0, 2)
        store.consumer_offsets.commit("mine", "elsewhere", 3, 7)
    group = GroupOffsets(open_places(tmp_path)[0], "mine")
    assert group.publish({("t", 0): 5, ("t", 1): 4})
    assert not group.publish({("t", 0): 5, ("t", 1): 4}), "nothing new, nothing written"
    with open_store(tmp_path, read_only=True) as store:
        assert store.consumer_offsets.table() == {
            ("t", "mine"): {0: 5, 1: 4},
            ("elsewhere", "mine"): {3: 7},
            ("t", "other"): {0: 2},
        }
    with opened(tmp_path) as store:
        assert store.consumer_offsets.query("mine", "t", 0) == 5


def test_publishing_under_an_owner_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, range(10))
    place = open_places(tmp_path)[0]
    group = GroupOffsets(place, "mine")
    with opened(tmp_path):
        with pytest.raises(StoreLocked, match="group mine") as caught:
            group.publish({("t", 0): 5})
        assert "write over them" in caught.value.hint
        with pytest.raises(StoreLocked):
            GroupOffsets(place, "mine")
    assert group.publish({("t", 0): 5}), "a refused publication is not taken for done"


def test_group_needs_a_store_around_the_log(tmp_path: Path) -> None:
    fill(tmp_path, range(10))
    with pytest.raises(UsageError, match="store directory"):
        GroupOffsets(open_places(tmp_path / "commitlog")[0], "mine")
    with pytest.raises(UsageError, match="no name"):
        GroupOffsets(open_places(tmp_path)[0], "a@b")
