from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from penstock.errors import DiskFull, StoreClosed, StoreError
from penstock.files import AllocateMappedFileService, DiskStorage, MemoryStorage, TransientStorePool

SIZE = 1 << 20


@pytest.fixture
def service(tmp_path: Path):  # type: ignore[no-untyped-def]
    made = AllocateMappedFileService(DiskStorage(), window=256 << 10)
    made.start()
    yield made
    made.shutdown()


def path(folder: Path | str, number: int) -> str:
    return f"{folder}/{number * SIZE:020d}"


def test_file_after_the_next_is_made_ahead_and_handed_out_later(
    service: AllocateMappedFileService, tmp_path: Path
) -> None:
    first = service.take(path(tmp_path, 0), path(tmp_path, 1), SIZE)
    assert first is not None
    ahead = service.request(path(tmp_path, 1), None, SIZE).result()
    assert Path(path(tmp_path, 1)).stat().st_blocks * 512 >= SIZE
    assert service.take(path(tmp_path, 1), None, SIZE) is ahead


def test_first_window_of_a_new_file_is_ready(service: AllocateMappedFileService, tmp_path: Path) -> None:
    file = service.take(path(tmp_path, 0), None, SIZE)
    assert file is not None
    assert file.prepared_position == 256 << 10
    assert not any(file.slice())


def test_window_moves_with_the_write_position(tmp_path: Path) -> None:
    service = AllocateMappedFileService(DiskStorage(), window=256 << 10, written=True)
    service.start()
    file = service.take(path(tmp_path, 0), None, SIZE)
    assert file is not None
    file.append_message(b"x" * 1000)
    service.prepare_ahead(file)
    assert file.prepared_position == 256 << 10
    file.append_message(b"x" * (200 << 10))
    service.prepare_ahead(file)
    with service._condition:
        assert service._condition.wait_for(lambda: not service._preparing, timeout=60)
    service.shutdown()
    wrote = file.wrote_position
    assert file.prepared_position == wrote + (256 << 10)
    assert bytes(file.slice()) == b"x" * wrote + bytes(SIZE - wrote)


def test_unused_files_are_removed_at_shutdown_and_used_ones_stay(tmp_path: Path) -> None:
    service = AllocateMappedFileService(DiskStorage())
    service.start()
    service.take(path(tmp_path, 0), path(tmp_path, 1), SIZE)
    service.request(path(tmp_path, 1), None, SIZE).result()
    service.shutdown()
    service.shutdown()
    assert [found.name for found in tmp_path.iterdir()] == [f"{0:020d}"]
    with pytest.raises(StoreClosed):
        service.take(path(tmp_path, 1), None, SIZE)


def test_without_a_thread_files_are_made_in_the_caller_and_none_ahead(memory: MemoryStorage) -> None:
    service = AllocateMappedFileService(memory)
    before = threading.active_count()
    file = service.take(path("/s", 0), path("/s", 1), SIZE)
    assert file is not None
    assert threading.active_count() == before
    assert not memory.exists(path("/s", 1))
    service.shutdown()
    assert memory.exists(path("/s", 0))


@pytest.mark.parametrize("threaded", [False, True])
def test_s13_full_disk_is_not_latched(memory: MemoryStorage, threaded: bool) -> None:
    reported: list[StoreError] = []
    service = AllocateMappedFileService(memory, on_error=reported.append)
    if threaded:
        service.start()
    memory.capacity = SIZE // 2
    for _ in range(2):
        with pytest.raises(DiskFull) as caught:
            service.take(path("/s", 0), None, SIZE)
        assert caught.value.file == path("/s", 0)
    assert len(reported) == 2
    memory.capacity = 10 * SIZE
    file = service.take(path("/s", 0), None, SIZE)
    assert file is not None
    assert file.append_message(b"x")
    service.shutdown()


def test_failure_ahead_of_need_is_tried_again_when_the_file_is_needed(memory: MemoryStorage) -> None:
    service = AllocateMappedFileService(memory)
    service.start()
    memory.fail("allocate", errno.ENOSPC, times=1, path_glob=f"{SIZE:020d}")
    service.take(path("/s", 0), path("/s", 1), SIZE)
    with pytest.raises(DiskFull):
        service._futures[path("/s", 1)].result()
    assert service.take(path("/s", 1), None, SIZE) is not None
    service.shutdown()


def test_slow_disk_gives_none_in_time_and_the_file_later(
    memory: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = AllocateMappedFileService(memory, wait_seconds=0)
    go_on = threading.Event()
    make = memory.open_mapping

    def slow(*args: object, **options: object) -> object:
        go_on.wait()
        return make(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(memory, "open_mapping", slow)
    service.start()
    assert service.take(path("/s", 0), None, SIZE) is None
    assert service.take(path("/s", 0), None, SIZE, wait=False) is None
    go_on.set()
    made = service.request(path("/s", 0), None, SIZE).result()
    assert service.take(path("/s", 0), None, SIZE) is made
    service.shutdown()


def test_file_discarded_while_it_is_made_is_removed(
    memory: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = AllocateMappedFileService(memory, wait_seconds=0)
    begun, go_on = threading.Event(), threading.Event()
    make = memory.open_mapping

    def slow(*args: object, **options: object) -> object:
        begun.set()
        go_on.wait()
        return make(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(memory, "open_mapping", slow)
    service.start()
    service.request(path("/s", 0), None, SIZE)
    begun.wait()
    service.discard("/s")
    go_on.set()
    service.shutdown()
    assert memory.listdir("/s") == []


def test_files_of_other_folders_are_not_discarded(service: AllocateMappedFileService, tmp_path: Path) -> None:
    service.request(path(tmp_path, 0), None, SIZE).result()
    service.discard(tmp_path / "elsewhere")
    assert Path(path(tmp_path, 0)).exists()
    service.discard(tmp_path)
    assert not Path(path(tmp_path, 0)).exists()


def test_s19_exhausted_pool_is_refused_at_once_only_when_asked_so(memory: MemoryStorage) -> None:
    pool = TransientStorePool(1, SIZE)
    service = AllocateMappedFileService(memory, pool=pool, fast_fail_without_buffer=True)
    first = service.take(path("/s", 0), None, SIZE)
    assert first is not None
    assert first.has_write_buffer
    with pytest.raises(StoreError, match="no write buffer"):
        service.take(path("/s", 1), None, SIZE)
    patient = AllocateMappedFileService(memory, pool=pool)
    second = patient.take(path("/s", 1), None, SIZE)
    assert second is not None
    assert not second.has_write_buffer


def test_warming_makes_the_whole_file_ready(tmp_path: Path) -> None:
    service = AllocateMappedFileService(DiskStorage(), window=4096, warm=True, written=True)
    service.start()
    file = service.take(path(tmp_path, 0), None, SIZE)
    service.shutdown()
    assert file is not None
    assert file.prepared_position == SIZE


def test_importing_and_making_a_service_starts_no_thread() -> None:
    before = threading.active_count()
    AllocateMappedFileService(MemoryStorage())
    assert threading.active_count() == before
