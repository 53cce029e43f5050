"""The sides of one bench run, their turns and what they answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.bench.session import Scale, Session, median
from penstock.bench.spark.data import Dataset, write_store
from penstock.bench.spark.live import LIVE, serving
from penstock.bench.spark.processes import cpu_seconds
from penstock.bench.spark.scanners import check_side_by_side, scan_side_by_side, scanners
from penstock.bench.spark.side import start_side

SCANNERS = {"scanners": scan_side_by_side, "checkers": check_side_by_side}


@dataclass(frozen=True, slots=True)
class SparkScale:
    """How much of each work is done, and how often."""

    rounds: int = 3
    messages: int = 1_500_000
    long_messages: int = 6_000_000
    segment_bytes: int = 64 << 20
    warm: int = 1
    repeats: int = 1
    times: int = 10
    seconds: float = 1140.0
    """No further round of a comparison is begun that would not end within so long."""

    @classmethod
    def quick(cls) -> SparkScale:
        """Shows that everything runs. The figures mean little."""
        return cls(
            rounds=1,
            messages=30_000,
            long_messages=30_000,
            segment_bytes=4 << 20,
        )


@dataclass(frozen=True, slots=True)
class Spec:
    """One side of a comparison: which work, how, on what and on how many cores."""

    work: str
    data: Dataset
    source: str = "ours"
    cores: int = 2

    @property
    def path(self) -> Path:
        if self.source != "parquet" and self.work != "write":
            return self.data.store
        if self.data.parquet is None:
            raise ValueError(f"{self.data.store} has no Parquet twin")
        return self.data.parquet


@dataclass
class Measured:
    """What a side answered in one turn."""

    rows: int
    seconds: list[float]
    java: int = 0
    workers: int = 0
    heap: int = 0
    log_bytes: int = 0
    cpu: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.rows / median(self.seconds)


@dataclass
class Turns:
    """One run: folders, data made once, and a fresh process for every measurement."""

    session: Session
    scale: SparkScale
    cache: Path
    first_run: dict[str, float] = field(default_factory=dict)
    _log_bytes: dict[Path, int] = field(default_factory=dict)

    @classmethod
    def make(cls, directory: Path, scale: SparkScale, progress: Callable[[str], None]) -> Turns:
        return cls(Session(directory, Scale(rounds=scale.rounds), True, progress), scale, directory / "cache")

    def planned(self, messages: int, *, parquet: bool = True) -> Dataset:
        """A store of so many messages, and its Parquet twin, of which nothing is there yet."""
        folder = self.session.directory / f"data-{messages}{'' if parquet else '-log'}"
        return Dataset(folder / "store", folder / "parquet" if parquet else None, messages)

    def made(self, data: Dataset) -> Dataset:
        """The same, and it is there."""
        if data.store not in self._log_bytes:
            self.session.progress(f"writing {data.rows} messages")
            size = write_store(data.store, data.rows, segment=self.scale.segment_bytes)
            self._log_bytes[data.store] = size
            if data.parquet is not None:
                self._write_parquet(data)
        return data

    def _write_parquet(self, data: Dataset) -> None:
        """Also the very first session of the run, so its start is kept as that."""
        begin = time.perf_counter()
        with start_side(self.cache, 2) as child:
            child.ask("start")
            self.run_once(child, Spec("count", data))
            first = time.perf_counter() - begin
            self.session.progress("writing the same messages as Parquet")
            rows = child.ask("parquet", path=str(data.store), target=str(data.parquet))["rows"]
            begin = time.perf_counter()
        ended = time.perf_counter() - begin
        if rows != data.rows:
            raise RuntimeError(f"{rows} rows went into Parquet, {data.rows} messages were put")
        if not self.first_run:
            self.first_run = {"seconds": first, "preparing_seconds": ended}

    def measure(self, spec: Spec) -> Measured:
        """One turn of a side. Its data is made first, if that is not there yet."""
        self.made(spec.data)
        if spec.source in SCANNERS:
            measured = self._measure_scanners(spec)
        elif spec.work == "start":
            measured = self._measure_start(spec)
        else:
            measured = self._measure_work(spec)
        measured.log_bytes = self._log_bytes[spec.data.store]
        return measured

    def _measure_work(self, spec: Spec) -> Measured:
        """A fresh process and session, a warm-up, and the repeats."""
        with (
            serving(spec.data.store) if spec.source in LIVE else nullcontext(str(spec.path)) as path,
            start_side(self.cache, spec.cores) as child,
        ):
            child.ask("start")
            answer = self._run(child, spec, path, warm=self.scale.warm, repeats=self.scale.repeats)
            heap = int(child.ask("heap")["bytes"])
        return Measured(
            spec.data.rows, answer["seconds"], answer["java"], answer["workers"], heap, cpu=answer["cpu"]
        )

    def _measure_start(self, spec: Spec) -> Measured:
        """From nothing to the first count."""
        begin = time.perf_counter()
        with start_side(self.cache, spec.cores) as child:
            child.ask("start", stock=spec.source == "stock")
            self.run_once(child, Spec("count", spec.data))
            return Measured(spec.data.rows, [time.perf_counter() - begin])

    def run_once(self, child: Any, spec: Spec) -> None:
        """The work as the first thing a session does."""
        self._run(child, spec, str(spec.path), warm=0, repeats=1)

    def _run(self, child: Any, spec: Spec, path: str, *, warm: int, repeats: int) -> dict[str, Any]:
        below = self.session.directory / "written"
        below.mkdir(exist_ok=True)
        arguments = {"source": spec.source, "path": path}
        answer: dict[str, Any] = child.ask(
            "run", work=spec.work, arguments=arguments, below=str(below), warm=warm, repeats=repeats
        )
        if answer["rows"] not in (None, spec.data.rows):
            raise RuntimeError(f"{spec.work} of {spec.source} saw {answer['rows']} of {spec.data.rows} rows")
        return answer

    def _measure_scanners(self, spec: Spec) -> Measured:
        seconds, cpu = [], []
        with scanners(spec.cores) as children:
            for number in range(self.scale.warm + self.scale.repeats):
                used = sum(cpu_seconds(child.pid) for child in children)
                begin = time.perf_counter()
                found = SCANNERS[spec.source](children, spec.data.store)
                if number >= self.scale.warm:
                    seconds.append(time.perf_counter() - begin)
                    cpu.append(sum(cpu_seconds(child.pid) for child in children) - used)
                if found != spec.data.rows:
                    raise RuntimeError(f"the scanners saw {found} of {spec.data.rows} records")
        return Measured(spec.data.rows, seconds, cpu=cpu)
