from __future__ import annotations

from pathlib import Path

from .preload import run_with_refusable_sync


def test_s01_sync_that_the_system_refuses_is_final(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from penstock.errors import FlushFailed
from penstock.files import DiskStorage, MappedFileQueue
flag = Path(sys.argv[1])
queue = MappedFileQueue(DiskStorage(), {str(tmp_path / "log")!r}, 1 << 20)
file = queue.get_last_mapped_file()
file.append_message(b"x" * 100)
queue.flush()
file.append_message(b"x" * 100)
for refused in (True, False):
    flag.touch() if refused else flag.unlink()
    try:
        queue.flush()
    except FlushFailed as error:
        print(queue.flushed_where, error.offset, error.__cause__.errno)
"""
    answer = run_with_refusable_sync(tmp_path, program)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines() == ["100 100 5", "100 100 5"]


def test_file_whose_name_cannot_be_synced_is_not_made(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from penstock.errors import StoreError
from penstock.files import DiskStorage, MappedFileQueue
queue = MappedFileQueue(DiskStorage(), {str(tmp_path / "log")!r}, 1 << 20)
DiskStorage().makedirs(queue.path)
Path(sys.argv[1]).touch()
try:
    queue.get_last_mapped_file()
except StoreError as error:
    print(len(queue.files), list(Path(queue.path).iterdir()), error.file)
"""
    answer = run_with_refusable_sync(tmp_path, program)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == f"0 [] {tmp_path}/log/{0:020d}"


def test_s01_sync_error_that_page_preparation_met_is_not_lost_to_the_flush(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from penstock.errors import FlushFailed, StoreError
from penstock.files import DiskStorage, MappedFile
flag = Path(sys.argv[1])
file = MappedFile.create(DiskStorage(), {str(tmp_path / f"{0:020d}")!r}, 1 << 20)
file.append_message(b"x" * 100)
flag.touch()
try:
    file.prepare(1 << 20, written=True)
except StoreError as error:
    print("preparing", error.file)
flag.unlink()
try:
    file.flush()
except FlushFailed as error:
    print("flush", error.__cause__.errno, file.flushed_position)
"""
    answer = run_with_refusable_sync(tmp_path, program)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines() == [f"preparing {tmp_path}/{0:020d}", "flush 5 0"]


def test_s01_failed_sync_of_a_queue_file_outlives_its_descriptor(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from penstock.files import DiskStorage
flag = Path(sys.argv[1])
storage = DiskStorage()
path = {str(tmp_path / "q")!r}
file = storage.open_sparse(path, 4096, create=True)
file.write(0, b"x")
flag.touch()
for opened in (file, None, None):
    opened = opened or storage.open_sparse(path, 4096)
    try:
        opened.sync()
        print("synced")
    except OSError as error:
        print(error.errno, error.filename)
    opened.close()
    flag.unlink(missing_ok=True)
storage.unlink(path)
storage.open_sparse(path, 4096, create=True).sync()
"""
    answer = run_with_refusable_sync(tmp_path, program)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines() == [f"5 {tmp_path}/q"] * 3
