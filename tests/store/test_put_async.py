"""Puts on an event loop: nothing on the loop waits."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock import Message, StoreConfig, open_store
from penstock.errors import DiskFull, FlushFailed
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


def test_puts_that_wait_for_the_disk_hold_their_own_results(tmp_path: Path) -> None:
    async def main(run: int) -> list[Any]:
        return await asyncio.gather(*(store.put_async(Message("T", b"%d-%d" % (run, n))) for n in range(100)))

    with open_store(tmp_path / "store", flush="sync") as store:
        # Two loops, one after the other: the second must not get the waiters of the first.
        results = [result for run in range(2) for result in asyncio.run(main(run))]
        assert [result.queue_offset for result in results] == list(range(200))
        assert store.wait_visible()
        bodies = [store.lookup(result.physical_offset).body for result in results]
        assert bodies == [b"%d-%d" % (run, n) for run in range(2) for n in range(100)]


def test_loops_of_several_threads_wait_for_the_disk_at_once(tmp_path: Path) -> None:
    offsets: list[int] = []

    async def main() -> None:
        for _ in range(50):
            results = await asyncio.gather(*(store.put_async(Message("T", b"x")) for _ in range(8)))
            offsets.extend(result.queue_offset for result in results if result.ok)

    with open_store(tmp_path / "store", flush="sync") as store:
        threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(offsets) == list(range(3 * 50 * 8))


def test_put_that_was_cancelled_while_it_waited_for_the_disk_leaves_the_others(tmp_path: Path) -> None:
    async def main() -> list[Any]:
        puts = [asyncio.create_task(store.put_async(Message("T", b"x"))) for _ in range(20)]
        await asyncio.sleep(0)
        puts[3].cancel()
        return await asyncio.gather(*puts, return_exceptions=True)

    with open_store(tmp_path / "store", flush="sync") as store:
        results = asyncio.run(main())
        assert isinstance(results.pop(3), asyncio.CancelledError)
        assert all(result.ok for result in results)


def test_puts_that_wait_are_answered_when_the_store_is_closed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", flush="sync")

    async def main() -> list[Any]:
        puts = [asyncio.create_task(store.put_async(Message("T", b"x"))) for _ in range(20)]
        await asyncio.sleep(0)
        store.close()
        return await asyncio.wait_for(asyncio.gather(*puts), 30)

    assert all(result.ok for result in asyncio.run(main()))


def test_puts_that_wait_learn_of_a_failed_sync(tmp_path: Path) -> None:
    async def main() -> list[Any]:
        puts = [asyncio.create_task(store.put_async(Message("T", b"x"))) for _ in range(20)]
        await asyncio.sleep(0)
        return await asyncio.gather(*puts, return_exceptions=True)

    store = open_store(tmp_path / "store", flush="sync")
    try:
        assert asyncio.run(store.put_async(Message("T", b"first"))).ok
        store._log.files.last_file.mapping.inject(sync_error=errno.EIO)
        assert all(isinstance(result, FlushFailed) for result in asyncio.run(main()))
    finally:
        store.abandon()


def test_puts_that_are_written_together_learn_of_a_full_disk_and_leave_nothing(tmp_path: Path) -> None:
    async def main(count: int) -> list[Any]:
        puts = (store.put_async(Message("T", b"x")) for _ in range(count))
        return await asyncio.gather(*puts, return_exceptions=True)

    with open_store(tmp_path / "store", flush="sync") as store:
        assert asyncio.run(main(1))[0].queue_offset == 0
        end = store.appended_where
        store._log.files.last_file.mapping.inject(write_error=errno.ENOSPC, write_times=1)
        assert all(isinstance(result, DiskFull) for result in asyncio.run(main(20)))
        assert store.appended_where == end
        assert [result.queue_offset for result in asyncio.run(main(40))] == list(range(1, 41))


def test_put_that_nobody_waits_for_is_in_the_log_at_once_and_behind_those_before_it(tmp_path: Path) -> None:
    async def main() -> list[Any]:
        waiting = [asyncio.create_task(store.put_async(Message("T", b"%d" % n))) for n in range(5)]
        await asyncio.sleep(0)
        last = await store.put_async(Message("T", b"5", wait=False))
        assert store.appended_where == last.end_offset
        return [*await asyncio.gather(*waiting), last]

    with open_store(tmp_path / "store", flush="sync") as store:
        assert asyncio.run(store.put_async(Message("T", b"first"))).ok
        assert [result.queue_offset for result in asyncio.run(main())] == [1, 2, 3, 4, 5, 6]


def test_puts_find_their_queue_again_when_the_queues_were_forgotten_meanwhile(tmp_path: Path) -> None:
    async def main() -> list[Any]:
        puts = [asyncio.create_task(store.put_async(Message("T", b"x"))) for _ in range(5)]
        await asyncio.sleep(0)
        store._log.encoder.forget_queues()
        return await asyncio.gather(*puts)

    with open_store(tmp_path / "store", flush="sync") as store:
        assert asyncio.run(store.put_async(Message("T", b"first"))).ok
        assert [result.queue_offset for result in asyncio.run(main())] == [1, 2, 3, 4, 5]


def test_puts_of_one_loop_stay_in_order_where_a_log_file_ends(tmp_path: Path) -> None:
    config = StoreConfig(flush_disk_type="sync", mapped_file_size_commit_log=SEGMENT)

    async def main() -> list[Any]:
        return await asyncio.gather(*(store.put_async(Message("T", BODY[:9000])) for _ in range(400)))

    with open_store(tmp_path / "store", config=config) as store:
        results = asyncio.run(main())
        assert sorted(result.queue_offset for result in results) == list(range(400))
        assert all(result.ok for result in results)
        assert store.wait_visible()
        assert store.max_offset("T", 0) == 400
