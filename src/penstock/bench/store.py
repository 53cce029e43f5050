"""``penstock bench store``: the same work through our store and through RocketMQ's own, in one run."""

from __future__ import annotations

import fnmatch
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from penstock.bench import opens, puts, reads
from penstock.bench.child import ChildFailed
from penstock.bench.machine import fingerprint, load_average, sync_latency
from penstock.bench.row import Row
from penstock.bench.session import Scale, Session

_GROUPS: tuple[Callable[[Session, Callable[[str], bool]], Iterator[Row]], ...] = (
    puts.async_rows,
    puts.sync_rows,
    puts.sqlite_rows,
    reads.read_rows,
    opens.open_rows,
    opens.growth_rows,
    opens.queue_rows,
    opens.memory_rows,
)
BUSY = 0.5


def run(
    directory: Path | None,
    *,
    peer: Literal["rocketmq", "none"],
    scale: Scale,
    patterns: list[str],
    progress: Callable[[str], None],
    on_row: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """Do the rows whose key fits one of ``patterns`` (all without any) and return the report.

    What was measured is in it even if not all could be: ``complete`` says so, ``failures`` why. An interrupt
    (SIGINT) ends the run after the turn it came in, and the report is returned all the same.
    """

    def wanted(key: str) -> bool:
        return not patterns or any(fnmatch.fnmatch(key, pattern) for pattern in patterns)

    with ExitStack() as stack:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        # A folder of its own in any case: what is removed at the end is only what was made here.
        place = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=directory))
        )
        report: dict[str, Any] = {
            "bench": "store",
            "peer": peer,
            "machine": dict(fingerprint(place)),
            "load_average_before": load_average(),
            "fdatasync": dict(sync_latency(place)),
            "rounds": scale.rounds,
        }
        rows: list[Row] = []
        failures: list[str] = []
        report.update(complete=False, failures=failures)
        session = stack.enter_context(Session(place, scale, peer == "rocketmq", progress))
        try:
            for group in _GROUPS:
                try:
                    for row in group(session, wanted):
                        rows.append(row)
                        on_row(row)
                except (ChildFailed, AssertionError) as error:
                    # One work that fails must not cost the figures of the others.
                    failures.append(f"{group.__name__}: {error}")
                    progress(failures[-1])
            report["complete"] = not failures
        except KeyboardInterrupt:
            failures.append("interrupted")
            session.hurry()
        report["load_average_after"] = load_average()
        report["rows"] = [row.to_json() for row in rows]
    return report


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
    return lines


def bench_store(
    *,
    peer: Literal["rocketmq", "none"] = "none",
    quick: bool = False,
    rounds: int | None = None,
    patterns: list[str] | None = None,
    directory: Path | None = None,
    as_json: bool = False,
    plot: Path | None = None,
) -> int:
    """The command. Progress goes to standard error, the report to standard output. Returns the exit code."""
    errors = Console(stderr=True)
    scale = Scale.quick() if quick else Scale()
    if rounds is not None:
        scale = replace(scale, rounds=rounds)
    began = time.monotonic()

    def stamp(text: str) -> str:
        passed = int(time.monotonic() - began)
        return f"[{passed // 60:2}:{passed % 60:02}] {text}"

    with errors.status("starting") as status, _terminated_as_interrupted():

        def progress(text: str) -> None:
            if errors.is_terminal:
                status.update(stamp(text))
            else:
                errors.print(stamp(text), highlight=False, markup=False, soft_wrap=True)

        report = run(
            directory,
            peer=peer,
            scale=scale,
            patterns=patterns or [],
            progress=progress,
            on_row=lambda row: errors.print(
                stamp(progress_line(row)), highlight=False, markup=False, soft_wrap=True
            ),
        )
    if plot is not None:
        from penstock.bench.plot import draw

        draw(report, plot)
    if as_json:
        json.dump(report, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        # Into a file or a pipe nobody cuts lines: give the table the room it needs.
        console = Console() if sys.stdout.isatty() else Console(width=160)
        console.print(table(report))
        for line in conditions(report):
            console.print(line, highlight=False)
    if "interrupted" in report["failures"]:
        return 130
    return 0 if report["complete"] else 1


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
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
