"""Sizes of a store are read off its files; a file whose size can't be is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden_store import CASES, unpack
from penstock.config import StoreConfig
from penstock.errors import CorruptFile, NotAStore
from penstock.files.disk import DiskStorage
from penstock.store.sizes import detect

STORAGE = DiskStorage()


@pytest.mark.parametrize("case", CASES)
def test_sizes_are_those_of_the_writer(case: str, tmp_path: Path) -> None:
    store = unpack(case, tmp_path)
    found = detect(STORAGE, str(store.path), StoreConfig())
    assert found.mapped_file_size_commit_log == store.setting("mappedFileSizeCommitLog", 1 << 30)
    assert found.mapped_file_size_consume_queue == store.setting("mappedFileSizeConsumeQueue", 6_000_000)
    assert found.max_hash_slot_num == store.setting("maxHashSlotNum", 5_000_000)
    assert found.max_index_num == store.setting("maxIndexNum", 20_000_000)
    assert found.mapped_file_size_timer_log == store.setting("mappedFileSizeTimerLog", 100 << 20)


def test_nothing_is_known_of_a_directory_that_is_not_there(tmp_path: Path) -> None:
    config = StoreConfig(mapped_file_size_commit_log=1 << 20)
    assert detect(STORAGE, str(tmp_path / "missing"), config) == config
    assert detect(STORAGE, str(tmp_path), config) == config


def test_a_folder_of_other_things_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("hello")
    with pytest.raises(NotAStore):
        detect(STORAGE, str(tmp_path), StoreConfig())
    with pytest.raises(NotAStore):
        detect(STORAGE, str(tmp_path / "letter.txt"), StoreConfig())


@pytest.mark.parametrize("size", [1000, 40_000, 32_768])
def test_a_log_that_was_cut_short_is_named(size: int, tmp_path: Path) -> None:
    store = unpack("transactions", tmp_path)
    (file,) = store.files("commitlog")
    with file.open("r+b") as opened:
        opened.truncate(size)
    with pytest.raises(CorruptFile) as raised:
        detect(STORAGE, str(store.path), StoreConfig())
    assert raised.value.file == str(file)


def test_one_file_of_several_that_differs_is_named(tmp_path: Path) -> None:
    store = unpack("basic", tmp_path)
    file = store.path / "commitlog" / "00000000000000196608"
    with file.open("r+b") as opened:
        opened.truncate(32_768)
    with pytest.raises(CorruptFile) as raised:
        detect(STORAGE, str(store.path), StoreConfig())
    assert raised.value.file == str(file)
    assert "65536" in raised.value.message
