"""Peers of verify: scanner processes side by side, without Spark. They are up before the clock starts.

``scan`` walks the log and checks its records; ``check`` does all that a task of ``verify`` does: queue units
and index entries too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
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


def check(path: str, number: int, count: int) -> dict[str, int]:
    """Share ``number`` of ``count`` of what the tasks of ``verify`` check: segments and index files."""
    from penstock.spark.jobs.checkedsplit import check_part
    from penstock.spark.jobs.passstate import CheckedPart

    [place] = open_places(path)
    files = place.log_files
    ends: list[int | None] = [*(file.begin for file in files[1:]), None]
    parts = [CheckedPart(place, file.begin, end) for file, end in zip(files, ends, strict=True)]
    for entry in place.storage.listdir(f"{path}/index"):
        parts.append(CheckedPart(place, index_files=(f"{path}/index/{entry.name}",)))
    return {"records": sum(check_part(part).counts.records for part in parts[number::count])}


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
    busy = [(child, share) for child, share in zip(children, shares, strict=True) if share]
    return _at_once([partial(child.ask, "scan", paths=share) for child, share in busy])


def check_side_by_side(children: list[Child], store: Path) -> int:
    """All that ``verify`` checks of the store, shared out evenly; how many records there were."""
    count = len(children)
    return _at_once(
        [
            partial(child.ask, "check", path=str(store), number=number, count=count)
            for number, child in enumerate(children)
        ]
    )


def _at_once(asked: list[Callable[[], dict[str, Any]]]) -> int:
    with ThreadPoolExecutor(len(asked)) as pool:
        return sum(int(answer["records"]) for answer in pool.map(lambda ask: ask(), asked))


def _answer(command: dict[str, Any]) -> dict[str, Any]:
    if command["do"] == "scan":
        return scan(command["paths"])
    if command["do"] == "check":
        return check(command["path"], command["number"], command["count"])
    return {}


if __name__ == "__main__":
    answer_commands(_answer)
