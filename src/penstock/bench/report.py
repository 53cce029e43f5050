"""What a bench tells: its rows, for people or as JSON, and the circumstances they came about under."""

from __future__ import annotations

import fnmatch
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from penstock.bench.child import ChildFailed
from penstock.bench.machine import fingerprint, load_average, processor_ticks, sync_latency
from penstock.bench.row import Row

BUSY = 0.5
STARVED = 0.05


def picker(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Whether a row's key fits one of ``patterns``; every key does without any."""
    return lambda key: not patterns or any(fnmatch.fnmatch(key, pattern) for pattern in patterns)


class Circumstances:
    """The machine from the moment this is made until ``ended``: whether it was busy, or not ours at all."""

    def __init__(self, place: Path) -> None:
        self._before = {
            "machine": dict(fingerprint(place)),
            "load_average_before": load_average(),
            "fdatasync": dict(sync_latency(place)),
        }
        self._stolen, self._ticks = processor_ticks()

    def ended(self) -> dict[str, Any]:
        """For the report. ``stolen``: the share of the processors' time that a host kept for itself."""
        stolen, ticks = processor_ticks()
        share = (stolen - self._stolen) / max(1, ticks - self._ticks)
        return {**self._before, "load_average_after": load_average(), "stolen": share}


class Rows:
    """Collects rows, each told at once. A group that fails must not cost the figures of the others."""

    def __init__(self, on_row: Callable[[Row], None], progress: Callable[[str], None]) -> None:
        self._on_row = on_row
        self._progress = progress
        self._rows: list[Row] = []
        self._failures: list[str] = []

    def keep(self, name: str, found: Iterator[Row]) -> None:
        """All rows of one group, as far as it gets."""
        try:
            for row in found:
                self._rows.append(row)
                self._on_row(row)
        except (ChildFailed, AssertionError) as error:
            self.failed(f"{name}: {error}")

    def failed(self, why: str) -> None:
        """Something was not measured."""
        self._failures.append(why)
        self._progress(why)

    def to_json(self) -> dict[str, Any]:
        """``rows``; ``complete``, and in ``failures`` why not."""
        return {
            "complete": not self._failures,
            "failures": self._failures,
            "rows": [row.to_json() for row in self._rows],
        }


def exit_code(report: dict[str, Any]) -> int:
    """0 when everything was measured, 130 after an interruption, else 1."""
    if "interrupted" in report["failures"]:
        return 130
    return 0 if report["complete"] else 1


def tell(
    report: dict[str, Any], *, as_json: bool = False, plot: Path | None = None, remarks: Sequence[str] = ()
) -> None:
    """The report on standard output and, if wanted, as a picture."""
    if plot is not None:
        from penstock.bench.plot import draw

        draw(report, plot)
    if as_json:
        json.dump(report, sys.stdout, indent=1)
        sys.stdout.write("\n")
        return
    # Into a file or a pipe nobody cuts lines: give the table the room it needs.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(table(report))
    for line in (*remarks, *conditions(report)):
        console.print(line, highlight=False)


def quantity(value: float | None, unit: str) -> str:
    """A figure for people: three digits and a prefix."""
    if value is None:
        return "-"
    if unit == "s":
        return f"{value:.3f} s" if value >= 0.1 else f"{value * 1000:.1f} ms"
    if unit == "bytes":
        return f"{value / (1 << 20):.1f} MiB"
    for limit, name in ((1e6, " M"), (1e3, " k")):
        if value >= limit:
            return f"{value / limit:.3g}{name}{unit[unit.index('/') :] if '/' in unit else ''}"
    return f"{value:.3g}"


def table(report: dict[str, Any]) -> Table:
    """The rows as people read them; with the bytes of log that ours went through, where a row knows them."""
    with_bytes = any("mib_per_s" in row for row in report["rows"])
    drawn = Table(title=f"penstock bench {report.get('bench', 'store')}")
    for column in (
        "work",
        "ours",
        *(("MiB/s",) if with_bytes else ()),
        "peer",
        "against",
        "ratio",
        "at least",
        "",
    ):
        drawn.add_column(column, justify="left" if column in ("work", "against", "") else "right")
    marks = {True: "[green]reached[/]", False: "[red]missed[/]", None: ""}
    for row in report["rows"]:
        ratio, at_least = row["ratio"], row["at_least"]
        rate = f"{row['mib_per_s']:.0f}" if "mib_per_s" in row else ""
        drawn.add_row(
            row["work"],
            quantity(row["ours"], row["unit"]),
            *((rate,) if with_bytes else ()),
            quantity(row["peer"], row["unit"]),
            row["against"] if row["peer"] is not None else "",
            "-" if ratio is None else f"{ratio:.2f} x",
            "-" if at_least is None else f"{at_least:.2f} x",
            marks[row["reached"]],
        )
    return drawn


def conditions(report: dict[str, Any]) -> list[str]:
    """Under which circumstances the figures came about, a sentence a line."""
    machine, sync = report["machine"], report["fdatasync"]
    before, after = report["load_average_before"][0], report["load_average_after"][0]
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / (1 << 30):.0f} GiB, "
        f"{machine['kernel']}, {machine['filesystem']}, {machine['python']}",
        f"fdatasync of 1 KiB: p50 {sync['p50_us']:.0f} us, p99 {sync['p99_us']:.0f} us; "
        f"load average {before:.2f} before, {after:.2f} after; median of {report['rounds']} rounds",
    ]
    if not report.get("complete", True):
        lines.append(f"Not everything was measured: {'; '.join(report['failures'])}")
    if before > BUSY:
        lines.append(f"The machine was busy before the bench began (load {before:.2f}): run it alone.")
    if report["stolen"] > STARVED:
        lines.append(
            f"The host kept {report['stolen']:.0%} of the processors' time from this machine meanwhile: "
            "rates are too low and ratios unsure."
        )
    return lines


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does: with the figures so far. Only the main thread may set that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def progress_line(row: Row) -> str:
    """A row as it is told while the bench runs."""
    compared = "" if row.ratio is None else f", {row.ratio:.2f} x {row.against}"
    return f"{row.work}: {quantity(row.ours, row.unit)}{compared}"
