"""Puts on an event loop: nothing on the loop waits."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock import Message, StoreConfig, open_store
from penstock.files.disk import DiskStorage

SEGMENT = 1 << 20
BODY = b"x" * 200_000


class SlowStorage(DiskStorage):
    """A disk on which every log file after the first takes until ``release`` is set to be made."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    def open_mapping(self, path: Any, size: int, **options: Any) -> Any:
        if "commitlog" in str(path) and not str(path).endswith("0" * 20):
            assert self.release.wait(60)
        return super().open_mapping(path, size, **options)


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_loop_goes_on_while_the_next_log_file_is_made(tmp_path: Path, flush: str) -> None:
    """The loop itself lets the file be made: were it held up, the put would give up waiting."""
    storage = SlowStorage()
    config = StoreConfig(flush_disk_type=flush, mapped_file_size_commit_log=SEGMENT)

    async def main() -> list[Any]:
        puts = [asyncio.create_task(store.put_async(Message("T", BODY))) for _ in range(12)]
        _, waiting = await asyncio.wait(puts, timeout=0.2)
        assert waiting  # there is no room for all of them yet
        storage.release.set()
        return await asyncio.gather(*puts)

    with open_store(tmp_path / "store", config=config, storage=storage) as store:
        results = asyncio.run(main())
        assert [result.status for result in results] == ["PUT_OK"] * 12
        assert store.wait_visible()
        assert store.max_offset("T", 0) == 12


def test_put_that_was_cancelled_leaves_the_file_for_the_next(tmp_path: Path) -> None:
    storage = SlowStorage()
    config = StoreConfig(flush_disk_type="async", mapped_file_size_commit_log=SEGMENT)

    async def main() -> Any:
        puts = [asyncio.create_task(store.put_async(Message("T", BODY))) for _ in range(8)]
        _, waiting = await asyncio.wait(puts, timeout=0.2)
        for put in waiting:
            put.cancel()
        await asyncio.gather(*puts, return_exceptions=True)
        storage.release.set()
        return await store.put_async(Message("T", b"last"))

    with open_store(tmp_path / "store", config=config, storage=storage) as store:
        assert asyncio.run(main()).ok
        assert store.wait_visible()
        assert store.get("T", 0, store.max_offset("T", 0) - 1).messages[0].body == b"last"
