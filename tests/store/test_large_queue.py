"""Queues of the real size: what small test files never reach."""

from __future__ import annotations

from pathlib import Path

from penstock import Message, StoreConfig, open_store


def test_a_long_queue_is_known_to_its_end_after_reopening(tmp_path: Path) -> None:
    config = StoreConfig(mapped_file_size_commit_log=64 << 20, max_hash_slot_num=100, max_index_num=1000)
    config = config.replace(message_index_enable=False)
    count = 120_000
    with open_store(tmp_path / "s", flush="async", config=config) as store:
        for begin in range(0, count, 2000):
            assert store.put_many([Message("long", b"%d" % n) for n in range(begin, begin + 2000)]).ok
        assert store.wait_visible(timeout=60)
    with open_store(tmp_path / "s", flush="async", config=config) as store:
        assert store.report.clean and store.report.records == 0 and not store.report.faults
        assert store.max_offset("long", 0) == count
        assert store.get("long", 0, count - 1)[0].body == b"%d" % (count - 1)
