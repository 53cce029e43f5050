from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import StoreLocked
from penstock.files.lockfile import LockFile

# What Java's FileChannel.tryLock(0, 1, false) does: a record lock on byte 0.
RECORD_LOCK = """
import fcntl, sys
handle = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    print("locked", flush=True)
except OSError:
    print("refused", flush=True)
sys.stdin.read()
"""


def start(path: Path, program: str = RECORD_LOCK) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def stop(process: subprocess.Popen[str]) -> None:
    process.communicate("")


def test_lock_file_holds_the_four_bytes_and_stays(tmp_path: Path) -> None:
    lock = LockFile.acquire(tmp_path / "lock")
    lock.release()
    assert (tmp_path / "lock").read_bytes() == b"lock"
    assert not lock.held


def test_second_opening_in_this_process_is_refused_and_the_first_survives_it(tmp_path: Path) -> None:
    first = LockFile.acquire(tmp_path / "lock")
    for _ in range(2):  # a record lock would be lost by the closing of the second descriptor
        with pytest.raises(StoreLocked) as caught:
            LockFile.acquire(tmp_path / "lock")
        assert str(os.getpid()) in str(caught.value)
        assert str(tmp_path / "lock") in str(caught.value)
    first.release()


def test_java_cannot_lock_what_we_hold(tmp_path: Path) -> None:
    lock = LockFile.acquire(tmp_path / "lock")
    process, answer = start(tmp_path / "lock")
    stop(process)
    assert answer == "refused"
    lock.release()
    process, answer = start(tmp_path / "lock")
    stop(process)
    assert answer == "locked"


def test_we_cannot_lock_what_java_holds_and_say_who_it_is(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"lock")
    process, answer = start(tmp_path / "lock")
    assert answer == "locked"
    with pytest.raises(StoreLocked) as caught:
        LockFile.acquire(tmp_path / "lock")
    assert f"process {process.pid}" in str(caught.value)
    stop(process)
    LockFile.acquire(tmp_path / "lock").release()


def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    program = (
        "import sys; from penstock.files.lockfile import LockFile\n"
        "lock = LockFile.acquire(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    )
    process, answer = start(tmp_path / "lock", program)
    assert answer == "held"
    with pytest.raises(StoreLocked):
        LockFile.acquire(tmp_path / "lock")
    process.kill()
    process.communicate()
    LockFile.acquire(tmp_path / "lock").release()


def test_forked_child_neither_keeps_nor_breaks_the_lock(tmp_path: Path) -> None:
    lock = LockFile.acquire(tmp_path / "lock")
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        lock.release()
        os.read(read_end, 1)  # lives on until the parent is done
        os._exit(0)
    os.close(read_end)
    try:
        with pytest.raises(StoreLocked):
            LockFile.acquire(tmp_path / "lock")
        lock.release()
        LockFile.acquire(tmp_path / "lock").release()
    finally:
        os.close(write_end)
        os.waitpid(child, 0)


def test_lock_covers_byte_zero_only(tmp_path: Path) -> None:
    lock = LockFile.acquire(tmp_path / "lock")
    program = RECORD_LOCK.replace("LOCK_NB, 1, 0)", "LOCK_NB, 1, 1)")
    process, answer = start(tmp_path / "lock", program)
    stop(process)
    assert answer == "locked"
    lock.release()


def test_lock_descriptor_is_not_inherited_by_programs(tmp_path: Path) -> None:
    lock = LockFile.acquire(tmp_path / "lock")
    assert fcntl.fcntl(lock._descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    lock.release()
