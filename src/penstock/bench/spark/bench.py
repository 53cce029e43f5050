"""The command: run what is wanted, print it for people or as JSON, draw it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from penstock.bench.report import (
    Circumstances,
    exit_code,
    picker,
    progress_line,
    tell,
    terminated_as_interrupted,
)
from penstock.bench.row import Row
from penstock.bench.spark.comparison import Comparison
from penstock.bench.spark.groups import comparisons
from penstock.bench.spark.turns import SparkScale, Turns
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

    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=directory) as name:
        place = Path(name)
        circumstances = Circumstances(place)
        turns = Turns.make(place, scale, progress)
        wanted = picker(patterns)
        found = [chosen for made in comparisons(turns) if (chosen := made.chosen(wanted)) is not None]
        failures: list[str] = []
        try:
            take_rounds(turns, found, on_row, failures)
        except KeyboardInterrupt:
            failures.append("interrupted")
        return {
            "bench": "spark",
            "versions": versions(),
            "rounds": scale.rounds,
            "messages": scale.messages,
            "very_first_session": turns.first_run,
            **circumstances.ended(),
            "complete": not failures,
            "failures": failures,
            "rows": [row.to_json() for comparison in found for row in comparison.rows()],
        }


def take_rounds(
    turns: Turns, found: Sequence[Comparison], on_row: Callable[[Row], None], failures: list[str]
) -> None:
    """Round after round over all comparisons; ``failures`` gets which of them failed, and why."""
    failed: set[str] = set()
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
                failed.add(comparison.name)
                failures.append(f"{comparison.name}: {error}")
                turns.session.progress(failures[-1])
            for row in comparison.rows():
                on_row(row)


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
    with errors.status("starting") as status, terminated_as_interrupted():
        report = run(
            directory,
            scale=scale,
            patterns=patterns or [],
            progress=status.update if errors.is_terminal else partial(errors.print, highlight=False),
            on_row=lambda row: errors.print(progress_line(row), highlight=False),
        )
    tell(report, as_json=as_json, plot=plot, remarks=_first_run(report))
    return exit_code(report)


def _first_run(report: dict[str, Any]) -> list[str]:
    first = report["very_first_session"]
    if not first:
        return []
    return [
        f"The very first session took {first['seconds']:.1f} s to its first result, and "
        f"{first['preparing_seconds']:.1f} s at its end to prepare the next ones."
    ]
