"""Both sides of a benchmark run, their turns and their folders."""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.bench.child import Child
from penstock.bench.logs import SharedLog, write_log
from penstock.bench.work import Work

Flush = str
RECORD = 310
"""Bytes of a record of the works with 128 bytes of body, nearly."""
_JAVA_FLUSH = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of each work is done."""

    rounds: int = 3
    async_messages: int = 600_000
    sync_messages: int = 20_000
    grouped_messages: int = 100_000
    sqlite_messages: int = 60_000
    read_messages: int = 1_000_000
    queries: int = 20_000
    log_bytes: int = 900_000_000
    segment_bytes: int = 64 << 20
    many_queues: int = 8000

    @classmethod
    def quick(cls) -> Scale:
        """Shows that everything runs. The figures mean little."""
        return cls(
            rounds=1,
            async_messages=20_000,
            sync_messages=500,
            grouped_messages=4000,
            sqlite_messages=2000,
            read_messages=20_000,
            queries=1000,
            log_bytes=20_000_000,
            segment_bytes=4 << 20,
            many_queues=400,
        )


def median(values: list[float]) -> float:
    """The figure that counts."""
    return statistics.median(values)


@dataclass
class Session:
    """One run of the bench. The JVM lives through it; our side is a fresh process for each measurement."""

    directory: Path
    scale: Scale
    with_peer: bool
    progress: Callable[[str], None]
    peak: dict[str, int] = field(default_factory=lambda: {"ours": 0, "peer": 0})
    _logs: dict[str, SharedLog] = field(default_factory=dict)
    _jvm: Child | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.hurry()
        self.stop_jvm()

    # -- sides --------------------------------------------------------------------------------------------

    @contextmanager
    def ours(self) -> Iterator[Child]:
        """A fresh process of our side; what it used at most is remembered."""
        from penstock.bench.ours import start_ours

        with start_ours() as child:
            yield child
            self.peak["ours"] = max(self.peak["ours"], child.peak_rss_anon)

    @contextmanager
    def theirs(self) -> Iterator[Child]:
        """The JVM, warmed up when it was started just now."""
        from penstock.bench.peer import Peer

        if self._jvm is not None and not self._jvm.alive:
            self.stop_jvm()
        if self._jvm is None:
            self._jvm = Peer("StorePeer")
            self._warm_up(self._jvm)
        yield self._jvm
        self.peak["peer"] = max(self.peak["peer"], self._jvm.peak_rss_anon)

    def stop_jvm(self) -> None:
        """End the JVM; the next use starts another."""
        if self._jvm is not None:
            self.peak["peer"] = max(self.peak["peer"], self._jvm.peak_rss_anon)
            self._jvm.close()
            self._jvm = None

    def hurry(self) -> None:
        """Do not wait for the JVM to end by itself: the run was interrupted."""
        if self._jvm is not None:
            self._jvm.patience = 0.0

    def side(self, name: str) -> Any:
        """The context manager of a side by its name."""
        return self.ours() if name == "ours" else self.theirs()

    def fresh(self, name: str) -> Any:
        """A process of a side that nothing was measured in, and that may be killed."""
        from penstock.bench.peer import Peer

        return self.ours() if name == "ours" else Peer("StorePeer")

    def _warm_up(self, jvm: Child) -> None:
        self.progress("warming up the JVM")
        count = self.scale.async_messages // 2
        with self.folder() as folder:
            jvm.ask("open", dir=str(folder), config=self.config("async"))
            for work in (Work(count), Work(count // 2, writers=8), Work(count, batch=64)):
                jvm.ask("put", **work.command())
            for _ in range(3):
                jvm.ask("get")
                jvm.ask("get", decode=True)
            jvm.ask("query", queries=self.scale.queries // 4, distinct=Work(count).distinct)
            jvm.ask("close")

    @staticmethod
    def config(flush: Flush, **options: Any) -> dict[str, Any]:
        """Settings by RocketMQ's names, which both sides take. Sizes are the defaults unless given."""
        return {"flushDiskType": _JAVA_FLUSH[flush], **options}

    # -- folders ------------------------------------------------------------------------------------------

    def new_folder(self) -> Path:
        """A place for a store, which stays until the end of the run."""
        return self.directory / f"store-{next(self._numbers)}"

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A store's place that is gone afterwards."""
        path = self.new_folder()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def log(self, side: str) -> SharedLog:
        """The log of the scale's size that a side wrote, in four parts; written when first asked for."""
        if side not in self._logs:
            self.progress(f"{side} writes {self.scale.log_bytes / 1e9:.2f} GB")
            part = Work(max(64, self.scale.log_bytes // RECORD // 4), batch=64)
            self._logs[side] = write_log(self, side, [part] * 4)
        return self._logs[side]

    @staticmethod
    def settle() -> None:
        """Let the disk finish what the last measurement left, so that it is not charged to the next."""
        os.sync()

    # -- turns --------------------------------------------------------------------------------------------

    def alternate(self, name: str, turns: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
        """Give each side its turn in every round, the first one changing; a figure per turn."""
        figures: dict[str, list[float]] = {side: [] for side in turns}
        for number in range(self.scale.rounds):
            order = list(turns) if number % 2 == 0 else list(turns)[::-1]
            for side in order:
                self.progress(f"{name}: {side}, round {number + 1} of {self.scale.rounds}")
                self.settle()
                figures[side].append(turns[side]())
        return figures

    def compare(self, name: str, measure: Callable[[str], float]) -> dict[str, list[float]]:
        """The same measurement on both sides, in turns."""
        return self.alternate(name, {side: partial(measure, side) for side in self.sides()})

    def sides(self) -> list[str]:
        """Names of the sides that take part."""
        return ["ours", "peer"] if self.with_peer else ["ours"]
