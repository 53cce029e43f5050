from __future__ import annotations

import errno

import pytest

from penstock.errors import CorruptFile, DiskFull, FlushFailed, StoreError
from penstock.files import MappedFile, MemoryStorage, TransientStorePool

from .place import Place

SIZE = 16 * 4096


def make(place: Place, name: str = "00000000000000065536", **options: object) -> MappedFile:
    return MappedFile.create(place.storage, place.path(name), SIZE, **options)  # type: ignore[arg-type]


def test_name_places_the_file_in_the_queue(place: Place) -> None:
    file = make(place)
    assert (file.file_from_offset, file.file_size, file.end_offset) == (65536, SIZE, 65536 + SIZE)
    assert file.file_name == "00000000000000065536"
    assert (file.wrote_position, file.committed_position, file.flushed_position) == (0, 0, 0)


def test_loaded_file_is_full_until_recovery_knows_better(place: Place) -> None:
    make(place).shutdown()
    file = MappedFile.open(place.storage, place.path("00000000000000065536"), SIZE)
    assert (file.wrote_position, file.committed_position, file.flushed_position) == (SIZE, SIZE, SIZE)
    assert (file.is_full, file.store_timestamp) == (True, 0)


def test_s26_existing_file_is_never_taken_for_a_new_one(place: Place) -> None:
    place.storage.create_file(place.path("00000000000000065536"), b"stale records")
    with pytest.raises(CorruptFile) as caught:
        make(place)
    assert "00000000000000065536" in str(caught.value)
    assert place.storage.read_file(place.path("00000000000000065536")) == b"stale records"


def test_name_that_is_no_offset_is_refused(place: Place) -> None:
    with pytest.raises(CorruptFile, match="not an offset"):
        make(place, "commitlog")
    assert not place.storage.exists(place.path("commitlog"))


def test_reading_ends_at_the_read_position(place: Place) -> None:
    file = make(place)
    assert file.append_message(b"abcdef")
    view = file.select(2, 4)
    assert view is not None
    assert bytes(view) == b"cdef"
    whole = file.select(1)
    assert whole is not None
    assert bytes(whole) == b"bcdef"
    assert file.select(2, 5) is None
    assert file.select(6) is None
    assert file.select(-1, 2) is None
    assert file.get_data(0, 3) == b"abc"
    assert file.get_data(0, 7) is None
    assert len(file.slice()) == SIZE


def test_flush_waits_for_enough_pages_unless_full(place: Place) -> None:
    file = make(place)
    file.append_message(b"x" * 5000)
    assert not file.is_able_to_flush(2)
    assert file.flush(2) == 0
    assert file.flush(1) == 5000
    assert not file.is_able_to_flush(0)
    file.wrote_position = SIZE
    assert file.is_able_to_flush(100)
    assert file.flush(100) == SIZE


def test_s01_failed_sync_is_final_even_if_the_next_would_succeed(memory: MemoryStorage) -> None:
    file = make(Place(memory, "/s"))
    file.append_message(b"acked")
    file.flush()
    file.append_message(b"lost")
    memory.fail("sync", errno.EIO, times=1)
    with pytest.raises(FlushFailed) as caught:
        file.flush()
    assert (caught.value.file, caught.value.offset) == (file.path, 65536 + 5)
    with pytest.raises(FlushFailed):
        file.flush()
    assert file.flushed_position == 5


def test_file_that_is_going_does_not_pretend_to_be_flushed(place: Place) -> None:
    file = make(place)
    file.append_message(b"abc")
    file.shutdown()
    assert not file.hold()
    assert file.flush() == 0
    assert file.flushed_position == 0


def test_s12_destroyed_file_is_gone_at_once_and_its_views_stay_valid(place: Place) -> None:
    file = make(place)
    file.append_message(b"still here")
    view = file.select(0, 10)
    assert view is not None
    file.destroy()
    assert not place.storage.exists(file.path)
    assert not file.available
    assert file.select(0, 1) is None
    assert not file.append_message(b"x")
    assert bytes(view) == b"still here"
    assert not file.cleanup_over
    view.release()
    assert file.cleanup_over
    file.destroy()


def test_s12_holder_keeps_a_destroyed_file_mapped(place: Place) -> None:
    file = make(place)
    assert file.hold()
    file.destroy()
    assert not file.cleanup_over
    file.release()
    assert file.cleanup_over


