"""Messages with a time: how late they arrive, and what many of them cost while they wait."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.bench.broker.turns import Measured, Scale, Side, running
from penstock.bench.child import ChildFailed, python_environment
from penstock.bench.peer import Peer
from penstock.bench.row import Row

_KEYS = ("timers", "timers-p99", "timers-p50")


def timer_rows(
    folder: Path,
    driver: Peer,
    scale: Scale,
    sides: tuple[Side, ...],
    wanted: Callable[[str], bool],
    progress: Callable[[str], None],
) -> Iterator[Row]:
    """Timers due evenly over a minute; late is how long after its time each is with the consumer."""
    if not any(wanted(key) for key in _KEYS):
        return
    measured = Measured()
    seen: dict[str, Any] = {}
    for side in (side for side in sides if side != "null"):
        progress(f"{scale.timers} timers: {side}")
        with running(side, folder, driver) as (broker, _):
            answer = _measure(driver, broker.namesrv, scale)
        for quantile in ("p50_ms", "p99_ms", "p999_ms", "most_ms"):
            measured.add(side, quantile, answer[quantile] / 1000)
        seen |= {
            f"{side}_{name}": answer[name] for name in ("twice", "early", "send_ms", "in_time", "most_ms")
        }
    for quantile, at_least in (("p99_ms", 1.0), ("p50_ms", None)):
        ours = measured.median("ours", quantile)
        assert ours is not None
        yield Row(
            f"timers-{quantile.removesuffix('_ms')}",
            f"{scale.timers} timers due within {scale.timer_span:.0f} s: lateness, {quantile[:3]}",
            "s",
            ours,
            measured.median("peer", quantile),
            at_least,
            lower_is_better=True,
            detail=seen if quantile == "p99_ms" else {},
        )


def _measure(driver: Peer, namesrv: str, scale: Scale) -> dict[str, Any]:
    # A first small run: both brokers and the client have done this before anything counts.
    small = {"count": max(1, scale.timers // 50), "lead_ms": 2000, "span_ms": 2000}
    arguments = {"namesrv": namesrv, "senders": 64, "size": 128}
    driver.ask("timers", topic="warm-timers", **small, **arguments)
    span, lead = int(scale.timer_span * 1000), int(scale.timer_lead * 1000)
    answer = driver.ask("timers", topic="timers", count=scale.timers, lead_ms=lead, span_ms=span, **arguments)
    if answer["failed"] or answer["missing"] or answer["twice"] or answer["early"]:
        raise ChildFailed(f"not every timer arrived once: {answer}")
    return answer


def pending_row(folder: Path, pending: int) -> Iterator[Row]:
    """Memory of a process whose store holds many timers, beside that of one with a tenth of them."""
    if pending <= 0:
        return
    found = [_pending(folder, count) for count in (max(1, pending // 10), pending)]
    yield Row(
        "timers-memory",
        f"anonymous memory with {pending} timers pending",
        "bytes",
        found[1]["memory"],
        found[0]["memory"],
        1 / 1.1,
        lower_is_better=True,
        against=f"{max(1, pending // 10)} pending",
        detail={
            "after_restart": found[1]["memory_after_restart"],
            "restart_s": found[1]["restart_s"],
            "per_s": pending / found[1]["seconds"],
        },
    )


def _pending(folder: Path, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="pending-", dir=folder) as place:
        answers = []
        for what in ("fill", "open"):
            command = [sys.executable, "-m", "penstock.bench.broker.pendingtimers", what, place, str(count)]
            done = subprocess.run(command, env=python_environment(), capture_output=True, check=False)
            if done.returncode:
                raise ChildFailed(f"{what} of {count} timers: {done.stderr.decode()[-2000:]}")
            answers.append(json.loads(done.stdout))
    filled, opened = answers
    return {**filled, "memory_after_restart": opened["memory"], "restart_s": opened["seconds"]}
