"""Batch queues: every message is found by its offset, units come back, and none comes twice."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.place import Place
from format.golden_log import GoldenLog
from penstock.files import DiskStorage, FileCache, MemoryStorage, Storage
from penstock.format.batchunit import BATCH_UNIT_SIZE, BatchUnit, decode_batch_unit
from penstock.format.javahash import java_hash
from penstock.store.batchconsumequeue import BatchConsumeQueue

FILE = 5 * BATCH_UNIT_SIZE
Shape = list[tuple[int, int, int]]
"""Gap in the log, batch size and gap in the queue before each unit."""

shapes = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.sampled_from([0, 0, 0, 3])), max_size=23)


def make(storage: Storage, root: str, file_size: int = FILE, *, writable: bool = True) -> BatchConsumeQueue:
    queue = BatchConsumeQueue(storage, f"{root}/queue", "topic", 3, file_size, writable=writable)
    queue.load()
    queue.recover()
    return queue


def memory_queue() -> BatchConsumeQueue:
    storage = MemoryStorage()
    storage.makedirs("/s")
    return make(storage, "/s")


def fill(queue: BatchConsumeQueue, shape: Shape, base: int = 0) -> list[BatchUnit]:
    """Put units of 100-byte records; each is stored ten milliseconds after the one before."""
    units, physical, time = [], 1000, 5000
    for hole, size, gap in shape:
        physical, base, time = physical + 100 + hole, base + gap, time + 10
        unit = BatchUnit(physical, 100, hole, time, base, size)
        assert queue.put(*unit[:6])
        units.append(unit)
        base += size
    return units


def decoded(view: memoryview | None) -> list[BatchUnit]:
    assert view is not None
    return [decode_batch_unit(view, position) for position in range(0, len(view), BATCH_UNIT_SIZE)]


def plain(count: int) -> Shape:
    return [(0, 2, 0)] * count


@given(shapes, st.integers(0, 50))
def test_every_message_is_found_by_its_offset(shape: Shape, base: int) -> None:
    queue = memory_queue()
    units = fill(queue, shape, base)
    assert list(queue.iterate(0)) == units
    if not units:
        assert (queue.min_offset, queue.max_offset, queue.units_from(0)) == (0, 0, None)
        return
    assert (queue.min_offset, queue.max_offset) == (units[0].base_offset, units[-1].next_offset)
    for offset in range(queue.min_offset, queue.max_offset):
        holder = next((u for u in units if u.base_offset <= offset < u.next_offset), None)
        assert queue.unit(offset) == holder
        following = [u for u in units if u.next_offset > offset]
        file_end = 5 - units.index(following[0]) % 5
        assert decoded(queue.units_from(offset)) == following[:file_end]
    assert queue.units_from(queue.max_offset) is queue.units_from(queue.min_offset - 1) is None


@given(shapes)
def test_reopening_finds_the_same_units(shape: Shape) -> None:
    queue = memory_queue()
    units = fill(queue, shape)
    queue.close()
    for writable in (False, True):
        again = make(queue.storage, "/s", writable=writable)
        assert list(again.iterate(0)) == units
        assert (again.min_offset, again.max_offset) == (queue.min_offset, queue.max_offset)
        assert again.max_physical_offset == queue.max_physical_offset
        assert again.last_start_offset == queue.last_start_offset


@given(shapes)
def test_a_record_that_was_put_is_not_put_again(shape: Shape) -> None:
    queue = memory_queue()
    units = fill(queue, shape)
    for unit in units:
        assert queue.put(*unit[:6])
    assert list(queue.iterate(0)) == units


@given(shapes, st.data())
def test_truncation_drops_and_erases_units_behind_a_place(shape: Shape, data: st.DataObject) -> None:
    queue = memory_queue()
    units = fill(queue, shape)
    end = units[-1].physical_offset + 100 if units else 1000
    physical = data.draw(st.integers(0, end + 1))
    kept = [unit for unit in units if unit.physical_offset < physical]
    assert queue.truncate_dirty(physical) == len(units) - len(kept)
    for found in (queue, make(queue.storage, "/s")):
        assert list(found.iterate(0)) == kept
        if kept:
            assert found.max_offset == kept[-1].next_offset
        assert found.min_offset <= found.max_offset
        assert found.max_physical_offset == (kept[-1].physical_offset + 100 if kept else -1)
    for unit in units:  # dispatching the records again gives the queue back
        assert queue.put(*unit[:6])
    assert list(queue.iterate(0)) == units


@given(shapes, st.data())
def test_the_minimum_skips_messages_whose_records_are_gone(shape: Shape, data: st.DataObject) -> None:
    queue = memory_queue()
    units = fill(queue, shape)
    physical = data.draw(st.integers(0, units[-1].physical_offset + 1 if units else 10))
    queue.correct_min_offset(physical)
    gone = [unit for unit in units if unit.physical_offset < physical]
    if gone:
        assert queue.min_offset == gone[-1].next_offset
    elif units:
        assert queue.min_offset == units[0].base_offset
    removed = queue.delete_expired(physical)
    assert removed == min(len(gone) // 5, max(0, len(queue.files) + removed - 1))
    assert [u for u in queue.iterate(0) if u not in gone] == units[len(gone) :]


def search_as_the_format_says(units: list[BatchUnit], per_file: int, time: int, lower: bool) -> int:
    """Section 3.5 word by word, without its clamping."""
    files = [units[i : i + per_file] for i in range(0, len(units), per_file)]
    if not files:
        return -1
    early = [file for file in files if file[0].store_timestamp <= time]
    file = early[-1] if early else files[0]
    if time >= file[-1].store_timestamp:
        return file[-1].base_offset
    left, right = 0, len(file) - 1
    while True:
        mid = (left + right) // 2
        unit = file[mid]
        if mid == right:
            return unit.base_offset if unit.store_timestamp >= time else -1
        if mid == left:
            if unit.store_timestamp >= time:
                return unit.base_offset
            left = mid + 1
        elif lower:
            if unit.store_timestamp < time:
                left = mid + 1
            else:
                right = mid
        elif unit.store_timestamp <= time:
            left = mid
        else:
            right = mid - 1


@given(shapes, st.integers(4990, 5300), st.booleans())
def test_the_search_by_time_is_that_of_the_format(shape: Shape, time: int, lower: bool) -> None:
    queue = memory_queue()
    units = fill(queue, shape, base=7)
    expected = search_as_the_format_says(units, 5, time, lower)
    answer = queue.offset_by_time(time, "lower" if lower else "UPPER", lambda offset, size: -1, 0)
    assert answer == max(queue.min_offset, min(expected, queue.max_offset))


def test_a_unit_whose_place_is_taken_is_left_out(place: Place) -> None:
    queue = make(place.storage, place.root)
    assert queue.put(100, 10, 0, 1, 5, 3)
    assert not queue.put(200, 10, 0, 2, 7, 1)
    assert not queue.put(200, 10, 0, 2, 8, 0)
    assert not queue.put(200, 10, 0, 2, 8, 40000)
    assert queue.put(200, 10, 0, 2, 8, 1)
    assert (queue.min_offset, queue.max_offset) == (5, 9)


def test_a_file_size_that_is_no_multiple_leaves_a_rest_unused(place: Place) -> None:
    queue = make(place.storage, place.root, 100)
    units = fill(queue, plain(5))
    assert queue.files == (0, 100, 200)
    assert list(make(place.storage, place.root, 100).iterate(0)) == units


def test_a_gap_does_not_hold_a_reader_up(place: Place) -> None:
    queue = make(place.storage, place.root)
    queue.put(100, 10, 0, 1, 0, 2)
    queue.put(200, 10, 0, 2, 10, 2)
    assert queue.unit(5) is None
    assert decoded(queue.units_from(5))[0].base_offset == 10


def test_units_stay_readable_while_their_file_goes(place: Place) -> None:
    queue = make(place.storage, place.root)
    units = fill(queue, plain(12))
    view = queue.units_from(0)
    assert queue.delete_expired(units[10].physical_offset) == 2
    assert decoded(view) == units[:5]
    assert (queue.files, queue.min_offset) == ((2 * FILE,), units[10].base_offset)
    assert queue.units_from(0) is None


def test_what_lies_behind_an_invalid_unit_is_erased(place: Place) -> None:
    queue = make(place.storage, place.root)
    units = fill(queue, plain(12))
    queue.close()
    path = queue.path_of(FILE)
    data = bytearray(place.storage.read_file(path))
    data[2 * 46 : 2 * 46 + 12] = bytes(12)
    place.storage.create_file(path, bytes(data))
    reader = make(place.storage, place.root, writable=False)
    assert list(reader.iterate(0)) == units[:7]
    assert place.storage.read_file(path) == data
    again = make(place.storage, place.root)
    assert list(again.iterate(0)) == units[:7]
    assert not any(place.storage.read_file(path)[2 * 46 :])
    assert not place.storage.exists(queue.path_of(2 * FILE))


def test_a_failed_write_changes_nothing_and_can_be_repeated() -> None:
    queue = memory_queue()
    assert isinstance(queue.storage, MemoryStorage)
    units = fill(queue, plain(5))
    queue.storage.fail("write", errno.ENOSPC)
    with pytest.raises(OSError, match="space"):
        queue.put(5000, 10, 0, 9000, 10, 1)
    assert list(queue.iterate(0)) == units
    assert queue.put(5000, 10, 0, 9000, 10, 1)
    assert queue.max_offset == 11


def test_flushed_units_survive_a_power_cut_and_the_rest_is_whole_or_gone() -> None:
    queue = memory_queue()
    assert isinstance(queue.storage, MemoryStorage)
    fill(queue, plain(7))
    assert queue.flush() == 2
    assert queue.flush() == 0
    units = fill(queue, plain(13))
    for image in queue.storage.crash_states(limit=60, torn=True):
        found = list(make(image, "/s").iterate(0))
        assert len(found) >= 7
        assert found == units[: len(found)]


def test_a_failed_sync_is_owed_until_it_is_done() -> None:
    queue = memory_queue()
    assert isinstance(queue.storage, MemoryStorage)
    fill(queue, plain(2))
    queue.storage.fail("sync", errno.EIO)
    with pytest.raises(OSError):
        queue.flush()
    assert queue.native.unsynced
    assert queue.flush() == 1


def test_destroying_leaves_an_empty_queue(place: Place) -> None:
    queue = make(place.storage, place.root)
    fill(queue, plain(7))
    queue.destroy()
    assert not place.storage.exists(place.path("queue"))
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset, queue.files) == (0, 0, -1, ())
    assert fill(queue, plain(1)) == list(queue.iterate(0))


def test_a_shared_cache_bounds_the_open_files(tmp_path: Path) -> None:
    storage = DiskStorage()
    cache = FileCache(storage, 3)
    queues = [
        BatchConsumeQueue(storage, str(tmp_path / str(n)), "topic", n, FILE, cache=cache) for n in range(10)
    ]
    for queue in queues:
        fill(queue, plain(12))
    assert len(cache) <= 3
    assert [queue.max_offset for queue in queues] == [24] * 10
    cache.close()


@pytest.mark.parametrize("golden_log", ["batches"], indirect=True)
@pytest.mark.parametrize("writable", [True, False])
def test_rocketmq_units_are_answered_as_it_answers(golden_log: GoldenLog, writable: bool) -> None:
    store = golden_log.store
    before = {file: file.read_bytes() for file in store.path.glob("batchconsumequeue/*/*/*")}
    checked = 0
    for answer in store.answers["queues"]:
        if answer["type"] != "BatchCQ":
            continue
        topic, queue_id = answer["topic"], answer["queueId"]
        folder = store.path / "batchconsumequeue" / topic / str(queue_id)
        size = store.setting("mapperFileSizeBatchConsumeQueue", 0)
        queue = BatchConsumeQueue(DiskStorage(), str(folder), topic, queue_id, size, writable=writable)
        queue.load()
        queue.recover()
        queue.correct_min_offset(store.answers["minPhysicalOffset"])
        assert (queue.min_offset, queue.max_offset) == (answer["minOffset"], answer["maxOffset"])
        for question in store.answers["getMessage"]:
            if (question["topic"], question["queueId"]) == (topic, queue_id) and question["queueOffsets"]:
                wanted = {java_hash(tag.strip()) for tag in question.get("tags", "*").split("||")}
                found = decoded(queue.units_from(question["offset"]))
                if java_hash("*") not in wanted:
                    found = [unit for unit in found if unit.tags_code in wanted]
                count = len(question["queueOffsets"])
                assert [u.base_offset for u in found[:count]] == question["queueOffsets"], json.dumps(
                    question
                )
                assert [u.physical_offset for u in found[:count]] == question["physicalOffsets"]
                checked += 1
        for question in store.answers["offsetByTime"]:
            if (question["topic"], question["queueId"]) == (topic, queue_id):
                for boundary in ("lower", "upper"):
                    offset = queue.offset_by_time(question["timestamp"], boundary, lambda *_: -1, 0)
                    assert offset == question[boundary], (question, boundary)
                    checked += 1
        queue.close()
    assert checked > 10
    assert {file: file.read_bytes() for file in before} == before
