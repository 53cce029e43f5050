"""The command: run what is wanted, print it for people or as JSON, draw it."""

from __future__ import annotations

import fnmatch
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from penstock.bench.machine import fingerprint, load_average, sync_latency
from penstock.bench.row import Row
from penstock.bench.spark.comparison import Comparison
from penstock.bench.spark.groups import comparisons
from penstock.bench.spark.turns import SparkScale, Turns
from penstock.bench.store import conditions, progress_line, table
from penstock.errors import PenstockError


def run(
    directory: Path | None,
    *,
    scale: SparkScale,
    patterns: list[str],
    progress: Callable[[str], None],
    on_row: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """Do the rows whose key fits one of ``patterns`` (all without any) and return the report.

    All comparisons have their first round before one has its second: whoever interrupts the run then, or
    lets it run into its time, gets every row, of fewer rounds. A comparison that fails is told of, and the
    others go on.
    """

    def wanted(key: str) -> bool:
        return not patterns or any(fnmatch.fnmatch(key, pattern) for pattern in patterns)

    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=directory) as name:
        place = Path(name)
        report: dict[str, Any] = {
            "bench": "spark",
            "machine": dict(fingerprint(place)),
            "versions": versions(),
            "load_average_before": load_average(),
            "fdatasync": dict(sync_latency(place)),
            "rounds": scale.rounds,
            "messages": scale.messages,
        }
        turns = Turns.make(place, scale, progress)
        found = [chosen for made in comparisons(turns) if (chosen := made.chosen(wanted)) is not None]
        try:
            report["failed"] = take_rounds(turns, found, on_row)
            report["interrupted"] = False
        except KeyboardInterrupt:
            report["interrupted"] = True
        report["very_first_session"] = turns.first_run
        report["load_average_after"] = load_average()
        report["rows"] = [row.to_json() for comparison in found for row in comparison.rows()]
    return report


def take_rounds(turns: Turns, found: Sequence[Comparison], on_row: Callable[[Row], None]) -> dict[str, str]:
    """Round after round over all comparisons; which of them failed, and why."""
    failed: dict[str, str] = {}
    began = time.monotonic()
    for number in range(turns.scale.rounds):
        for comparison in found:
            ends = time.monotonic() - began + comparison.took
            late = comparison.once or ends > turns.scale.seconds
            if comparison.name in failed or (number > 0 and late):
                continue
            try:
                comparison.take_turns(turns, number)
            except (PenstockError, RuntimeError, OSError) as error:
                failed[comparison.name] = str(error)
                turns.session.progress(f"{comparison.name} failed: {error}")
            for row in comparison.rows():
                on_row(row)
    return failed


@contextmanager
def ended_by_signal() -> Iterator[None]:
    """Let a request to end be what an interruption from the keyboard is: what was measured is told."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def versions() -> dict[str, str]:
    """What the figures were made with."""
    import pyarrow
    import pyspark

    from penstock.spark.java import find_java

    return {"pyspark": pyspark.__version__, "pyarrow": pyarrow.__version__, "java": find_java().version}


def bench_spark(
    *,
    quick: bool = False,
    rounds: int | None = None,
    patterns: list[str] | None = None,
    directory: Path | None = None,
    minutes: float | None = None,
    as_json: bool = False,
    plot: Path | None = None,
) -> int:
    """Progress goes to standard error, the report to standard output. Returns the exit code."""
    from penstock.spark.session import require_packages

    require_packages()
    errors = Console(stderr=True)
    scale = SparkScale.quick() if quick else SparkScale()
    if rounds is not None:
        scale = replace(scale, rounds=rounds)
    if minutes is not None:
        scale = replace(scale, seconds=60 * minutes)
    with errors.status("starting") as status, ended_by_signal():
        report = run(
            directory,
            scale=scale,
            patterns=patterns or [],
            progress=status.update if errors.is_terminal else partial(errors.print, highlight=False),
            on_row=lambda row: errors.print(progress_line(row), highlight=False),
        )
    if plot is not None:
        from penstock.bench.plot import draw

        draw(report, plot)
    if as_json:
        json.dump(report, sys.stdout, indent=1)
        sys.stdout.write("\n")
        return 0
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(table(report))
    for line in [*_first_run(report), *_missing(report), *conditions(report)]:
        console.print(line, highlight=False)
    return 1 if report.get("failed") else 0


def _missing(report: dict[str, Any]) -> list[str]:
    """What is not in the table, and why."""
    lines = [f"{name} failed: {error}" for name, error in report.get("failed", {}).items()]
    return [*lines, *(["It was interrupted: these are the rows so far."] if report["interrupted"] else [])]


def _first_run(report: dict[str, Any]) -> list[str]:
    first = report["very_first_session"]
    if not first:
        return []
    return [
        f"The very first session took {first['seconds']:.1f} s to its first result, and "
        f"{first['preparing_seconds']:.1f} s at its end to prepare the next ones."
    ]
