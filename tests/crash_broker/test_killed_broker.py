"""A broker killed at any moment under real load has every message that a client was told is stored."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock import open_store
from penstock.bench.peer import INTEROP_OPTIONS, Peer
from penstock.bench.penstockbroker import PenstockBroker

pytestmark = pytest.mark.crash

KILLS = max(2, int(os.environ.get("PENSTOCK_KILLS", "300")) // 30)
TOPIC = "killed"


class Load:
    """Senders of the Java client in the background; ``acked`` are the keys it was told are stored."""

    def __init__(self, driver: Peer, broker: PenstockBroker, senders: int) -> None:
        self._answer: dict[str, Any] = {}
        self._error: BaseException | None = None
        arguments = {"namesrv": broker.namesrv, "topic": TOPIC, "senders": senders, "size": 256}
        self._thread = threading.Thread(target=self._run, args=(driver, arguments))
        self._thread.start()

    def _run(self, driver: Peer, arguments: dict[str, Any]) -> None:
        try:
            self._answer = driver.ask("load", seconds=30, keep=True, **arguments)
            driver.ask("end-load")
        except BaseException as error:
            self._error = error

    def acked(self) -> set[str]:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return set(self._answer["acked"])


def _grown(broker: PenstockBroker, size: int) -> None:
    """Wait until so many bytes of log were written: the moment of the kill, whatever the machine does."""
    queue = broker.folder / "store" / "consumequeue" / TOPIC
    end = time.monotonic() + 60
    while sum(path.stat().st_blocks * 512 for path in queue.rglob("*") if path.is_file()) < size:
        assert time.monotonic() < end, "the broker stores nothing"
        time.sleep(0.001)


@pytest.mark.skipif(shutil.which("mvn") is None, reason="needs Java and Maven for the real client")
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_what_a_real_client_was_told_is_stored_survives_kill_9(flush: str, tmp_path: Path) -> None:
    random.seed(flush)
    # A killed process loses nothing that it wrote, however it flushes: only the machine's death would.
    with Peer("ClientDriver", "5.5.0", INTEROP_OPTIONS) as driver:
        broker = PenstockBroker(tmp_path, flush=flush, settings={"mappedFileSizeCommitLog": 16 << 20})
        told: Counter[str] = Counter()
        for _ in range(KILLS):
            broker.start()
            load = Load(driver, broker, random.choice([1, 16, 64]))
            _grown(broker, 4096 * random.randint(1, 12))
            broker.stop(kill=True)
            told.update(load.acked())
            assert told
            _check(tmp_path / "store", told)
            shutil.rmtree(tmp_path / "store")
            told.clear()


def _check(path: Path, told: Counter[str]) -> None:
    stored: Counter[str] = Counter()
    with open_store(path) as store:
        for queue in (queue for topic, queue in store.queues() if topic == TOPIC):
            offset = store.min_offset(TOPIC, queue)
            while offset < store.max_offset(TOPIC, queue):
                found = store.get(TOPIC, queue, offset, 32)
                for message in found.messages:
                    assert message.queue_offset == offset
                    offset += 1
                    if message.keys is not None:
                        stored[message.keys] += 1
    missing = told.keys() - stored.keys()
    assert not missing, (
        f"{len(missing)} of {len(told)} acked messages are gone, such as {sorted(missing)[:3]}"
    )
    twice = [key for key, times in stored.items() if times > 1]
    assert not twice, f"stored twice: {twice[:3]}"
