"""S19: write buffers between the writer and the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.place import SMALL, Place, body_of
from penstock import Message, StoreConfig, open_store

POOLED = SMALL.replace(transient_store_pool_enable=True, transient_store_pool_size=2)


def test_s19_sync_flush_with_buffers_acks_and_does_not_time_out(tmp_path: Path) -> None:
    config = StoreConfig(
        mapped_file_size_commit_log=64 << 10,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=100,
        max_index_num=1000,
        transient_store_pool_enable=True,
        transient_store_pool_size=2,
        sync_flush_timeout_ms=60_000,
    )
    with open_store(tmp_path / "store", config=config) as store:
        for number in range(200):
            result = store.put(Message("T", body_of(number, 1000)))
            assert result.status == "PUT_OK", result
            assert store.flushed_where >= result.end_offset
        assert store.wait_visible()
        assert store.max_offset("T", 0) == 200


def test_s19_acked_messages_in_buffers_survive_a_power_cut() -> None:
    place = Place(config=POOLED)
    place.open()
    for number in range(40):
        place.put(number, 900)
    for image in place.storage.crash_states(8):
        after = Place(config=POOLED, storage=image, clock=place.clock)
        after.open()
        assert after.numbers() == list(range(40))
        after.kill()


def test_s19_what_is_not_committed_is_not_shown() -> None:
    place = Place(config=POOLED.replace(flush_disk_type="async"))
    place.open()
    place.put(0)
    place.store.dispatch()
    assert place.numbers() == [] and place.store.max_physical_offset == 0
    assert place.store._log.commit() is False
    assert place.store.committed_where > 0 and place.store.flushed_where == 0
    place.store.dispatch()
    assert place.numbers() == [0]
    place.store.flush()
    assert place.store.flushed_where == place.store.committed_where


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_s19_exhausted_pool_refuses_nobody(flush: str) -> None:
    """More files than buffers: those without one are written directly, and buffers come back."""
    place = Place(config=POOLED.replace(transient_store_pool_size=1, flush_disk_type=flush))
    place.open()
    for number in range(60):
        place.put(number, 1000)
        if flush == "async" and number % 20 == 19:
            place.store._log.commit()
    place.store.flush()
    place.store.dispatch()
    assert place.numbers() == list(range(60))
    place.reopen_after_kill()
    assert place.numbers() == list(range(60))


def test_s19_closing_writes_what_is_in_the_buffers() -> None:
    place = Place(config=POOLED.replace(flush_disk_type="async"))
    place.open()
    for number in range(30):
        place.put(number, 900)
    place.store.close()
    store = place.open()
    assert place.numbers() == list(range(30)) and store.report.clean
