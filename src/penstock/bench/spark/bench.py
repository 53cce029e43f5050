"""The command: run what is wanted, print it for people or as JSON, draw it."""

from __future__ import annotations

import fnmatch
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from penstock.bench.machine import fingerprint, load_average, sync_latency
from penstock.bench.row import Row
from penstock.bench.spark import groups, growth
from penstock.bench.spark.turns import SparkScale, Turns
from penstock.bench.store import conditions, progress_line, table

_GROUPS: tuple[Callable[[Turns, Callable[[str], bool]], Iterator[Row]], ...] = (
    growth.start_rows,
    groups.read_rows,
    groups.job_rows,
    groups.write_rows,
    growth.core_rows,
    growth.data_rows,
)


def run(
    directory: Path | None,
    *,
    scale: SparkScale,
    patterns: list[str],
    progress: Callable[[str], None],
    on_row: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """Do the rows whose key fits one of ``patterns`` (all without any) and return the report."""

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
        rows: list[Row] = []
        for group in _GROUPS:
            for row in group(turns, wanted):
                rows.append(row)
                on_row(row)
        report["very_first_session"] = turns.first_run
        report["load_average_after"] = load_average()
        report["rows"] = [row.to_json() for row in rows]
    return report


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
    with errors.status("starting") as status:
        report = run(
            directory,
            scale=scale,
            patterns=patterns or [],
            progress=lambda text: status.update(text) if errors.is_terminal else None,
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
    for line in [*_first_run(report), *conditions(report)]:
        console.print(line, highlight=False)
    return 0


def _first_run(report: dict[str, Any]) -> list[str]:
    first = report["very_first_session"]
    if not first:
        return []
    return [
        f"The very first session took {first['seconds']:.1f} s to its first result, and "
        f"{first['preparing_seconds']:.1f} s at its end to prepare the next ones."
    ]
