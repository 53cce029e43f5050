"""Files of one queue in several folders (format section 6.9)."""

from __future__ import annotations

import errno
from collections.abc import Collection

import pytest

from penstock.errors import CorruptFile, DiskFull
from penstock.files import AllocateMappedFileService, MemoryStorage, MultiPathMappedFileQueue

from .place import Place

SIZE = 4 * 4096


def queue_of(
    place: Place,
    writable: str = "a b",
    read_only: str = "",
    *,
    files: int = 0,
    full: Collection[str] = (),
    allocate: AllocateMappedFileService | None = None,
) -> MultiPathMappedFileQueue:
    """A loaded queue, with so many full files added to it."""
    queue = MultiPathMappedFileQueue(
        place.storage,
        [place.path(name) for name in writable.split()],
        SIZE,
        read_only_folders=[place.path(name) for name in read_only.split()],
        full=lambda: {place.path(name) for name in full},
        allocate=allocate,
    )
    queue.load()
    for _ in range(files):
        grow(queue)
    return queue


def grow(queue: MultiPathMappedFileQueue) -> None:
    file = queue.get_last_mapped_file()
    assert file is not None
    assert file.append_message(bytes([1 + file.file_from_offset // SIZE]) * SIZE)


def layout(queue: MultiPathMappedFileQueue) -> list[str]:
    """The folder of each file, in order."""
    return [file.path.split("/")[-2] for file in queue.files]


def test_new_files_take_turns_by_their_number(place: Place) -> None:
    assert layout(queue_of(place, "a b c", files=7)) == list("abcabca")


def test_loading_puts_the_files_of_all_folders_in_order(place: Place) -> None:
    queue_of(place, "a b c", files=5).shutdown()
    queue = queue_of(place, "a b c")
    assert [file.file_from_offset for file in queue.files] == [SIZE * n for n in range(5)]
    assert [file.slice()[0] for file in queue.files] == [1, 2, 3, 4, 5]
    assert queue.check_self() == []


def test_place_of_a_file_depends_on_its_number_not_on_who_came_before(place: Place) -> None:
    queue_of(place, "a b c", files=2).shutdown()
    queue = queue_of(place, "a b c", files=2)
    assert layout(queue) == list("abca")


def test_read_only_folders_keep_their_files_and_get_no_new_ones(place: Place) -> None:
    queue_of(place, "a b", files=3).shutdown()
    queue = queue_of(place, "b c", "a", files=3)
    assert layout(queue) == ["a", "b", "a", "c", "b", "c"]


def test_full_folders_are_passed_over_while_another_has_room(place: Place) -> None:
    full: set[str] = set()
    queue = queue_of(place, "a b c", files=1, full=full)
    full.add("b")
    for _ in range(3):
        grow(queue)
    assert layout(queue) == ["a", "c", "a", "c"]
    full |= {"a", "c"}
    grow(queue)
    assert layout(queue)[-1] == "b", "with every folder nearly full the turns go on"


def test_file_that_does_not_fit_on_one_disk_goes_to_another(memory: MemoryStorage) -> None:
    place = Place(memory, "/s")
    queue = queue_of(place, "a b", files=1)
    memory.fail("allocate", errno.ENOSPC, 0, "/s/b/*")
    grow(queue)
    assert layout(queue) == ["a", "a"]
    memory.fail("allocate", errno.ENOSPC, 0, "/s/a/*")
    with pytest.raises(DiskFull):
        queue.get_last_mapped_file()
    memory.heal()
    grow(queue)
    assert layout(queue) == ["a", "a", "a"]


def test_file_made_ahead_is_taken_where_it_lies(place: Place) -> None:
    full: set[str] = set()
    service = AllocateMappedFileService(place.storage)
    service.start()
    try:
        queue = queue_of(place, "a b", full=full, allocate=service)
        grow(queue)
        future = queue.request_next()
        assert future is not None
        future.result(10)
        full.add("b")  # too late: it is made already, and there must be one file of a name
        grow(queue)
        assert layout(queue) == ["a", "b"]
        queue.truncate_dirty_files(queue.max_offset)
    finally:
        service.shutdown()
    names = [e.name for folder in "ab" for e in place.storage.listdir(place.path(folder))]
    assert sorted(names) == [f"{SIZE * n:020d}" for n in range(2)], "what nobody took is removed"


def test_cutting_removes_later_files_in_every_folder(place: Place) -> None:
    queue = queue_of(place, "a b", files=5)
    queue.truncate_dirty_files(SIZE + 100)
    queue.shutdown()
    again = queue_of(place, "a b")
    assert layout(again) == ["a", "b"]
    assert bytes(again.files[1].slice()[98:102]) == b"\2\2\0\0"


def test_oldest_files_expire_first_wherever_they_lie(place: Place) -> None:
    queue = queue_of(place, "b c", files=4)
    assert queue.delete_expired_file_by_time(0, clean_immediately=True, batch_max=3) == 3
    assert layout(queue) == ["c"]
    assert place.storage.listdir(place.path("b")) == []


def test_two_files_of_one_name_are_refused_by_name(place: Place) -> None:
    queue_of(place, "a", files=1).shutdown()
    queue_of(place, "b", files=1).shutdown()
    with pytest.raises(CorruptFile) as caught:
        queue_of(place, "a b")
    assert place.path("b") in str(caught.value.file)
    assert place.path("a") in str(caught.value)


@pytest.mark.parametrize("empty", ["a", "b"])
def test_second_file_of_a_name_that_holds_nothing_is_removed(place: Place, empty: str) -> None:
    full = "ab".replace(empty, "")
    queue_of(place, full, files=1).shutdown()
    made_ahead = queue_of(place, empty)
    assert made_ahead.get_last_mapped_file() is not None
    made_ahead.shutdown()
    queue = queue_of(place, "a b")
    assert layout(queue) == [full]
    assert place.storage.listdir(place.path(empty)) == []


def test_file_that_was_being_made_is_removed_only_when_it_is_the_last_of_all(place: Place) -> None:
    queue_of(place, "a b", files=2).shutdown()
    place.storage.create_file(place.path(f"a/{2 * SIZE:020d}"), bytes(100))
    assert layout(queue_of(place, "a b")) == ["a", "b"]
    place.storage.truncate(place.path(f"a/{0:020d}"), 100)
    with pytest.raises(CorruptFile, match="100 bytes"):
        queue_of(place, "a b")


def test_destroyed_queue_leaves_no_folder(place: Place) -> None:
    queue = queue_of(place, "a b", files=3)
    queue.destroy()
    assert not place.storage.exists(place.path("a"))
    assert not place.storage.exists(place.path("b"))


def test_queue_needs_a_folder_to_grow_in(place: Place) -> None:
    with pytest.raises(ValueError, match="folder"):
        MultiPathMappedFileQueue(place.storage, [], SIZE)
