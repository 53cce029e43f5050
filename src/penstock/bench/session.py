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
from penstock.bench.copying import copy_store
from penstock.bench.work import Work

Flush = str
_JAVA_FLUSH = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of each work is done."""

    rounds: int = 3
    async_messages: int = 600_000
    sync_messages: int = 20_000
    grouped_messages: int = 100_000
    read_messages: int = 1_000_000
    queries: int = 50_000
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
    _jvm: Child | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    def side(self, name: str) -> Any:
        """The context manager of a side by its name."""
        return self.ours() if name == "ours" else self.theirs()

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

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A store's place that is gone afterwards."""
        path = self.directory / f"store-{next(self._numbers)}"
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def copy(self, source: Path) -> Iterator[Path]:
        """A copy with a warm page cache and nothing left to write back."""
        with self.folder() as path:
            copy_store(source, path)
            self.settle()
            yield path

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
