"""The rows of the table, in groups whose sides take turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from penstock.bench.row import Row
from penstock.bench.session import median
from penstock.bench.spark.data import Dataset
from penstock.bench.spark.turns import Measured, Spec, Turns

Wanted = Callable[[str], bool]
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """A row: which side is ours, which the peer, and what their ratio should be."""

    key: str
    work: str
    ours: str
    peer: str
    against: str
    at_least: float | None = None


def compare(
    turns: Turns, name: str, sides: dict[str, Spec], plans: list[Plan], wanted: Wanted
) -> Iterator[Row]:
    """The rows that are wanted. Sides that none of them needs do not run."""
    chosen = [plan for plan in plans if wanted(plan.key)]
    needed = {side for plan in chosen for side in (plan.ours, plan.peer)}
    if not needed:
        return
    results = turns.compare(name, {side: spec for side, spec in sides.items() if side in needed})
    for plan in chosen:
        ours, peer = results[plan.ours], results[plan.peer]
        yield Row(
            plan.key,
            plan.work,
            "rows/s",
            rate(ours),
            rate(peer),
            plan.at_least,
            against=plan.against,
            detail={
                "mib_per_s": rate(ours) * sides[plan.ours].data.log_bytes / sides[plan.ours].data.rows / _MIB,
                "rounds": {"ours": [turn.rate for turn in ours], "peer": [turn.rate for turn in peer]},
                "seconds": {"ours": [turn.seconds for turn in ours], "peer": [turn.seconds for turn in peer]},
            },
        )


def rate(turns: list[Measured]) -> float:
    return median([turn.rate for turn in turns])


def read_rows(turns: Turns, wanted: Wanted) -> Iterator[Row]:
    """All columns, few columns, a count, a group-by."""
    if not any(
        map(
            wanted,
            (
                "all-tuples",
                "all-parquet",
                "narrow",
                "narrow-parquet",
                "count",
                "count-tuples",
                "group",
                "group-tuples",
            ),
        )
    ):
        return
    data, slow = turns.dataset(turns.scale.messages), partial(slow_data, turns)
    yield from compare(
        turns,
        "columns",
        {
            "all": Spec("all", data),
            "tuples": Spec("all", slow(), "tuples"),
            "parquet": Spec("all", data, "parquet"),
            "narrow": Spec("narrow", data),
            "narrow-parquet": Spec("narrow", data, "parquet"),
        },
        [
            Plan("all-tuples", "all columns to noop", "all", "tuples", "a source of tuples", 5.0),
            Plan("all-parquet", "all columns to noop", "all", "parquet", "Spark's Parquet reader", 0.75),
            Plan("narrow", "3 columns to noop", "narrow", "all", "ours, all columns", 1.5),
            Plan("narrow-parquet", "3 columns to noop", "narrow", "narrow-parquet", "Spark's Parquet reader"),
        ],
        wanted,
    )
    for work, text in (("count", "count()"), ("group", "group by topic and queue")):
        yield from compare(
            turns,
            text,
            {
                "ours": Spec(work, data),
                "tuples": Spec(work, slow(), "tuples"),
                "parquet": Spec(work, data, "parquet"),
            },
            [
                Plan(work, text, "ours", "parquet", "Spark's Parquet reader"),
                Plan(f"{work}-tuples", text, "ours", "tuples", "a source of tuples"),
            ],
            wanted,
        )


def slow_data(turns: Turns) -> Dataset:
    """Fewer messages, for peers that are so slow that their rate does not depend on it."""
    return turns.dataset(turns.scale.slow_messages)


def job_rows(turns: Turns, wanted: Wanted) -> Iterator[Row]:
    """Verify and export."""
    if not any(map(wanted, ("verify-sql", "verify-scanners", "verify-checkers", "export"))):
        return
    data = turns.dataset(turns.scale.messages)
    yield from compare(
        turns,
        "verify",
        {
            "ours": Spec("verify", data),
            "sql": Spec("verify-sql", data),
            "scanners": Spec("verify", data, "scanners"),
            "checkers": Spec("verify", data, "checkers"),
        },
        [
            Plan("verify-sql", "verify with CRC", "ours", "sql", "the same check with rows in SQL", 3.5),
            Plan(
                "verify-scanners", "verify with CRC", "ours", "scanners", "2 scanners of the log alone", 0.8
            ),
            Plan(
                "verify-checkers",
                "verify with CRC",
                "ours",
                "checkers",
                "2 scanners with the same check",
                0.8,
            ),
        ],
        wanted,
    )
    yield from compare(
        turns,
        "export",
        {"ours": Spec("export", data), "rows": Spec("export-rows", data)},
        [Plan("export", "export to Parquet by topic", "ours", "rows", "rows through the JVM writer", 2.5)],
        wanted,
    )


def write_rows(turns: Turns, wanted: Wanted) -> Iterator[Row]:
    """Into a store, and a stream out of one."""
    if not any(map(wanted, ("write-rows", "write-parquet", "stream"))):
        return
    data = turns.dataset(turns.scale.messages)
    yield from compare(
        turns,
        "write",
        {
            "ours": Spec("write", data),
            "rows": Spec("write", slow_data(turns), "rows"),
            "parquet": Spec("write", data, "parquet"),
        },
        [
            Plan("write-rows", "write into a store", "ours", "rows", "a row writer", 5.0),
            Plan("write-parquet", "write into a store", "ours", "parquet", "Spark's Parquet writer", 1.0),
        ],
        wanted,
    )
    yield from compare(
        turns,
        "stream",
        {"ours": Spec("stream", data), "parquet": Spec("stream", data, "parquet")},
        [
            Plan(
                "stream", "stream of everything to noop", "ours", "parquet", "Spark's stream of Parquet files"
            )
        ],
        wanted,
    )
