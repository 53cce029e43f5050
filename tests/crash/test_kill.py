"""Processes that are killed with SIGKILL at any instant under load: every acked message is there, in
order, once.
"""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from crash.killed import body_of, key_of, small_files
from crash.ledger import contents
from penstock import open_store

KILLS = int(os.environ.get("PENSTOCK_KILLS", "300"))
KILLS_PER_STORE = 5
TESTS = Path(__file__).parents[1]

CASES = [
    ("put", "sync", False),
    ("put", "async", False),
    ("put", "sync", True),
    ("put_many", "sync", False),
    ("put_many", "async", False),
    ("put_many", "sync", True),
    ("put_async", "sync", False),
    ("put_async", "sync", True),
    ("threads", "sync", False),
    ("threads", "async", False),
    ("threads", "sync", True),
]
NAMES = [f"{kind}-{flush}{'-pool' if pool else ''}" for kind, flush, pool in CASES]
ROUNDS = -(-KILLS // (len(CASES) * KILLS_PER_STORE))


class KilledStore:
    """A store directory, the processes that die over it, and everything they were told is safe."""

    def __init__(self, path: Path, kind: str, flush: str, pool: bool, seed: int) -> None:
        self.path = path
        self.kind, self.flush, self.pool = kind, flush, pool
        self.rng = random.Random(seed)
        self.runs = 0
        self.kills = 0
        self.acked: dict[tuple[str, int], dict[int, tuple[int, int, int, int]]] = defaultdict(dict)
        """Queue and queue offset to run, writer, number and physical offset."""

    def _start(self, kind: str) -> subprocess.Popen[bytes]:
        self.runs += 1
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
        pool = "pool" if self.pool else "-"
        return subprocess.Popen(
            [sys.executable, "-m", "crash.killed", self.path, str(self.runs), kind, self.flush, pool],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )

    def kill_under_load(self) -> None:
        """Kill it after some acks; what it told until then is the promise."""
        self._kill(self.kind, after_bytes=self.rng.randrange(1, 20_000))

    def kill_while_opening(self) -> None:
        self._kill("open", after_bytes=len(b"opening\n"))

    def _kill(self, kind: str, after_bytes: int) -> None:
        process = self._start(kind)
        assert process.stdout is not None and process.stderr is not None
        said = b""
        while len(said) < after_bytes:
            piece = os.read(process.stdout.fileno(), 1 << 16)
            assert piece, process.stderr.read().decode()
            said += piece
        # A moment that has nothing to do with the pipe.
        select.select([], [], [], self.rng.random() * 0.02)
        process.kill()
        said += process.stdout.read()
        process.wait()
        process.stdout.close()
        process.stderr.close()
        self.kills += 1
        for line in said.decode().splitlines()[2:]:
            writer, number, topic, queue_id, queue_offset, place = line.split(" ")
            self.acked[topic, int(queue_id)][int(queue_offset)] = (
                self.runs,
                int(writer),
                int(number),
                int(place),
            )

    def check(self) -> int:
        """Open it here: the promise holds. How many messages that is."""
        config = small_files(self.flush, pool=self.pool)
        with open_store(self.path, config=config, background=False) as store:
            assert not store.report.clean and not store.report.damage, str(store.report)
            held = contents(store)
            for queue, acked in self.acked.items():
                self._check_queue(store, queue, acked, held.get(queue, []))
        return sum(len(acked) for acked in self.acked.values())

    def _check_queue(
        self, store: Any, queue: tuple[str, int], acked: dict[int, Any], held: list[tuple[int, int, bytes]]
    ) -> None:
        there = {offset: (place, body) for offset, place, body in held}
        for offset, (run, writer, number, place) in acked.items():
            assert there.get(offset) == (place, body_of(run, writer, number)), f"{queue} at {offset}"
        assert [offset for offset, _, _ in held] == list(range(held[0][0], held[-1][0] + 1))
        order: dict[tuple[bytes, bytes], int] = {}
        for _, _, body in held:
            run, writer, number = body.split(b"|", 1)[0].split(b".")
            assert int(number) > order.get((run, writer), -1), f"{queue}: {run, writer, number} again or late"
            order[run, writer] = int(number)
        for run, writer, number, place in self.rng.sample(sorted(acked.values()), min(60, len(acked))):
            found = store.query(queue[0], key_of(run, writer, number))
            assert [m.physical_offset for m in found] == [place], f"{queue}: key of {run, writer, number}"


def kill_rounds(path: Path, kind: str, flush: str, pool: bool, seed: int, kills: int) -> KilledStore:
    victim = KilledStore(path, kind, flush, pool, seed)
    acked = 0
    while victim.kills < kills:
        victim.kill_under_load()
        for _ in range(victim.rng.choice((0, 0, 1, 2))):
            victim.kill_while_opening()
        acked = victim.check()
    assert acked > 0
    return victim


@pytest.mark.parametrize(("kind", "flush", "pool"), CASES, ids=NAMES)
def test_acked_messages_survive_a_kill(tmp_path: Path, kind: str, flush: str, pool: bool) -> None:
    assert kill_rounds(tmp_path / "store", kind, flush, pool, seed=1, kills=1).kills >= 1


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize(("kind", "flush", "pool"), CASES, ids=NAMES)
def test_acked_messages_survive_every_kill(
    tmp_path: Path, kind: str, flush: str, pool: bool, seed: int
) -> None:
    victim = kill_rounds(tmp_path / "store", kind, flush, pool, seed, KILLS_PER_STORE)
    assert victim.kills >= KILLS_PER_STORE