def test_s03_cut_bytes_are_erased_on_disk(memory: MemoryStorage) -> None:
    file = make(Place(memory, "/s"))
    file.append_message(b"\xff" * 10_000)
    file.flush()
    file.truncate(4100)
    assert (file.wrote_position, file.committed_position, file.flushed_position) == (4100, 4100, 4100)
    for image in memory.crash_states():
        body = image.read_file(file.path)
        assert body == b"\xff" * 4100 + bytes(SIZE - 4100)


def test_s13_no_room_is_an_error_that_can_be_tried_again(memory: MemoryStorage) -> None:
    memory.capacity = SIZE // 2
    with pytest.raises(DiskFull) as caught:
        make(Place(memory, "/s"))
    assert "00000000000000065536" in str(caught.value)
    memory.capacity = SIZE * 2
    assert make(Place(memory, "/s")).append_message(b"x")


def test_written_data_is_readable_only_after_commit_with_a_write_buffer(place: Place) -> None:
    pool = TransientStorePool(1, SIZE)
    file = make(place, pool=pool)
    assert file.has_write_buffer
    assert file._buffer is not None
    file._buffer[:5] = b"hello"
    file.wrote_position = 5
    assert file.select(0, 5) is None
    assert file.commit(1) == 0
    assert file.commit(0) == 5
    view = file.select(0, 5)
    assert view is not None
    assert bytes(view) == b"hello"
    assert file.flush() == 5


def test_full_file_returns_its_buffer_to_the_pool(place: Place) -> None:
    pool = TransientStorePool(1, SIZE)
    file = make(place, pool=pool)
    assert pool.available == 0
    file.wrote_position = SIZE
    assert file.commit(100) == SIZE
    assert (pool.available, file.has_write_buffer, file.read_position) == (1, False, SIZE)
    assert file.commit() == SIZE


def test_buffer_is_not_returned_while_it_holds_uncommitted_bytes(place: Place) -> None:
    pool = TransientStorePool(1, SIZE)
    file = make(place, pool=pool)
    file.wrote_position = 10
    assert not file.return_write_buffer()
    assert (file.wrote_position, pool.available) == (10, 0)
    file.commit()
    assert file.return_write_buffer()
    assert (file.wrote_position, pool.available, file.read_position) == (10, 1, 10)


def test_destroyed_file_gives_its_buffer_back(place: Place) -> None:
    pool = TransientStorePool(1, SIZE)
    file = make(place, pool=pool)
    file.wrote_position = 10
    file.destroy()
    assert pool.available == 1


def test_without_a_free_buffer_the_file_works_without_one(place: Place) -> None:
    file = make(place, pool=TransientStorePool(0, SIZE))
    assert file.append_message(b"abc")
    assert file.commit() == 3
    assert file.select(0, 3) is not None


def test_failed_commit_moves_nothing_and_can_be_repeated(memory: MemoryStorage) -> None:
    file = make(Place(memory, "/s"), pool=TransientStorePool(1, SIZE))
    file.wrote_position = 100
    memory.fail("write", errno.ENOSPC, times=1)
    with pytest.raises(DiskFull):
        file.commit()
    assert file.committed_position == 0
    assert file.commit() == 100


def test_replica_pool_makes_everything_written_readable(place: Place) -> None:
    file = make(place, pool=TransientStorePool(1, SIZE, real_commit=False))
    file.append_message(b"abc")
    assert file.read_position == 3
    assert file.commit() == 3


def test_cutting_erases_the_write_buffer_too(place: Place) -> None:
    file = make(place, pool=TransientStorePool(1, SIZE))
    assert file._buffer is not None
    file._buffer[:100] = b"\xff" * 100
    file.wrote_position = 100
    file.commit()
    file.truncate(10)
    file.wrote_position = SIZE
    file.commit()
    assert place.storage.read_file(file.path) == b"\xff" * 10 + bytes(SIZE - 10)


def test_warming_up_changes_no_byte(place: Place) -> None:
    file = make(place)
    file.append_message(b"abc")
    file.warm_up(written=True)
    assert file.prepared_position == SIZE
    assert bytes(file.slice()) == b"abc" + bytes(SIZE - 3)


def test_file_that_cannot_be_removed_says_so(memory: MemoryStorage) -> None:
    file = make(Place(memory, "/s"))
    memory.fail("unlink", errno.EIO)
    with pytest.raises(StoreError) as caught:
        file.destroy()
    assert caught.value.file == file.path
    assert not file.available
