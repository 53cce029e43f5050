"""Offsets of the queues, followed while somebody writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Message, open_store
from penstock.errors import NotAStore
from penstock.spark.bounds import StoreBounds
from penstock.spark.options import ReadOptions
from penstock.spark.places import open_places
from penstock.spark.planning import plan
from penstock.spark.ranges import QueueRange
from spark.read.stores import fill, message


def bounds_of(path: Path) -> StoreBounds:
    return StoreBounds(open_places(str(path))[0])


def test_every_queue_has_its_ends(store: Path) -> None:
    bounds = bounds_of(store)
    queues = [(topic, queue) for topic in ("audit", "orders", "payments") for queue in (0, 1)]
    assert bounds.queues() == queues
    assert bounds.earliest() == dict.fromkeys(queues, 0)
    assert bounds.latest() == dict.fromkeys(queues, 100)
    bounds.close()


def test_units_tell_where_messages_lie(store: Path) -> None:
    bounds = bounds_of(store)
    units = list(bounds.units("orders", 0, 60, 70))  # over the end of a file of the queue
    assert [unit[0] for unit in units] == list(range(60, 70))
    assert (
        [bounds.unit("orders", 0, offset) for offset in (60, 69)]
        == [
            (*units[0][1:], bounds.unit("orders", 0, 60)[2]),  # type: ignore[index]
            (*units[-1][1:], bounds.unit("orders", 0, 69)[2]),  # type: ignore[index]
        ]
    )
    assert bounds.bytes_between("orders", 0, 60, 70) == sum(unit[2] for unit in units)
    assert bounds.unit("orders", 0, 100) is None and list(bounds.units("orders", 0, 100, 101)) == []


def test_a_refresh_sees_what_was_written(tmp_path: Path) -> None:
    fill(tmp_path, 6)
    bounds = bounds_of(tmp_path)
    assert set(bounds.latest().values()) == {1}
    with open_store(tmp_path, flush="async") as store:
        for number in range(6, 600):
            store.put(message(number))
        assert store.wait_visible()
        bounds.refresh()
        assert set(bounds.latest().values()) == {100}
        store.put(Message("new", b"x", queue_id=3))
        assert store.wait_visible()
        bounds.refresh(queues=True)
        assert bounds.latest()["new", 3] == 1
    bounds.close()


def test_a_refresh_sees_what_was_removed(tmp_path: Path) -> None:
    fill(tmp_path, 600)
    bounds = bounds_of(tmp_path)
    bounds.refresh()
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    bounds.refresh()
    assert all(low > 0 for low in bounds.earliest().values())
    bounds.close()


def test_ranges_become_tasks(store: Path) -> None:
    options = ReadOptions.parse({"path": str(store)})
    splits = plan(options, [QueueRange("orders", 0, 5, 9), QueueRange("audit", 1, 0, 2)])
    assert splits
    queues = {queue[:4] for split in splits for queue in split.wanted.queues or split.ranges}
    assert queues == {("orders", 0, 5, 9), ("audit", 1, 0, 2)}


def test_segments_have_no_queues(store: Path) -> None:
    with pytest.raises(NotAStore, match="no consume queues"):
        bounds_of(store / "commitlog").queues()
