from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.files import DiskStorage


def test_queue_file_costs_no_blocks_until_written(tmp_path: Path) -> None:
    file = DiskStorage().open_sparse(tmp_path / "q", 6_000_000, create=True)
    assert (tmp_path / "q").stat().st_blocks == 0
    file.write(0, b"x" * 20)
    assert (tmp_path / "q").stat().st_blocks * 512 < 100_000


def test_descriptor_is_closed_when_the_last_holder_is_done(tmp_path: Path) -> None:
    file = DiskStorage().open_sparse(tmp_path / "q", 4096, create=True)
    file.hold()
    file.close()
    descriptor = file.fileno()
    assert os.fstat(descriptor).st_size == 4096
    file.release()
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_name_of_a_new_queue_file_is_synced_with_its_first_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = DiskStorage()
    synced: list[str] = []
    monkeypatch.setattr(storage, "sync_dir", lambda path: synced.append(str(path)))
    file = storage.open_sparse(tmp_path / "q", 4096, create=True)
    assert synced == []
    file.close()
    storage.open_sparse(tmp_path / "q", 4096).sync()
    assert synced == [str(tmp_path)]
    storage.open_sparse(tmp_path / "q", 4096).sync()
    assert synced == [str(tmp_path)]


def test_failed_atomic_write_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = DiskStorage()
    storage.write_atomic(tmp_path / "a", b"old")

    def refuse(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError) as caught:
        storage.write_atomic(tmp_path / "a", b"new")
    assert "a.tmp" in str(caught.value)
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["a"]


def test_s14_usage_that_cannot_be_told_is_minus_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("shutil.disk_usage", refuse)
    assert DiskStorage().disk_usage(tmp_path / "not" / "yet" / "there") == -1


def test_folders_are_made_with_those_above_them(tmp_path: Path) -> None:
    DiskStorage().makedirs(tmp_path / "a" / "b" / "c")
    DiskStorage().makedirs(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_folders_made_for_later_are_synced_once_with_the_first_file_below_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = DiskStorage()
    synced: list[str] = []
    monkeypatch.setattr(storage, "sync_dir", lambda path: synced.append(str(path)))
    files = []
    for name in ("topic/0", "topic/1"):
        storage.makedirs(tmp_path / "queues" / name, later=True)
        files.append(storage.open_sparse(tmp_path / "queues" / name / "q", 4096, create=True))
    assert synced == []
    for file in files:
        file.sync()
    queues = tmp_path / "queues"
    above = [str(queues / "topic"), str(queues), str(tmp_path)]
    assert synced == [str(queues / "topic/0"), *above, str(queues / "topic/1")]
    storage.makedirs(queues / "topic/2", later=True)
    synced.clear()
    storage.open_sparse(queues / "topic/2" / "q", 4096, create=True).sync()
    assert synced == [str(queues / "topic/2"), str(queues / "topic")]


def test_folder_whose_sync_failed_is_synced_with_the_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = DiskStorage()
    storage.makedirs(tmp_path / "topic/0", later=True)
    file = storage.open_sparse(tmp_path / "topic/0/q", 4096, create=True)
    synced: list[str] = []
    refused = [str(tmp_path / "topic")]

    def refuse_once(path: object) -> None:
        if str(path) in refused:
            refused.remove(str(path))
            raise OSError(5, "Input/output error")
        synced.append(str(path))

    monkeypatch.setattr(storage, "sync_dir", refuse_once)
    with pytest.raises(OSError):
        file.sync()
    synced.clear()
    file.sync()
    assert synced == [str(tmp_path / "topic/0"), str(tmp_path / "topic"), str(tmp_path)]
