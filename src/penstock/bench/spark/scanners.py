"""A peer of verify: scanner processes side by side, without Spark. They are up before the clock starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from penstock._native.record import walk
from penstock.bench.answers import answer_commands
from penstock.bench.child import Child, python_environment
from penstock.spark.places import open_places
from penstock.store.scan import LogScanner, StepResult


def scan(paths: list[str]) -> dict[str, int]:
    """Walk segments, checking lengths, CRC and places of every record. Raises when one is damaged."""
    records = 0

    def step(view: memoryview, base: int) -> StepResult:
        nonlocal records
        result = walk(view, 0, len(view), base, check_torn=True)
        records += result.records
        return result

    for place in open_places(paths):
        scanner = LogScanner(place.directory, step=step)
        for _ in scanner.runs():
            pass
        if scanner.damage:
            raise RuntimeError(f"damage at {scanner.damage[0]}")
    return {"records": records}


@contextmanager
def scanners(count: int) -> Iterator[list[Child]]:
    """Processes that wait for work."""
    command = [sys.executable, "-m", "penstock.bench.spark.scanners"]
    with ExitStack() as stack:
        children = [
            stack.enter_context(Child(f"scanner {number}", command, python_environment()))
            for number in range(count)
        ]
        for child in children:
            child.ask("ready")
        yield children


def scan_side_by_side(children: list[Child], store: Path) -> int:
    """Every segment of the store, shared out evenly; how many records there were."""
    files = [str(file) for file in sorted((store / "commitlog").iterdir())]
    each = -(-len(files) // len(children))
    shares = [files[number * each : (number + 1) * each] for number in range(len(children))]
    with ThreadPoolExecutor(len(children)) as pool:
        answers = pool.map(
            lambda pair: pair[0].ask("scan", paths=pair[1]) if pair[1] else {"records": 0},
            zip(children, shares, strict=True),
        )
        return sum(int(answer["records"]) for answer in answers)


def _answer(command: dict[str, Any]) -> dict[str, Any]:
    return scan(command["paths"]) if command["do"] == "scan" else {}


if __name__ == "__main__":
    answer_commands(_answer)
