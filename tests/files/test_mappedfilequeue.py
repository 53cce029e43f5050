from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import CorruptFile, DiskFull, FlushFailed, StoreError
from penstock.files import AllocateMappedFileService, DiskStorage, MappedFileQueue, MemoryStorage

from .place import Place

SIZE = 4 * 4096


def name(number: int) -> str:
    return f"{number * SIZE:020d}"


def queue_of(place: Place, files: int = 0, **options: object) -> MappedFileQueue:
    """A loaded queue with so many files, all but the last full, the last with 100 bytes; all flushed."""
    queue = MappedFileQueue(place.storage, place.path("log"), SIZE, **options)  # type: ignore[arg-type]
    queue.load()
    for number in range(files):
        file = queue.get_last_mapped_file()
        assert file is not None
        assert file.append_message(bytes([number + 1]) * (SIZE if number < files - 1 else 100))
    while not queue.flush():
        pass
    return queue


def reload(place: Place, **options: object) -> MappedFileQueue:
    queue = MappedFileQueue(place.storage, place.path("log"), SIZE, **options)  # type: ignore[arg-type]
    queue.load()
    return queue


# -- loading --


def test_missing_folder_is_an_empty_queue(place: Place) -> None:
    queue = queue_of(place)
    assert (queue.files, queue.min_offset, queue.max_offset, queue.flush(), queue.commit()) == (
        (),
        -1,
        0,
        True,
        True,
    )
    assert queue.get_last_mapped_file(need_create=False) is None
    assert queue.find_mapped_file_by_offset(0, True) is None
    assert not place.storage.exists(place.path("log"))


def test_loaded_files_come_in_order_and_are_full(place: Place) -> None:
    queue_of(place, 3)
    queue = reload(place)
    assert [file.file_name for file in queue.files] == [name(0), name(1), name(2)]
    assert all(file.is_full for file in queue.files)
    assert queue.check_self() == []
    assert (queue.min_offset, queue.max_offset) == (0, 3 * SIZE)


def test_name_beyond_any_offset_is_an_error_that_names_it(place: Place) -> None:
    place.storage.makedirs(place.path("log"))
    place.storage.create_file(place.path(f"log/{1 << 63:020d}"), bytes(SIZE))
    with pytest.raises(CorruptFile) as caught:
        reload(place)
    assert str(1 << 63) in str(caught.value)


