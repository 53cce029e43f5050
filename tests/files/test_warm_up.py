"""Warm files: every page ready, kept in memory as far as the system lets it, not a byte changed."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from penstock.config import StoreConfig
from penstock.files import AllocateMappedFileService, DiskStorage, MappedFile, MemoryStorage
from penstock.message import Message
from penstock.store.opening import open_writable

SIZE = 1 << 20
LINUX = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")


def locked_bytes(path: str) -> int:
    """How much of a mapped file this process has locked in memory."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = line.endswith(path)
        elif inside and line.startswith("Locked:"):
            found += int(line.split()[1]) << 10
    return found


@LINUX
def test_warmed_file_is_locked_in_memory_and_let_go_again(tmp_path: Path) -> None:
    file = MappedFile.create(DiskStorage(), tmp_path / f"{0:020d}", SIZE)
    file.warm_up(written=True, window=256 << 10)
    if not file.lock_memory():
        pytest.skip("this machine lets nobody lock memory")
    assert file.prepared_position == SIZE
    assert locked_bytes(file.path) == SIZE
    assert bytes(file.slice()) == bytes(SIZE)
    file.unlock_memory()
    assert locked_bytes(file.path) == 0
    file.destroy()
    file.unlock_memory()
    assert not file.lock_memory()


@LINUX
def test_refused_lock_is_only_a_warning(tmp_path: Path) -> None:
    code = """
        import logging, os, resource, sys
        from penstock.files import DiskStorage, MappedFile
        logging.basicConfig()
        file = MappedFile.create(DiskStorage(), sys.argv[1], 1 << 20)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        if os.getuid() == 0:
            os.setuid(65534)  # the limit does not hold for root
        file.warm_up(written=True)
        assert not file.lock_memory()
        assert file.append_message(b"x") and file.flush() == 1
        print("appended", file.prepared_position)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / f"{0:020d}")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["appended", str(SIZE)]
    assert "ulimit -l" in done.stderr


def test_file_in_memory_needs_no_lock() -> None:
    storage = MemoryStorage()
    storage.makedirs("/s")
    file = MappedFile.create(storage, f"/s/{0:020d}", SIZE)
    file.warm_up(written=True)
    assert file.lock_memory()
    file.unlock_memory()


@LINUX
def test_service_warms_the_files_it_makes(tmp_path: Path) -> None:
    service = AllocateMappedFileService(DiskStorage(), warm=True, warm_window=128 << 10, written=True)
    service.start()
    try:
        file = service.take(tmp_path / f"{0:020d}", None, SIZE)
        assert file is not None
        assert file.prepared_position == SIZE
        if file.lock_memory():
            assert locked_bytes(file.path) == SIZE
        file.shutdown()
    finally:
        service.shutdown()


@LINUX
def test_full_log_file_gives_its_pages_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.store.commitlog.UNLOCK_AFTER_SECONDS", 0.0)
    config = StoreConfig(
        warm_mapped_file_enable=True,
        mapped_file_size_commit_log=SIZE,
        max_hash_slot_num=100,
        max_index_num=2000,
    )
    with open_writable(tmp_path / "store", config=config) as store:
        for _ in range(300):
            assert store.put(Message("orders", bytes(9000))).ok
        log = store._log
        for timer in log._unlocking:
            timer.join()
        files = log.files.files
        assert len(files) == 3
        assert [locked_bytes(file.path) for file in files[:-1]] == [0, 0]
