"""``penstock bench store``: the same work through our store and through RocketMQ's own, in one run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from penstock.bench import opens, puts, reads
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

    wanted = picker(patterns)
    with ExitStack() as stack:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        # A folder of its own in any case: what is removed at the end is only what was made here.
        place = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=directory))
        )
        circumstances = Circumstances(place)
        rows = Rows(on_row, progress)
        session = stack.enter_context(Session(place, scale, peer == "rocketmq", progress))
        try:
            for group in _GROUPS:
                rows.keep(group.__name__, group(session, wanted))
        except KeyboardInterrupt:
            rows.failed("interrupted")
            session.hurry()
        return {
            "bench": "store",
            "peer": peer,
            "rounds": scale.rounds,
            **circumstances.ended(),
            **rows.to_json(),
        }


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

    with errors.status("starting") as status, terminated_as_interrupted():

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
    tell(report, as_json=as_json, plot=plot)
    return exit_code(report)
