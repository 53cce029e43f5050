"""A really full disk: a small tmpfs. The process must live through it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import DiskFull
from penstock.files import AllocateMappedFileService, DiskStorage, MappedFileQueue

MEGABYTE = 1 << 20
ROOM = 4 * MEGABYTE


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if sys.platform != "linux":
        pytest.skip("mounting a tmpfs needs Linux")
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "penstock-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mount.returncode != 0:
        pytest.skip(f"mounting a tmpfs is refused here: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


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