@pytest.mark.parametrize("size", [0, 1, SIZE // 2])
def test_what_a_crash_left_of_a_file_being_made_is_removed(place: Place, size: int) -> None:
    queue_of(place, 2)
    place.storage.create_file(place.path(f"log/{name(2)}"), bytes(size))
    queue = reload(place)
    assert len(queue.files) == 2
    assert not place.storage.exists(place.path(f"log/{name(2)}"))


def test_reading_removes_nothing(place: Place) -> None:
    queue_of(place, 2)
    place.storage.create_file(place.path(f"log/{name(2)}"), b"")
    queue = reload(place, writable=False)
    assert len(queue.files) == 2
    assert place.storage.exists(place.path(f"log/{name(2)}"))


@pytest.mark.parametrize("number", [0, 1])
def test_file_of_a_wrong_size_is_an_error_that_names_it(place: Place, number: int) -> None:
    queue_of(place, 2)
    place.storage.truncate(place.path(f"log/{name(number)}"), SIZE - 1)
    with pytest.raises(CorruptFile) as caught:
        reload(place)
    assert caught.value.file == place.path(f"log/{name(number)}")
    assert f"{SIZE - 1} bytes instead of {SIZE}" in str(caught.value)


def test_longer_file_is_an_error_even_if_it_is_zeros(place: Place) -> None:
    place.storage.makedirs(place.path("log"))
    place.storage.create_file(place.path(f"log/{name(0)}"), bytes(SIZE + 1))
    with pytest.raises(CorruptFile):
        reload(place)
    assert place.storage.exists(place.path(f"log/{name(0)}"))


def test_empty_file_in_the_middle_is_an_error(place: Place) -> None:
    queue_of(place, 3)
    place.storage.truncate(place.path(f"log/{name(1)}"), 0)
    with pytest.raises(CorruptFile) as caught:
        reload(place)
    assert name(1) in str(caught.value)


def test_foreign_file_is_an_error_that_names_it_or_is_left_aside(place: Place) -> None:
    queue_of(place, 1)
    place.storage.makedirs(place.path("log/lost+found"))
    place.storage.create_file(place.path("log/notes.txt"), b"hello")
    with pytest.raises(CorruptFile) as caught:
        reload(place)
    assert "notes.txt" in str(caught.value)
    queue = MappedFileQueue(place.storage, place.path("log"), SIZE)
    queue.load(strict=False)
    assert (len(queue.files), queue.ignored) == (1, ["notes.txt"])


def test_missing_middle_file_is_reported_with_its_offset(place: Place) -> None:
    queue_of(place, 4)
    place.storage.unlink(place.path(f"log/{name(1)}"))
    queue = reload(place)
    (gap,) = queue.check_self()
    assert gap.offset == SIZE
    assert name(2) in str(gap)
    assert queue.find_mapped_file_by_offset(SIZE + 5) is None
    found = queue.find_mapped_file_by_offset(2 * SIZE)
    assert found is not None
    assert found.file_name == name(2)


# -- growing and finding --


def test_new_file_follows_a_full_one_and_starts_where_asked(place: Place) -> None:
    queue = queue_of(place)
    first = queue.get_last_mapped_file(5 * SIZE + 17)
    assert first is not None
    assert (first.file_from_offset, first.first_create_in_queue) == (5 * SIZE, True)
    assert queue.get_last_mapped_file() is first
    first.wrote_position = SIZE
    assert queue.get_last_mapped_file(need_create=False) is first
    second = queue.get_last_mapped_file()
    assert second is not None
    assert (second.file_from_offset, second.first_create_in_queue) == (6 * SIZE, False)


def test_roll_is_needed_when_it_does_not_fit(place: Place) -> None:
    queue = queue_of(place)
    assert queue.should_roll(1)
    assert queue.is_empty_or_current_file_full
    file = queue.get_last_mapped_file()
    assert file is not None
    file.wrote_position = SIZE - 10
    assert not queue.should_roll(10)
    assert queue.should_roll(11)
    assert not queue.is_empty_or_current_file_full


def test_offset_finds_its_file_and_zero_may_find_the_first(place: Place) -> None:
    queue = queue_of(place, 3)
    queue.delete_expired_file_by_time(0, clean_immediately=True, batch_max=1)
    assert queue.find_mapped_file_by_offset(0) is None
    assert queue.find_mapped_file_by_offset(0, True) is queue.files[0]
    assert queue.find_mapped_file_by_offset(SIZE) is queue.files[0]
    assert queue.find_mapped_file_by_offset(2 * SIZE - 1) is queue.files[0]
    assert queue.find_mapped_file_by_offset(2 * SIZE) is queue.files[1]
    assert queue.find_mapped_file_by_offset(3 * SIZE) is None
    assert queue.find_mapped_file_by_offset(3 * SIZE, True) is queue.files[0]


def test_s26_one_object_for_a_name(place: Place) -> None:
    queue = queue_of(place, 2)
    again = queue.try_create_mapped_file(SIZE)
    assert again is queue.files[1]
    assert len(queue.files) == 2


def test_s13_full_disk_at_a_roll_is_an_error_and_the_next_try_works(memory: MemoryStorage) -> None:
    place = Place(memory, "/s")
    queue = queue_of(place, 1)
    queue.files[0].wrote_position = SIZE
    memory.capacity = memory.used
    with pytest.raises(DiskFull):
        queue.get_last_mapped_file()
    assert len(queue.files) == 1
    memory.capacity = 10 * SIZE
    file = queue.get_last_mapped_file()
    assert file is not None
    assert file.file_from_offset == SIZE


def test_sparse_file_of_another_writer_is_reserved_before_it_is_appended_to(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with open(tmp_path / "log" / name(0), "wb") as handle:
        handle.write(b"x" * 100)
        handle.truncate(SIZE)
    queue = reload(Place(DiskStorage(), str(tmp_path)))
    queue.files[0].wrote_position = 100
    file = queue.get_last_mapped_file()
    assert file is not None
    assert (tmp_path / "log" / name(0)).stat().st_blocks * 512 >= SIZE
    assert bytes(file.slice()[:101]) == b"x" * 100 + b"\0"


def test_file_by_time_is_the_first_modified_since(place: Place) -> None:
    queue = queue_of(place, 3)
    for number, file in enumerate(queue.files):
        place.storage.set_mtime(file.path, 1000 * (number + 1))
    assert queue.get_mapped_file_by_time(1500) is queue.files[1]
    assert queue.get_mapped_file_by_time(2000) is queue.files[1]
    assert queue.get_mapped_file_by_time(9000) is queue.files[2]


# -- flushing and committing --


def test_flush_takes_one_file_a_call_and_says_when_nothing_moved(place: Place) -> None:
    queue = queue_of(place)
    for _ in range(2):
        file = queue.get_last_mapped_file()
        assert file is not None
        file.append_message(b"x" * SIZE)
    file.store_timestamp = 77
    assert (queue.remain_to_flush, queue.max_offset, queue.max_wrote_position) == (
        2 * SIZE,
        2 * SIZE,
        2 * SIZE,
    )
    assert not queue.flush()
    assert (queue.flushed_where, queue.store_timestamp) == (SIZE, 0)
    assert not queue.flush()
    assert (queue.flushed_where, queue.store_timestamp, queue.remain_to_flush) == (2 * SIZE, 77, 0)
    assert queue.flush()


def test_flush_goes_on_behind_deleted_files(place: Place) -> None:
    queue = queue_of(place, 3)
    queue.flushed_where = 10
    queue.delete_expired_file_by_time(0, clean_immediately=True)
    queue.files[0].append_message(b"more")
    while not queue.flush():
        pass
    assert queue.flushed_where == 2 * SIZE + 104


def test_s01_waterline_never_passes_a_failed_sync(memory: MemoryStorage) -> None:
    queue = queue_of(Place(memory, "/s"), 1)
    queue.files[0].append_message(b"lost")
    memory.fail("sync", errno.EIO, times=1)
    for _ in range(2):
        with pytest.raises(FlushFailed):
            queue.flush()
    assert queue.flushed_where == 100


def test_commit_without_buffers_follows_what_was_written(place: Place) -> None:
    queue = queue_of(place, 1)
    assert queue.remain_to_commit == 100
    assert not queue.commit()
    assert queue.committed_where == 100
    assert queue.commit()


# -- cutting --


def test_s03_stale_bytes_are_not_resurrected(memory: MemoryStorage) -> None:
    place = Place(memory, "/s")
    queue = queue_of(place, 3)
    queue.truncate_dirty_files(SIZE + 10)
    assert (queue.max_offset, queue.flushed_where, queue.committed_where) == (SIZE + 10, SIZE + 10, 0)
    for image in memory.crash_states():
        assert [entry.name for entry in image.listdir("/s/log")] == [name(0), name(1)]
        assert image.read_file(f"/s/log/{name(1)}") == b"\2" * 10 + bytes(SIZE - 10)
        assert image.read_file(f"/s/log/{name(0)}") == b"\1" * SIZE


def test_s08_cut_at_a_file_boundary_keeps_the_full_file_and_drops_the_next(place: Place) -> None:
    queue = queue_of(place, 3)
    queue.truncate_dirty_files(SIZE)
    assert [file.file_name for file in queue.files] == [name(0), name(1)]
    assert queue.files[0].is_full
    assert queue.files[1].wrote_position == 0
    assert not any(queue.files[1].slice())


def test_cut_at_the_very_end_changes_nothing(place: Place) -> None:
    queue_of(place, 2)
    queue = reload(place)
    queue.truncate_dirty_files(2 * SIZE)
    assert len(queue.files) == 2
    assert queue.files[1].is_full
    assert bytes(queue.files[1].slice()[:100]) == b"\2" * 100


def test_cut_leaves_no_gap_whenever_the_power_goes(memory: MemoryStorage) -> None:
    queue = queue_of(Place(memory, "/s"), 4)
    left: list[list[str]] = []
    memory.on_step = lambda operation, path: left.extend(
        [entry.name for entry in image.listdir("/s/log")] for image in memory.crash_states()
    )
    queue.truncate_dirty_files(10)
    memory.on_step = None
    assert {len(names) for names in left} >= {1, 4}
    assert all(name(0) in names for names in left)


def test_cut_before_the_first_file_empties_the_queue(place: Place) -> None:
    queue = queue_of(place)
    queue.get_last_mapped_file(5 * SIZE)
    queue.truncate_dirty_files(SIZE)
    assert queue.files == ()
    assert place.storage.listdir(place.path("log")) == []


def test_reset_goes_back_two_files_and_no_further(place: Place) -> None:
    queue = queue_of(place, 4)
    assert not queue.reset_offset(SIZE)
    assert len(queue.files) == 4
    assert queue.reset_offset(SIZE + 200)
    assert queue.max_offset == SIZE + 200
    assert not place.storage.exists(place.path(f"log/{name(2)}"))


def test_reset_of_an_empty_queue_is_fine(place: Place) -> None:
    assert queue_of(place).reset_offset(10)


def test_failed_erasing_says_which_file(memory: MemoryStorage) -> None:
    queue = queue_of(Place(memory, "/s"), 1)
    memory.fail("write", errno.EIO)
    with pytest.raises(StoreError) as caught:
        queue.truncate_dirty_files(10)
    assert caught.value.file == f"/s/log/{name(0)}"


# -- deleting --


def test_expired_files_go_oldest_first_and_never_the_last(place: Place) -> None:
    clock = ManualClock(1_000_000)
    queue = queue_of(place, 4, clock=clock)
    for file, age in zip(queue.files, (500, 400, 100, 900), strict=True):
        place.storage.set_mtime(file.path, clock.now_ms() - age)
    assert queue.delete_expired_file_by_time(300) == 2
    assert [file.file_name for file in queue.files] == [name(2), name(3)]
    clock.advance(10_000)
    assert queue.delete_expired_file_by_time(300) == 1
    assert queue.delete_expired_file_by_time(300) == 0
    assert [entry.name for entry in place.storage.listdir(place.path("log"))] == [name(3)]


def test_cleaning_at_once_deletes_a_batch_with_pauses_between(place: Place) -> None:
    queue = queue_of(place, 5)
    pauses: list[int] = []
    count = queue.delete_expired_file_by_time(
        10**12, clean_immediately=True, batch_max=3, pause=lambda: pauses.append(len(queue.files))
    )
    assert (count, pauses, queue.min_offset) == (3, [4, 3], 3 * SIZE)


def test_file_that_somebody_removed_is_forgotten(place: Place) -> None:
    queue = queue_of(place, 2, clock=ManualClock(0))
    place.storage.unlink(queue.files[0].path)
    assert queue.delete_expired_file_by_time(10**12) == 1
    assert queue.min_offset == SIZE


def test_queue_files_go_when_their_last_unit_is_before_the_log(place: Place) -> None:
    queue = queue_of(place, 4)
    unit = 16
    for number, file in enumerate(queue.files):
        struct.pack_into(">q", file.mapping.view_writable(SIZE - unit, unit), 0, 1000 * (number + 1))
    assert queue.delete_expired_file_by_offset(2000, unit) == 1
    assert queue.delete_expired_file_by_offset(2000, unit) == 0
    assert queue.delete_expired_file_by_offset(10**9, unit) == 2
    assert [file.file_name for file in queue.files] == [name(3)]


def test_shut_down_first_file_is_removed_on_retry(place: Place) -> None:
    queue = queue_of(place, 2)
    assert not queue.retry_delete_first_file()
    queue.files[0].shutdown()
    assert queue.retry_delete_first_file()
    assert [file.file_name for file in queue.files] == [name(1)]
    assert not place.storage.exists(place.path(f"log/{name(0)}"))


def test_last_file_can_be_dropped(place: Place) -> None:
    queue = queue_of(place, 2)
    queue.delete_last_mapped_file()
    assert [entry.name for entry in place.storage.listdir(place.path("log"))] == [name(0)]


def test_destroyed_queue_leaves_nothing(place: Place) -> None:
    queue = queue_of(place, 2)
    queue.destroy()
    queue.destroy()
    assert not place.storage.exists(place.path("log"))
    assert (queue.files, queue.flushed_where) == ((), 0)


def test_s12_view_survives_deletion_and_shutdown_of_the_queue(place: Place) -> None:
    queue = queue_of(place, 2)
    view = queue.files[0].select(0, 10)
    other = queue.files[1].select(0, 10)
    assert view is not None
    assert other is not None
    queue.delete_expired_file_by_time(0, clean_immediately=True)
    queue.shutdown()
    assert bytes(view) == b"\1" * 10
    assert bytes(other) == b"\2" * 10


def test_cut_removes_files_made_ahead(tmp_path: Path) -> None:
    storage = DiskStorage()
    service = AllocateMappedFileService(storage)
    service.start()
    try:
        queue = queue_of(Place(storage, str(tmp_path)), 3, allocate=service)
        service.request(queue.files[2].path.replace(name(2), name(3)), None, SIZE).result()
        queue.truncate_dirty_files(10)
        assert [entry.name for entry in storage.listdir(tmp_path / "log")] == [name(0)]
        queue.files[0].wrote_position = SIZE
        again = queue.get_last_mapped_file()
        assert again is not None
        assert again.file_from_offset == SIZE
        assert not any(again.slice())
    finally:
        service.shutdown()
