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
