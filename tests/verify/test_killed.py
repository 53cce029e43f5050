"""A process of ours that is killed while it writes leaves a directory without damage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock import demo
from penstock.store.opening import open_writable
from penstock.store.verify import verify_store

WRITER = """
import sys
from penstock import Message, StoreConfig
from penstock.store.opening import open_writable

config = StoreConfig(
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=20000,
    max_hash_slot_num=1000,
    max_index_num=5000,
    flush_disk_type=sys.argv[2],
)
with open_writable(sys.argv[1], config=config) as store:
    number = 0
    while True:
        store.put_many(
            [
                Message(f"t{n % 3}", b"x" * (n % 700), keys=f"k{n} all", tags="a", queue_id=n % 2)
                for n in range(number, number + 20)
            ]
        )
        number += 20
        print(number, flush=True)
"""


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_killed_store_is_healthy_before_and_after_opening(flush: str, tmp_path: Path) -> None:
    path = tmp_path / "s"
    for batches in (3, 50, 200):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(path), flush], stdout=subprocess.PIPE)
        assert child.stdout is not None
        for _ in range(batches):
            acked = int(child.stdout.readline())
        child.kill()
        child.wait()
        child.stdout.close()
        killed = verify_store(str(path))
        assert killed.faults == []
        assert not killed.closed and not killed.live
        assert killed.records >= acked
        open_writable(path).close()
        opened = verify_store(str(path))
        assert opened.faults == []
        assert opened.records == killed.records


@pytest.mark.crash
def test_the_demo_keeps_its_promise(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--store"]) == 0
    assert "0 lost, 0 doubled" in capsys.readouterr().out
