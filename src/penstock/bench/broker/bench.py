"""The command ``penstock bench broker``: its rows and its report."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from penstock.bench.broker.extremes import MIB, crowd_rows, old_reader_row, own_client_rows
from penstock.bench.broker.filtered import filter_row
from penstock.bench.broker.loads import LOADS, Load
from penstock.bench.broker.pops import pop_rows
from penstock.bench.broker.timers import pending_row, timer_rows
from penstock.bench.broker.tls import tls_rows
from penstock.bench.broker.turns import Measured, Scale, Side, Turns
from penstock.bench.child import ChildFailed
from penstock.bench.peer import Peer
from penstock.bench.report import (
    Circumstances,
    Rows,
    exit_code,
    picker,
    progress_line,
    tell,
    terminated_as_interrupted,
)
from penstock.bench.row import Row

_DRIVER_OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")


def load_rows(measured: Measured, load: Load) -> Iterator[Row]:
    """The rate of a load and what came with it, as far as somebody measured it."""
    ours = measured.median("ours", load.key)
    if ours is None:
        return
    detail = {
        name: measured.median(side, f"{load.key}-{figure}")
        for side in ("ours", "peer")
        for figure, name in (
            ("p50_ms", f"{side}_p50_s"),
            ("p99_ms", f"{side}_p99_s"),
            ("p999_ms", f"{side}_p999_s"),
            ("cpu", f"{side}_cpu_s_per_million"),
        )
    }
    ceiling = measured.median("null", load.key)
    peer = measured.median("peer", load.key)
    yield Row(load.key, load.work, "msg/s", ours, peer, load.at_least, ceiling=ceiling, detail=detail)

    def beside(name: str, work: str, unit: str, at_most: float) -> Iterator[Row]:
        mine, theirs = measured.median("ours", name), measured.median("peer", name)
        if mine is not None:
            least = 1 / at_most
            yield Row(name, f"{load.work}: {work}", unit, mine, theirs, least, lower_is_better=True)

    if load.key == "async-1-128":
        yield from beside(f"{load.key}-p99_ms", "p99", "s", 0.7)
    if load.key == "consume":
        yield from beside(f"{load.key}-end-p50_ms", "end to end, p50", "s", 0.5)
    if load.key == "async-64-1k":
        yield from beside(f"{load.key}-cpu", "CPU of the broker per million", "s", 0.5)


def whole_rows(measured: Measured) -> Iterator[Row]:
    """Start-up and memory."""
    ours = measured.median("ours", "start")
    if ours is not None:
        peer = measured.median("peer", "start")
        yield Row("start", "start to first ack, empty store", "s", ours, peer, 5.0, lower_is_better=True)
    for flush in ("async", "sync"):
        memory = measured.median("ours", f"memory-{flush}")
        if memory is not None:
            yield Row(
                f"memory-{flush}",
                f"anonymous memory after the load, {flush} flush",
                "bytes",
                memory,
                150 * MIB,
                1.0,
                lower_is_better=True,
                against="allowed",
                detail={"rocketmq": measured.median("peer", f"memory-{flush}")},
            )


def run(
    directory: Path | None,
    *,
    peer: Literal["rocketmq", "none"],
    scale: Scale,
    patterns: list[str],
    pending: int = 0,
    progress: Callable[[str], None],
    on_row: Callable[[Row], None],
) -> dict[str, Any]:
    """Do the rows whose key fits one of ``patterns`` (all without any) and return the report."""

    wanted = picker(patterns)
    sides: tuple[Side, ...] = ("ours", "peer", "null") if peer == "rocketmq" else ("ours", "null")
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=directory) as folder:
        place = Path(folder)
        circumstances = Circumstances(place)
        rows = Rows(on_row, progress)
        try:
            _measure(place, rows, sides, scale, wanted, progress)
            rows.keep("pending timers", pending_row(place, pending))
        except KeyboardInterrupt:
            rows.failed("interrupted")
        return {
            "bench": "broker",
            "peer": peer,
            "rounds": scale.rounds,
            **circumstances.ended(),
            **rows.to_json(),
        }


def _measure(
    place: Path,
    rows: Rows,
    sides: tuple[Side, ...],
    scale: Scale,
    wanted: Callable[[str], bool],
    progress: Callable[[str], None],
) -> None:
    with Peer("ClientDriver", "5.5.0", _DRIVER_OPTIONS) as driver:
        turns = Turns(place, driver, scale, sides, progress)
        loads = [load for load in LOADS if wanted(load.key)]
        try:
            turns.run(loads)
        except ChildFailed as error:
            rows.failed(f"loads: {error}")
        for load in loads:
            rows.keep(load.key, load_rows(turns.measured, load))
        rows.keep("start and memory", whole_rows(turns.measured))
        rows.keep("own client", own_client_rows(place, scale, wanted))
        rows.keep("crowds", crowd_rows(place, driver, scale, wanted))
        rows.keep("reader of old data", old_reader_row(place, turns, driver, scale, wanted))
        rows.keep("SQL filter", filter_row(place, scale, wanted))
        rows.keep("TLS", tls_rows(place, driver, _DRIVER_OPTIONS, scale, wanted))
        rows.keep("timers", timer_rows(place, driver, scale, sides, wanted, progress))
        rows.keep("POP", pop_rows(place, driver, scale, sides, wanted, progress))


def bench_broker(
    *,
    peer: Literal["rocketmq", "none"] = "none",
    quick: bool = False,
    rounds: int | None = None,
    patterns: list[str] | None = None,
    directory: Path | None = None,
    as_json: bool = False,
    plot: Path | None = None,
    pending_timers: int = 0,
) -> int:
    """The command. Progress goes to standard error, the report to standard output. Returns the exit code."""
    errors = Console(stderr=True)
    scale = Scale.quick() if quick else Scale()
    if rounds is not None:
        scale = replace(scale, rounds=rounds)
    with terminated_as_interrupted():
        report = run(
            directory,
            peer=peer,
            scale=scale,
            patterns=patterns or [],
            pending=pending_timers,
            progress=lambda text: errors.print(text, highlight=False),
            on_row=lambda row: errors.print(progress_line(row), highlight=False),
        )
    tell(report, as_json=as_json, plot=plot)
    return exit_code(report)
