"""Turns of the sides: each starts its broker alone, takes every load of one flush mode, and ends."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from penstock.bench.broker.loads import Flush, Load
from penstock.bench.broker.nullbroker import NullBroker
from penstock.bench.child import ChildFailed
from penstock.bench.peer import BENCH_OPTIONS, Peer
from penstock.bench.penstockbroker import PenstockBroker
from penstock.bench.rocketmq import RocketMQ

Side = Literal["ours", "peer", "null"]
Started: TypeAlias = tuple[PenstockBroker | RocketMQ, float]
_READY_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How long and how often."""

    rounds: int = 3
    seconds: float = 4.0
    warm_up: float = 2.0
    # A JVM compiles what it runs often: a broker that has just started gets so long before anything counts.
    first_warm_up: float = 12.0
    topics: int = 1000
    connections: int = 5000
    old_bytes: int = 512 << 20
    timers: int = 100_000
    timer_lead: float = 30.0
    timer_span: float = 60.0

    @classmethod
    def quick(cls) -> Scale:
        """Shows that everything runs; its figures mean nothing."""
        return cls(1, 0.5, 0.3, 0.5, 20, 50, 8 << 20, 200, 2.0, 2.0)


@dataclass
class Measured:
    """Figures by side and name, one for each turn."""

    values: dict[tuple[Side, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, side: Side, name: str, value: float) -> None:
        self.values[side, name].append(value)

    def median(self, side: Side, name: str) -> float | None:
        """The middle one; None when that side never did it."""
        found = self.values.get((side, name))
        return statistics.median(found) if found else None


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, in user and system mode."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def first_ack(driver: Peer, namesrv: str, topic: str) -> float:
    """Send until one message is acked; when that was, by the monotonic clock.

    The client's leaving comes after that: it waits for a thread of its own, now and then for three seconds.
    """
    name = f"first-{time.monotonic_ns()}"
    driver.ask("producer", name=name, group="first", namesrv=namesrv, retries=0, timeout_ms=3000)
    try:
        end = time.monotonic() + _READY_SECONDS
        while time.monotonic() < end:
            sent = driver.ask("send", name=name, messages=[{"topic": topic, "body": "first"}])["results"][0]
            if sent.get("status") == "SEND_OK":
                return time.monotonic()
        raise ChildFailed(f"no message was acked in {_READY_SECONDS:.0f} s: {sent}")
    finally:
        driver.ask("stop-producer", name=name)


@contextmanager
def running(side: Side, folder: Path, driver: Peer, flush: Flush = "async") -> Iterator[Started]:
    """A broker alone in a folder of its own, and how long it took from its start to the first ack."""
    with tempfile.TemporaryDirectory(prefix=f"{side}-", dir=folder) as place:
        broker = Turns.broker(side, Path(place), flush)
        begin = time.monotonic()
        with broker:
            yield broker, first_ack(driver, broker.namesrv, "start") - begin


class Turns:
    """Runs the loads on every side, in turns, and keeps what was measured."""

    def __init__(
        self,
        folder: Path,
        driver: Peer,
        scale: Scale,
        sides: tuple[Side, ...],
        progress: Callable[[str], None],
    ) -> None:
        self.measured = Measured()
        self._folder = folder
        self._driver = driver
        self._scale = scale
        self._sides = sides
        self._progress = progress

    def run(self, loads: Iterable[Load]) -> None:
        """All rounds of all loads."""
        by_flush: dict[Flush, list[Load]] = {}
        for load in loads:
            by_flush.setdefault(load.flush, []).append(load)
        # The client's own first steps are not to be part of anybody's start.
        with NullBroker() as null:
            first_ack(self._driver, null.namesrv, "start")
            self._warm(null.namesrv)
        for number in range(self._scale.rounds):
            # Whoever goes first meets a cooler machine: take turns in that, too.
            order = self._sides if number % 2 == 0 else tuple(reversed(self._sides))
            for flush, mine in by_flush.items():
                for side in order:
                    self._progress(f"round {number + 1} of {self._scale.rounds}: {side}, {flush} flush")
                    self._turn(side, flush, mine)

    def _turn(self, side: Side, flush: Flush, loads: list[Load]) -> None:
        if side == "null":
            if flush == "async":
                with NullBroker() as null:
                    for load in (load for load in loads if not load.consumed):
                        self._measure(side, load, null.namesrv, None)
            return
        with running(side, self._folder, self._driver, flush) as (broker, start_seconds):
            self.measured.add(side, "start", start_seconds)
            self._warm(broker.namesrv)
            for load in loads:
                self._measure(side, load, broker.namesrv, broker.pid)
            self.measured.add(side, f"memory-{flush}", broker.rss_anon())
            self._driver.ask("end-load")

    def _warm(self, namesrv: str) -> None:
        load = Load("warm", "", "async", 1.0, 64)
        self._driver.ask("load", **load.command(namesrv, "T-warm", self._scale.first_warm_up))

    @staticmethod
    def broker(side: Side, place: Path, flush: Flush) -> PenstockBroker | RocketMQ:
        """A broker that is not started yet."""
        if side == "ours":
            return PenstockBroker(place, flush=flush)
        kind = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}[flush]
        return RocketMQ(place, settings={"flushDiskType": kind}, options=BENCH_OPTIONS)

    def _measure(self, side: Side, load: Load, namesrv: str, pid: int | None) -> None:
        topic = f"T-{load.key}"
        if not load.consumed:
            self._driver.ask("load", **load.command(namesrv, topic, self._scale.warm_up))
        before = cpu_seconds(pid) if pid is not None else 0.0
        answer = self._driver.ask(load.do, **load.command(namesrv, topic, self._scale.seconds))
        if answer["failed"]:
            raise ChildFailed(f"{answer['failed']} messages of {load.key} failed on {side}")
        if pid is not None and answer["sent"]:
            used = cpu_seconds(pid) - before
            self.measured.add(side, f"{load.key}-cpu", used * 1e6 / answer["sent"])
        rate = answer["consume_rate"] if load.consumed else answer["rate"]
        self.measured.add(side, load.key, rate)
        for quantile in ("p50_ms", "p99_ms", "p999_ms"):
            self._keep(side, f"{load.key}-{quantile}", answer, quantile)
            if load.consumed:
                self._keep(side, f"{load.key}-end-{quantile}", answer["end_to_end"], quantile)

    def _keep(self, side: Side, name: str, answer: dict[str, Any], quantile: str) -> None:
        if quantile in answer:
            self.measured.add(side, name, answer[quantile] / 1000)
