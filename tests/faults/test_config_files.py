"""S16: the JSON files beside the log are torn, have bytes behind their end, or are gone."""

from __future__ import annotations

import pytest

from faults.place import Place
from penstock.errors import CorruptFile

OFFSETS = "config/consumerOffset.json"


def store_with_offsets() -> tuple[Place, bytes]:
    """A closed store whose group stands at 7, with a backup that says 3."""
    place = Place()
    place.open()
    for number in range(10):
        place.put(number)
    place.store.dispatch()
    for offset in (3, 7):
        place.store.consumer_offsets.commit("group", "T", 0, offset)
        place.store.consumer_offsets.persist()
    place.store.close()
    return place, place.storage.read_file(place.path(OFFSETS))


def test_s16_torn_offsets_are_served_from_the_backup() -> None:
    place, whole = store_with_offsets()
    path = place.path(OFFSETS)
    for length in range(len(whole)):
        place.storage.create_file(path, whole[:length])
        store = place.open()
        assert store.consumer_offsets.query("group", "T", 0) in (3, 7), f"cut to {length} bytes"
        store.abandon()


@pytest.mark.parametrize("tail", [b"}", b'"T@group":{0:9}}', bytes(100), b"\xff\xfe"])
def test_s16_stale_bytes_behind_the_end_do_not_count(tail: bytes) -> None:
    place, whole = store_with_offsets()
    place.storage.create_file(place.path(OFFSETS), whole + tail)
    store = place.open()
    assert store.consumer_offsets.query("group", "T", 0) in (3, 7)


def test_s16_error_names_the_file_and_the_place_when_nothing_can_be_read() -> None:
    place, whole = store_with_offsets()
    place.storage.create_file(place.path(OFFSETS), whole[: len(whole) // 2])
    place.storage.create_file(place.path(OFFSETS + ".bak"), b"\0" * 10)
    with pytest.raises(CorruptFile) as raised:
        place.open()
    assert raised.value.file == place.path(OFFSETS) and raised.value.hint
    place.storage.create_file(place.path(OFFSETS), whole)
    assert place.open().consumer_offsets.query("group", "T", 0) == 7


def test_s16_offsets_survive_a_power_cut_at_any_step_of_their_writing() -> None:
    place = Place()
    place.open()
    for number in range(10):
        place.put(number)
    place.store.dispatch()
    place.store.sync_positions()
    place.store.consumer_offsets.commit("group", "T", 0, 3)
    place.store.consumer_offsets.persist()
    seen = set()

    def cut(operation: str, path: str) -> None:
        if "config" not in path:
            return
        for image in place.storage.crash_states(8):
            after = Place(storage=image)
            offset = after.open().consumer_offsets.query("group", "T", 0)
            assert offset in (3, 7), f"{operation} {path}: {offset}"
            seen.add(offset)
            after.kill()

    place.storage.on_step = cut
    place.store.consumer_offsets.commit("group", "T", 0, 7)
    place.store.consumer_offsets.persist()
    place.storage.on_step = None
    assert seen == {3, 7}


def test_s16_topics_file_that_is_torn_is_served_from_the_backup() -> None:
    place = Place()
    place.open()
    place.store.make_batch_topic("one")
    place.store.make_batch_topic("two")
    place.store.close()
    path = place.path("config/topics.json")
    whole = place.storage.read_file(path)
    for length in range(0, len(whole), 5):
        place.storage.create_file(path, whole[:length])
        store = place.open()
        assert "one" in store._queues.batch_topics, f"cut to {length} bytes"
        store.abandon()
