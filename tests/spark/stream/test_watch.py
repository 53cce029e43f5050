"""What a stream sees of a real store while it is written and cleaned."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.spark.options import ReadOptions
from penstock.spark.places import open_places
from penstock.spark.streaming import frozen_start
from penstock.spark.watch import StoreWatch, stream_place
from spark.stream.stores import drop_segments, fill, opened, put


def watch(path: Path, **options: object) -> StoreWatch:
    made = ReadOptions.parse({"path": str(path), **options})
    return StoreWatch(stream_place(made), made)


def test_watch_follows_a_writer(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, range(10))
        seen = watch(tmp_path)
        assert seen.refresh()
        assert seen.latest() == {("t", 0): 5, ("t", 1): 5}
        assert not seen.refresh()
        put(store, [10])
        assert seen.refresh()
        assert seen.latest() == {("t", 0): 6, ("t", 1): 5}
        put(store, [0], topic="new")
        assert seen.refresh(thoroughly=True)
        assert seen.latest() == {("t", 0): 6, ("t", 1): 5, ("new", 0): 1}


def test_every_message_is_seen_at_once_over_the_ends_of_files(tmp_path: Path) -> None:
    """A look asks the log first whether anything came: a file that is full must not hide the next one."""
    with opened(tmp_path) as store:
        put(store, [0, 1])
        seen = watch(tmp_path)
        for count in range(2, 300):
            seen.refresh()
            assert not seen.refresh()
            put(store, [count])
            assert seen.refresh()
            assert sum(seen.latest().values()) == count + 1
    assert len(list((tmp_path / "commitlog").iterdir())) > 2


def test_watch_sees_only_what_is_subscribed(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for topic in ("a", "b", "bc"):
            put(store, range(4), topic=topic)
    for options, keys in [
        ({"subscribe": "a"}, {("a", 0), ("a", 1)}),
        ({"subscribePattern": "b.*"}, {("b", 0), ("b", 1), ("bc", 0), ("bc", 1)}),
        ({"assign": '{"bc":[1]}'}, {("bc", 1)}),
    ]:
        seen = watch(tmp_path, **options)
        seen.refresh()
        assert set(seen.latest()) == keys


def test_watch_sees_what_retention_removed(tmp_path: Path) -> None:
    fill(tmp_path, range(600))
    seen = watch(tmp_path)
    seen.refresh()
    begin = drop_segments(tmp_path, 2)
    assert seen.refresh()
    for key, low in seen.earliest().items():
        assert 0 < low < seen.latest()[key]
        assert seen.first_place(key, low) >= begin


def test_bytes_and_times_are_those_of_the_records(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, range(20))
        messages = list(store.get("t", 1, 0, 10).messages)
    seen = watch(tmp_path)
    seen.refresh()
    assert len(messages) == 10
    assert seen.bytes_between("t", 1, 3, 8) == sum(m.size for m in messages[3:8])
    assert list(seen.units(("t", 1), 3, 5)) == [
        (m.queue_offset, m.physical_offset, m.size) for m in messages[3:5]
    ]
    assert seen.store_time("t", 1, 4) == messages[4].store_timestamp
    assert seen.store_time("t", 1, 10) is None


def test_frozen_start_holds_numbers_only(tmp_path: Path) -> None:
    fill(tmp_path, range(10))
    path = str(tmp_path)
    assert frozen_start({"path": path, "startingOffsets": "latest"}) == '{"t":{"0":5,"1":5}}'
    assert frozen_start({"path": path}) == "earliest"
    assert frozen_start({"path": path, "startingOffsets": '{"t":{"1":-1}}'}) == '{"t":{"0":0,"1":5}}'


def test_stream_needs_one_whole_store(tmp_path: Path) -> None:
    fill(tmp_path / "a", range(4))
    fill(tmp_path / "b", range(4))
    assert len(open_places(f"{tmp_path}/a,{tmp_path}/b")) == 2
    for path in (f"{tmp_path}/a,{tmp_path}/b", f"{tmp_path}/a/commitlog"):
        with pytest.raises(UsageError, match="one store directory"):
            stream_place(ReadOptions(path=path))
