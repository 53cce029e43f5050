"""A really full disk: small file systems of their own. The process must live through it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import DiskFull
from penstock.files import AllocateMappedFileService, DiskStorage, MappedFileQueue

from .mounts import tmpfs, without_fallocate

MEGABYTE = 1 << 20
ROOM = 4 * MEGABYTE


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "small", ROOM) as folder:
        yield folder


@pytest.fixture
def old_disk(tmp_path: Path) -> Iterator[Path]:
    with without_fallocate(tmp_path / "old", 2 * ROOM) as folder:
        yield folder


def test_s11_full_disk_is_an_error_at_allocation_and_never_a_signal(small_disk: Path) -> None:
    program = f"""
from penstock.errors import DiskFull
from penstock.files import DiskStorage, MappedFileQueue
queue = MappedFileQueue(DiskStorage(), {str(small_disk)!r} + "/log", {MEGABYTE})
appended = 0
try:
    while True:
        file = queue.get_last_mapped_file()
        while file.append_message(b"x" * 4096):
            appended += 4096
except DiskFull as error:
    queue.flush()
    print(appended, error.file)
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    appended, file = answer.stdout.split()
    assert int(appended) >= 3 * MEGABYTE
    assert int(appended) % MEGABYTE == 0
    assert not Path(file).exists()


def test_s11_file_that_got_its_blocks_takes_all_its_bytes_on_a_full_disk(small_disk: Path) -> None:
    queue = MappedFileQueue(DiskStorage(), small_disk / "log", 2 * MEGABYTE)
    file = queue.get_last_mapped_file()
    assert file is not None
    with pytest.raises(OSError), open(small_disk / "filler", "wb", buffering=0) as handle:
        while True:
            handle.write(bytes(MEGABYTE // 4))
    assert file.append_message(b"y" * 2 * MEGABYTE)
    assert file.flush() == 2 * MEGABYTE


def test_s13_allocation_works_again_when_space_returns(small_disk: Path) -> None:
    storage = DiskStorage()
    service = AllocateMappedFileService(storage)
    service.start()
    try:
        queue = MappedFileQueue(storage, small_disk / "log", 3 * MEGABYTE, allocate=service)
        first = queue.get_last_mapped_file()
        assert first is not None
        first.append_message(b"z" * 3 * MEGABYTE)
        for _ in range(2):
            with pytest.raises(DiskFull):
                queue.get_last_mapped_file()
        subprocess.run(["mount", "-o", f"remount,size={4 * ROOM}", str(small_disk)], check=True)
        second = queue.get_last_mapped_file()
        assert second is not None
        assert second.append_message(b"z" * 3 * MEGABYTE)
    finally:
        service.shutdown()
        queue.shutdown()


def test_s11_erasing_keeps_the_blocks_where_the_file_system_cannot_zero_a_range(small_disk: Path) -> None:
    queue = MappedFileQueue(DiskStorage(), small_disk / "log", 2 * MEGABYTE)
    file = queue.get_last_mapped_file()
    assert file is not None
    file.append_message(b"x" * MEGABYTE)
    queue.truncate_dirty_files(100)
    assert Path(file.path).stat().st_blocks * 512 >= 2 * MEGABYTE
    assert bytes(file.slice()) == b"x" * 100 + bytes(2 * MEGABYTE - 100)
    queue.shutdown()


def test_queue_file_on_a_full_disk_is_an_error_that_names_it(small_disk: Path) -> None:
    file = DiskStorage().open_sparse(small_disk / "q", 10 * ROOM, create=True)
    with pytest.raises(OSError) as caught:
        for begin in range(0, 2 * ROOM, MEGABYTE):
            file.write(begin, b"x" * MEGABYTE)
    assert caught.value.filename == str(small_disk / "q")
    file.close()


def test_blocks_are_written_where_they_cannot_be_reserved(old_disk: Path) -> None:
    queue = MappedFileQueue(DiskStorage(), old_disk / "log", MEGABYTE)
    file = queue.get_last_mapped_file()
    assert file is not None
    assert Path(file.path).stat().st_blocks * 512 >= MEGABYTE
    file.append_message(b"x" * MEGABYTE)
    queue.truncate_dirty_files(100)
    assert Path(file.path).stat().st_blocks * 512 >= MEGABYTE
    assert Path(file.path).read_bytes() == b"x" * 100 + bytes(MEGABYTE - 100)
    queue.shutdown()


def test_s11_no_room_is_an_error_where_blocks_cannot_be_reserved(old_disk: Path) -> None:
    queue = MappedFileQueue(DiskStorage(), old_disk / "log", MEGABYTE)
    made = 0
    with pytest.raises(DiskFull) as caught:
        while True:
            file = queue.get_last_mapped_file()
            assert file is not None
            assert file.append_message(b"x" * MEGABYTE)
            made += 1
    assert made >= 4
    assert caught.value.file is not None
    assert not Path(caught.value.file).exists()
    assert all(bytes(file.slice()) == b"x" * MEGABYTE for file in queue.files)
    queue.shutdown()


def test_reserving_a_sparse_file_by_writing_keeps_its_bytes(old_disk: Path) -> None:
    path = old_disk / f"{0:020d}"
    with open(path, "wb") as handle:
        handle.seek(MEGABYTE // 2)
        handle.write(b"kept")
        handle.truncate(MEGABYTE)
    queue = MappedFileQueue(DiskStorage(), old_disk, MEGABYTE)
    queue.load(strict=False)
    queue.files[0].reserve()
    assert path.stat().st_blocks * 512 >= MEGABYTE
    assert path.read_bytes() == bytes(MEGABYTE // 2) + b"kept" + bytes(MEGABYTE // 2 - 4)
    queue.shutdown()
