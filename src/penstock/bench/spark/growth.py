"""Rows about more of something: cores, data, and the memory that takes; and about the first result."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from penstock.bench.row import Row
from penstock.bench.session import median
from penstock.bench.spark.groups import Plan, Wanted, compare, rate
from penstock.bench.spark.side import start_side
from penstock.bench.spark.turns import Measured, Spec, Turns

_WORKS = {
    "all": "all columns to noop",
    "narrow": "3 columns to noop",
    "verify": "verify with CRC",
    "export": "export to Parquet by topic",
    "write": "write into a store",
}
_MEMORY_AT_LEAST = 0.8
_START_AT_LEAST = 1 / 0.6


def core_rows(turns: Turns, wanted: Wanted) -> Iterator[Row]:
    """Two cores against one, both pinned."""
    works = {work: text for work, text in _WORKS.items() if wanted(f"cores-{work}")}
    if not works or len(os.sched_getaffinity(0)) < 2:
        return
    data = turns.dataset(turns.scale.messages)
    for work, text in works.items():
        yield from compare(
            turns,
            f"{text}, 1 and 2 cores",
            {"one": Spec(work, data, cores=1), "two": Spec(work, data, cores=2)},
            [Plan(f"cores-{work}", f"{text}, 2 cores", "two", "one", "ours on 1 core", 1.7)],
            wanted,
        )


def data_rows(turns: Turns, wanted: Wanted) -> Iterator[Row]:
    """Ten times the data: the rate, and the memory of the workers and of Java."""
    works = [work for work in ("all", "verify") if wanted(f"data-{work}") or wanted(f"memory-{work}")]
    if not works:
        return
    few = turns.dataset(turns.scale.small_messages)
    many = turns.dataset(turns.scale.small_messages * turns.scale.times, parquet=False)
    factor = f"{turns.scale.times} x the data"
    for work in works:
        results = turns.compare(
            f"{_WORKS[work]}, {factor}", {"few": Spec(work, few), "many": Spec(work, many)}
        )
        if wanted(f"data-{work}"):
            yield Row(
                f"data-{work}",
                f"{_WORKS[work]}, {factor}",
                "rows/s",
                rate(results["many"]),
                rate(results["few"]),
                0.85,
                against="ours with 1 x",
                detail={"rounds": {side: [turn.rate for turn in made] for side, made in results.items()}},
            )
        if wanted(f"memory-{work}"):
            yield _memory(work, factor, results)


def _memory(work: str, factor: str, results: dict[str, list[Measured]]) -> Row:
    def most(side: str, of: str) -> float:
        return float(max(getattr(turn, of) for turn in results[side]))

    return Row(
        f"memory-{work}",
        f"{_WORKS[work]}, {factor}: RssAnon of the Python workers",
        "bytes",
        most("many", "workers"),
        most("few", "workers"),
        _MEMORY_AT_LEAST,
        lower_is_better=True,
        against="ours with 1 x",
        detail={
            "java_heap_after_collection": {side: most(side, "heap") for side in results},
            "java_rss_anon": {side: most(side, "java") for side in results},
        },
    )


def start_rows(turns: Turns, wanted: Wanted) -> Iterator[Row]:
    """From nothing to the first count, a process each time, against a session nobody set up."""
    if not wanted("start"):
        return
    data = turns.dataset(turns.scale.slow_messages)

    def first_result(stock: bool) -> float:
        begin = time.perf_counter()
        with start_side(turns.cache, 2) as child:
            child.ask("start", stock=stock)
            turns.run_once(child, Spec("count", data))
            return time.perf_counter() - begin

    figures = turns.session.alternate(
        "first result", {"ours": lambda: first_result(False), "stock": lambda: first_result(True)}
    )
    yield Row(
        "start",
        "first result of a new session",
        "s",
        median(figures["ours"]),
        median(figures["stock"]),
        _START_AT_LEAST,
        lower_is_better=True,
        against="a stock session",
        detail={"rounds": figures, "very_first": turns.first_run},
    )
