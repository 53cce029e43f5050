"""The disk refuses: a sync fails, or there is no room left."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from faults.place import SMALL, Place, body_of
from files.mounts import tmpfs
from files.preload import run_with_refusable_sync
from penstock import Message, StoreConfig, open_store
from penstock.errors import DiskFull, FlushFailed, StoreError, StoreReadOnly
from penstock.files.memory import MemoryStorage

# -- S1: a sync that fails -------------------------------------------------------------------------


def test_s01_failed_sync_is_never_acked() -> None:
    place = Place()
    place.open()
    place.put(0)
    place.storage.fail("sync", errno.EIO, path_glob="*commitlog*")
    with pytest.raises(FlushFailed) as raised:
        place.store.put(place.message(1))
    assert "commitlog" in str(raised.value) and raised.value.hint
    assert isinstance(place.store.failure, FlushFailed)


def test_s01_store_is_read_only_after_a_failed_sync_even_when_the_next_would_succeed() -> None:
    place = Place()
    place.open()
    place.put(0)
    place.store.dispatch()
    place.storage.fail("sync", errno.EIO, times=1, path_glob="*commitlog*")
    with pytest.raises(FlushFailed):
        place.store.put(place.message(1))
    place.storage.heal()
    with pytest.raises(StoreReadOnly):
        place.store.put(place.message(2))
    assert [r.status for r in place.store.put_many([place.message(3), place.message(4)])] == [
        "SERVICE_NOT_AVAILABLE"
    ] * 2
    with pytest.raises(StoreError):
        asyncio.run(place.store.put_async(place.message(5)))
    with pytest.raises(StoreError):
        place.store.flush()
    assert place.numbers() == [0]


def test_s01_what_was_acked_before_a_failed_sync_survives_it() -> None:
    place = Place()
    place.open()
    for number in range(5):
        place.put(number)
    place.storage.fail("sync", errno.EIO, times=0, path_glob="*commitlog*")
    with pytest.raises(FlushFailed):
        place.store.put(place.message(5))
    place.storage.heal()
    for image in place.storage.crash_states(32):
        after = Place(storage=image, clock=place.clock)
        after.open()
        assert after.numbers()[:5] == [0, 1, 2, 3, 4]
        after.kill()


def test_s01_closing_after_a_failed_sync_does_not_pretend_a_clean_end() -> None:
    place = Place()
    place.open()
    place.put(0)
    place.storage.fail("sync", errno.EIO, times=1, path_glob="*commitlog*")
    with pytest.raises(FlushFailed):
        place.store.put(place.message(1))
    place.storage.heal()
    place.store.close()
    assert not place.open().report.clean


def test_s01_async_flush_that_fails_ends_writing() -> None:
    place = Place(config=SMALL.replace(flush_disk_type="async"))
    place.open()
    place.put(0)
    place.storage.fail("sync", errno.EIO, times=1, path_glob="*commitlog*")
    with pytest.raises(FlushFailed):
        place.store.flush()
    place.storage.heal()
    with pytest.raises(StoreReadOnly):
        place.store.put(place.message(1))


@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_s01_failed_sync_of_queue_or_index_is_final_too(folder: str) -> None:
    """Its pages may be gone although a second sync succeeds: nothing may be recorded as synced after it."""
    place = Place()
    place.open()
    for number in range(5):
        place.put(number)
    place.store.dispatch()
    place.storage.fail("sync", errno.EIO, times=1, path_glob=f"*/{folder}/*")
    with pytest.raises(StoreError):
        place.store.sync_positions()
    place.storage.heal()
    before = place.storage.read_file(place.path("penstock.position"))
    with pytest.raises(StoreError):
        place.store.sync_positions()
    assert place.storage.read_file(place.path("penstock.position")) == before
    with pytest.raises(StoreReadOnly):
        place.store.put(place.message(9))
    place.store.close()
    place.open()
    assert place.numbers() == [0, 1, 2, 3, 4] and place.found(3) == [3]


def test_s01_sync_refused_by_the_system_is_never_acked(tmp_path: Path) -> None:
    """The same through the C library: fdatasync says EIO."""
    program = f"""
import sys, pathlib
from penstock import Message, open_store
from penstock.errors import FlushFailed, StoreReadOnly
flag = pathlib.Path(sys.argv[1])
store = open_store({str(tmp_path / "store")!r})
assert store.put(Message("T", b"acked")).ok
flag.touch()
try:
    store.put(Message("T", b"not acked"))
except FlushFailed as error:
    print("failed:", error)
flag.unlink()
try:
    store.put(Message("T", b"too late"))
except StoreReadOnly as error:
    print("read-only:", error)
