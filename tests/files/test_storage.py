"""One suite, both bodies."""

from __future__ import annotations

import pytest

from penstock.errors import StoreLocked

from .place import Place


def test_folder_lists_files_and_folders_sorted_with_sizes(place: Place) -> None:
    place.storage.makedirs(place.path("b/c"))
    place.storage.create_file(place.path("a"), b"12345")
    entries = place.storage.listdir(place.root)
    assert [(entry.name, entry.is_dir) for entry in entries] == [("a", False), ("b", True)]
    assert entries[0].size == 5
    assert place.storage.stat(place.path("b")).is_dir


def test_missing_things_are_file_not_found(place: Place) -> None:
    for call in (
        lambda: place.storage.listdir(place.path("none")),
        lambda: place.storage.stat(place.path("none")),
        lambda: place.storage.read_file(place.path("none")),
        lambda: place.storage.pread(place.path("none"), 0, 1),
        lambda: place.storage.unlink(place.path("none")),
        lambda: place.storage.open_mapping(place.path("none"), 4096),
        lambda: place.storage.open_sparse(place.path("none"), 4096),
        lambda: place.storage.create_file(place.path("no/folder")),
    ):
        with pytest.raises(FileNotFoundError):
            call()
    assert not place.storage.exists(place.path("none"))


def test_atomic_write_replaces_the_whole_content_and_leaves_nothing_else(place: Place) -> None:
    place.storage.write_atomic(place.path("a.json"), b"a longer first content")
    place.storage.write_atomic(place.path("a.json"), b"second")
    assert place.storage.read_file(place.path("a.json")) == b"second"
    assert [entry.name for entry in place.storage.listdir(place.root)] == ["a.json"]


def test_reading_by_position_stops_at_the_end(place: Place) -> None:
    place.storage.create_file(place.path("a"), b"0123456789")
    assert place.storage.pread(place.path("a"), 3, 4) == b"3456"
    assert place.storage.pread(place.path("a"), 8, 100) == b"89"
    assert place.storage.pread(place.path("a"), 100, 1) == b""


def test_truncate_cuts_and_lengthens(place: Place) -> None:
    place.storage.create_file(place.path("a"), b"0123456789")
    place.storage.truncate(place.path("a"), 4)
    place.storage.truncate(place.path("a"), 6)
    assert place.storage.read_file(place.path("a")) == b"0123\0\0"


def test_rename_replaces_and_unlink_removes(place: Place) -> None:
    place.storage.create_file(place.path("a"), b"a")
    place.storage.create_file(place.path("b"), b"b")
    place.storage.rename(place.path("a"), place.path("b"))
    place.storage.sync_dir(place.root)
    assert place.storage.read_file(place.path("b")) == b"a"
    assert not place.storage.exists(place.path("a"))
    place.storage.unlink(place.path("b"))
    assert place.storage.listdir(place.root) == []


def test_folder_with_something_in_it_is_not_removed(place: Place) -> None:
    place.storage.makedirs(place.path("f"))
    place.storage.create_file(place.path("f/a"))
    with pytest.raises(OSError):
        place.storage.rmdir(place.path("f"))
    place.storage.unlink(place.path("f/a"))
    place.storage.rmdir(place.path("f"))
    assert not place.storage.exists(place.path("f"))


def test_modification_time_can_be_set(place: Place) -> None:
    place.storage.create_file(place.path("a"))
    place.storage.set_mtime(place.path("a"), 1_600_000_000_123)
    assert place.storage.stat(place.path("a")).mtime_ms == 1_600_000_000_123


def test_lock_is_refused_while_held_and_free_afterwards(place: Place) -> None:
    lock = place.storage.lock(place.path("lock"))
    with pytest.raises(StoreLocked) as caught:
        place.storage.lock(place.path("lock"))
    assert "this process" in str(caught.value)
    lock.release()
    lock.release()
    place.storage.lock(place.path("lock")).release()
    assert place.storage.read_file(place.path("lock")) == b"lock"


def test_usage_is_a_ratio(place: Place) -> None:
    assert 0 <= place.storage.disk_usage(place.root) <= 1


def test_mapping_of_a_new_file_is_zeros_and_what_is_written_stays(place: Place) -> None:
    mapping = place.storage.open_mapping(place.path("0"), 8192, create=True, reserve=True, file_from=5)
    assert mapping.file_from == 5
    assert not any(mapping.view(0, 8192))
    mapping.append(b"abc")
    mapping.write(4096, b"def")
    mapping.sync()
    mapping.close()
    again = place.storage.open_mapping(place.path("0"), 8192, writable=False)
    assert bytes(again.view(0, 3)) + bytes(again.view(4096, 3)) == b"abcdef"
    assert place.storage.stat(place.path("0")).size == 8192


def test_mapping_refuses_a_file_of_another_size(place: Place) -> None:
    place.storage.create_file(place.path("0"), b"x" * 100)
    with pytest.raises(OSError, match="100 bytes"):
        place.storage.open_mapping(place.path("0"), 4096)


def test_sparse_file_reads_back_and_keeps_its_size(place: Place) -> None:
    file = place.storage.open_sparse(place.path("q"), 6_000_000, create=True)
    file.write(5_999_980, b"u" * 20)
    file.write(0, memoryview(b"first"))
    file.sync()
    assert file.size == 6_000_000
    assert file.read(0, 6) == b"first\0"
    assert file.read(5_999_979, 100) == b"\0" + b"u" * 20
    with pytest.raises(ValueError, match="outside"):
        file.write(5_999_981, b"u" * 20)
    file.close()
    reopened = place.storage.open_sparse(place.path("q"), 6_000_000)
    assert reopened.read(0, 5) == b"first"


def test_sparse_file_is_mapped_for_reading_and_outlives_its_closing(place: Place) -> None:
    file = place.storage.open_sparse(place.path("q"), 8192, create=True)
    mapping = file.map()
    file.write(10, b"seen")
    file.close()
    assert bytes(mapping.view(10, 4)) == b"seen"
    with pytest.raises(ValueError, match="closed"):
        file.read(0, 1)


def test_sparse_file_erases_a_range(place: Place) -> None:
    file = place.storage.open_sparse(place.path("q"), 8192, create=True)
    file.write(0, b"\xff" * 8192)
    file.zero(100, 8000)
    assert file.read(0, 8192) == b"\xff" * 100 + bytes(7900) + b"\xff" * 192


def test_sparse_file_opened_for_reading_creates_nothing(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.storage.open_sparse(place.path("q"), 8192, create=True, writable=False)
    assert place.storage.listdir(place.root) == []


def test_existing_sparse_file_of_another_size_tells_its_own(place: Place) -> None:
    place.storage.create_file(place.path("q"), b"x" * 100)
    assert place.storage.open_sparse(place.path("q"), 8192).size == 100