store.wait_visible(store.flushed_where)
print([bytes(m.body) for m in store.get("T", 0, 0)])
store.close()
"""
    done = run_with_refusable_sync(tmp_path, program)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("failed:") and lines[1].startswith("read-only:")
    assert lines[2] == "[b'acked']"
    with open_store(tmp_path / "store") as store:
        bodies = [m.body for m in store.get("T", 0, 0)]
    assert bodies[0] == b"acked" and b"too late" not in bodies


# -- no room ---------------------------------------------------------------------------------------


def put_until_refused(place: Place, limit: int = 2000) -> tuple[list[int], str]:
    """Numbers that were acked, and what the refusal said."""
    acked: list[int] = []
    for number in range(limit):
        try:
            result = place.store.put(place.message(number, 200))
        except DiskFull as error:
            return acked, str(error)
        if not result.ok:
            return acked, f"{result.status}: {result.reason}"
        acked.append(number)
    raise AssertionError("the disk never was full")


def test_s11_full_disk_at_allocation_refuses_and_goes_on_when_space_returns() -> None:
    place = Place()
    place.open()
    place.storage.capacity = place.storage.used + (40 << 10)
    acked, why = put_until_refused(place)
    assert "CREATE_MAPPED_FILE_FAILED" in why and "commitlog" in why and "space" in why
    assert acked
    place.storage.capacity = None
    place.put(5000)  # without opening again
    place.store.dispatch()
    assert place.numbers() == [*acked, 5000]
    place.reopen_after_kill()
    assert place.numbers() == [*acked, 5000] and place.found(5000) == [5000]


def test_full_disk_in_the_log_loses_nothing_that_was_acked() -> None:
    """A write into the log itself says ENOSPC, as on file systems that cannot reserve."""
    place = Place()
    place.open()
    place.put(0)
    place.storage.fail("write", errno.ENOSPC, times=1, path_glob="*commitlog*")
    with pytest.raises(DiskFull):
        place.store.put(place.message(1))
    assert place.store.failure is None
    second = place.put(2)
    assert second.queue_offset == 1, "a refused message must not take a queue offset"
    place.store.dispatch()
    assert place.numbers() == [0, 2]
    place.reopen_after_kill()
    assert place.numbers() == [0, 2]


@pytest.mark.parametrize("operation", ["write", "create"])
def test_full_disk_in_a_queue_holds_messages_back_until_space_returns(operation: str) -> None:
    place = Place()
    place.open()
    place.storage.fail(operation, errno.ENOSPC, times=0, path_glob="*consumequeue*")
    place.put(0)
    place.put(1)
    for _ in range(3):
        with pytest.raises(DiskFull) as raised:
            place.store.dispatch()
    assert "consumequeue" in str(raised.value)
    assert place.numbers() == []
    place.put(2)
    place.storage.heal()
    place.store.dispatch()
    assert place.numbers() == [0, 1, 2] and place.found(1) == [1]
    place.reopen_after_kill()
    assert place.numbers() == [0, 1, 2]


def test_s10_index_that_cannot_be_made_neither_loops_nor_stops_silently() -> None:
    place = Place()
    place.open()
    place.storage.fail("allocate", errno.ENOSPC, times=0, path_glob="*/index/*")
    for number in range(60):
        place.put(number)
    used = []
    for _ in range(20):
        with pytest.raises(DiskFull) as raised:
            place.store.dispatch()
        used.append(place.storage.used)
    assert "index" in str(raised.value)
    assert len(set(used)) == 1 and place.files("index") == []
    assert "index" in str(place.store.stats()) or place.store.reput_from_offset < place.store.flushed_where
    place.storage.heal()
    place.store.dispatch()
    assert place.numbers() == list(range(60))
    assert [place.found(number) for number in range(60)] == [[number] for number in range(60)]


def test_full_disk_when_the_index_rolls_indexes_nothing_twice() -> None:
    place = Place()
    place.open()
    for number in range(12):
        place.put(number)
    place.store.dispatch()
    place.storage.fail("allocate", errno.ENOSPC, times=3, path_glob="*/index/*")
    for number in range(12, 40):
        place.put(number)
    refused = 0
    for _ in range(5):
        try:
            place.store.dispatch()
        except DiskFull:
            refused += 1
    assert refused == 3
    for number in range(40):
        assert len(place.store.query_offsets("T", f"k{number}", 64, 0, 1 << 60)) == 1


def test_full_disk_at_every_write_of_a_session_keeps_what_was_acked() -> None:
    """The disk is full from the n-th write on, for every n; then there is room again."""
    for after in range(0, 40, 3):
        place = Place()
        place.open()
        place.storage.fail("write", errno.ENOSPC, times=0, after=after)
        place.storage.fail("allocate", errno.ENOSPC, times=0, after=after // 4)
        acked = []
        for number in range(60):
            try:
                if place.store.put(place.message(number, 300)).ok:
                    acked.append(number)
                place.store.dispatch()
                if number % 10 == 9:
                    place.store.sync_positions()
            except DiskFull:
                pass
        place.storage.heal()
        place.put(1000)
        place.store.dispatch()
        assert place.numbers() == [*acked, 1000]
        place.reopen_after_kill()
        assert place.numbers() == [*acked, 1000]
        assert all(place.found(number) == [number] for number in place.numbers())
        place.kill()


def fill(folder: Path) -> Path:
    """Take all the room that is left."""
    ballast = folder / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return ballast


REAL = StoreConfig(
    mapped_file_size_commit_log=256 << 10,
    mapped_file_size_consume_queue=20 * 1000,
    max_hash_slot_num=100,
    max_index_num=1000,
    disk_space_warning_level_ratio=90,
)


def test_s11_full_real_disk_is_an_error_and_no_signal(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", 4 << 20) as folder:
        store = open_store(folder / "store", config=REAL, background=False)
        acked = [b"first"]
        assert store.put(Message("T", b"first", keys="first")).ok
        store.dispatch()
        ballast = fill(folder)
        refusal = ""
        number = 0
        while not refusal and number < 10_000:
            body = body_of(number, 500)
            try:
                result = store.put(Message("T", body, keys=f"k{number}"))
                refusal = "" if result.ok else f"{result.status}: {result.reason}"
            except DiskFull as error:
                refusal = str(error)
            if not refusal:
                acked.append(body)
            number += 1
        assert "space" in refusal, refusal
        try:
            store.dispatch()
        except DiskFull as error:
            assert str(folder) in str(error)
        ballast.unlink()
        assert store.put(Message("T", b"last", keys="last")).ok
        store.dispatch()
        acked.append(b"last")
        assert all_bodies(store) == acked
        store.abandon()
        again = open_store(folder / "store", config=REAL, background=False)
        assert all_bodies(again) == acked
        assert [m.body for m in again.query("T", "last")] == [b"last"]
        again.close()


def all_bodies(store: Any) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while at < store.max_offset("T", 0):
        result = store.get("T", 0, at)
        found += [m.body for m in result]
        at = result.next_begin_offset
    return found


def test_opening_on_a_full_disk_says_so_and_harms_nothing(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", 4 << 20) as folder:
        with open_store(folder / "store", config=REAL, background=False) as store:
            assert store.put(Message("T", b"kept")).ok
        ballast = fill(folder)
        try:
            store = open_store(folder / "store", config=REAL, background=False)
        except DiskFull as error:
            assert str(folder) in str(error)
        else:
            store.abandon()
        ballast.unlink()
        with open_store(folder / "store", config=REAL, background=False) as store:
            assert all_bodies(store) == [b"kept"]


# -- S13, S14: the watermarks ----------------------------------------------------------------------


def test_s13_writing_is_accepted_again_as_soon_as_space_is_back() -> None:
    place = Place()
    place.open()
    place.put(0)
    place.storage.capacity = int(place.storage.used / 0.95)
    place.store.upkeep()
    refused = place.store.put(place.message(1))
    assert refused.status == "SERVICE_NOT_AVAILABLE" and "full" in refused.reason
    place.storage.capacity = place.storage.used * 10
    place.store.upkeep()
    assert place.store.put(place.message(2)).ok


def test_s14_space_that_returns_is_seen_while_files_are_still_being_deleted() -> None:
    place = Place(config=SMALL.replace(clean_resource_interval_ms=10, delete_commit_log_files_interval_ms=0))
    place.open()
    number = 0
    while len(place.files("commitlog")) < 6:
        place.put(number, 2000)
        number += 1
    place.store.dispatch()
    place.storage.capacity = int(place.storage.used / 0.92)
    answers: list[str] = []

    def during(operation: str, path: str) -> None:
        if operation == "unlink" and "commitlog" in path:
            answers.append(place.store.put(place.message(number)).status)

    place.storage.on_step = during
    place.store.upkeep()
    place.storage.on_step = None
    assert len(answers) > 1
    assert answers[-1] == "PUT_OK", answers


def test_s14_unknown_disk_usage_neither_deletes_nor_refuses() -> None:
    place = Place()
    place.open()
    number = 0
    while len(place.files("commitlog")) < 4:
        place.put(number, 2000)
        number += 1
    before = place.files("commitlog")
    place.storage.disk_usage = lambda path: -1.0  # type: ignore[method-assign]
    place.clock.advance(3_600_000)
    place.store.upkeep()
    assert place.files("commitlog") == before
    assert place.store.put(place.message(number)).ok


def test_memory_storage_refuses_what_does_not_fit() -> None:
    """The ground these tests stand on."""
    storage = MemoryStorage(capacity=4096)
    storage.makedirs("/d")
    storage.create_file("/d/a", b"x")
    with pytest.raises(OSError, match="space"):
        storage.create_file("/d/b", bytes(8192))
