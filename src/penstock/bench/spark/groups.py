"""What is compared with what: the comparisons of the table."""

from __future__ import annotations

import os
from collections.abc import Iterator

from penstock.bench.spark.comparison import Comparison, Plan
from penstock.bench.spark.data import Dataset
from penstock.bench.spark.turns import Spec, Turns

_START_AT_LEAST = 1 / 0.6
_CORES_AT_LEAST = 1.7
_DATA_AT_LEAST = 0.85
_MEMORY_AT_LEAST = 0.8
_PARQUET, _TUPLES = "Spark's Parquet reader", "a source of tuples"


def comparisons(turns: Turns) -> Iterator[Comparison]:
    """All of them. Data is named here and made when it is first read."""
    data, few = turns.planned(turns.scale.messages), turns.planned(turns.scale.messages // turns.scale.times)
    long = turns.planned(turns.scale.long_messages, parquet=False)
    short = turns.planned(turns.scale.long_messages // turns.scale.times, parquet=False)
    yield start(few)
    yield columns(data, few, turns.scale.times)
    yield verify(data, long, short, turns.scale.times)
    yield export(data)
    yield write(data, few)
    yield network(data, few)
    yield from extras(data, few)


def start(few: Dataset) -> Comparison:
    """From nothing to the first count, a process each time, against a session nobody set up."""
    text = "first result of a new session"
    return Comparison(
        "start",
        {"ours": Spec("start", few), "stock": Spec("start", few, "stock")},
        [Plan("start", text, "ours", "stock", "a stock session", _START_AT_LEAST, "s")],
    )


def columns(data: Dataset, few: Dataset, times: int) -> Comparison:
    """All columns and few of them, to a sink that drops them."""
    text, less = "all columns to noop", "3 columns to noop"
    return Comparison(
        "columns",
        {
            "all": Spec("all", data),
            "tuples": Spec("all", few, "tuples"),
            "parquet": Spec("all", data, "parquet"),
            "narrow": Spec("narrow", data),
            "narrow-parquet": Spec("narrow", data, "parquet"),
            "one core": Spec("all", data, cores=1),
            "few": Spec("all", few),
        },
        [
            Plan("all-tuples", text, "all", "tuples", _TUPLES, 5.0),
            Plan("all-parquet", text, "all", "parquet", _PARQUET, 0.75),
            Plan("narrow", less, "narrow", "all", "ours, all columns", 1.5),
            Plan("narrow-parquet", less, "narrow", "narrow-parquet", _PARQUET),
            *_on_one_core("all", text, "all"),
            *_with_more("all", text, "all", times),
        ],
    )


def verify(data: Dataset, long: Dataset, short: Dataset, times: int) -> Comparison:
    """The whole check; the peer in SQL has fewer messages, its rate does not depend on it."""
    text = "verify with CRC"
    return Comparison(
        "verify",
        {
            "ours": Spec("verify", long),
            "sql": Spec("verify-sql", data),
            "checkers": Spec("verify", long, "checkers"),
            "scanners": Spec("verify", long, "scanners"),
            "one core": Spec("verify", long, cores=1),
            "few": Spec("verify", short),
        },
        [
            Plan("verify-sql", text, "ours", "sql", "the same check with rows in SQL", 3.5),
            Plan("verify-checkers", text, "ours", "checkers", "2 processes with the same check", 0.8),
            Plan("verify-scanners", text, "ours", "scanners", "2 processes: the log alone"),
            *_on_one_core("verify", text, "ours"),
            *_with_more("verify", text, "ours", times),
        ],
    )


def export(data: Dataset) -> Comparison:
    text = "export to Parquet by topic"
    return Comparison(
        "export",
        {
            "ours": Spec("export", data),
            "rows": Spec("export-rows", data),
            "one core": Spec("export", data, cores=1),
        },
        [
            Plan("export", text, "ours", "rows", "rows through the JVM writer", 2.5),
            *_on_one_core("export", text, "ours"),
        ],
    )


def write(data: Dataset, few: Dataset) -> Comparison:
    text = "write into a store"
    return Comparison(
        "write",
        {
            "ours": Spec("write", data),
            "rows": Spec("write", few, "rows"),
            "parquet": Spec("write", data, "parquet"),
            "one core": Spec("write", data, cores=1),
        },
        [
            Plan("write-rows", text, "ours", "rows", "a row writer", 5.0),
            Plan("write-parquet", text, "ours", "parquet", "Spark's Parquet writer", 1.0),
            *_on_one_core("write", text, "ours"),
        ],
    )


def network(data: Dataset, few: Dataset) -> Comparison:
    """From a broker that runs beside Spark, on the same two cores."""
    text = "all columns to noop, from a live broker"
    less = text.replace("all", "3")
    return Comparison(
        "network",
        {
            "live": Spec("all", data, "live"),
            "path": Spec("all", data),
            "loop": Spec("all", few, "loop"),
            "narrow": Spec("narrow", data, "live"),
        },
        [
            Plan("live-path", text, "live", "path", "ours from the store directory", 0.5),
            Plan("live-loop", text, "live", "loop", "a consumer's loop, a message at a time", 3.0),
            Plan("live-narrow", less, "narrow", "live", "ours, all columns"),
        ],
    )


def extras(data: Dataset, few: Dataset) -> Iterator[Comparison]:
    """Of these nothing is demanded."""
    for work, text in (("count", "count()"), ("group", "group by topic and queue")):
        yield Comparison(
            text,
            {
                "ours": Spec(work, data),
                "parquet": Spec(work, data, "parquet"),
                "tuples": Spec(work, few, "tuples"),
            },
            [
                Plan(work, text, "ours", "parquet", _PARQUET),
                Plan(f"{work}-tuples", text, "ours", "tuples", _TUPLES),
            ],
            once=True,
        )
    text = "stream of everything to noop"
    yield Comparison(
        "stream",
        {"ours": Spec("stream", data), "parquet": Spec("stream", data, "parquet")},
        [Plan("stream", text, "ours", "parquet", "Spark's stream of Parquet files")],
        once=True,
    )


def _on_one_core(work: str, text: str, ours: str) -> list[Plan]:
    if len(os.sched_getaffinity(0)) < 2:
        return []
    return [Plan(f"cores-{work}", f"{text}, 2 cores", ours, "one core", "ours on 1 core", _CORES_AT_LEAST)]


def _with_more(work: str, text: str, ours: str, times: int) -> list[Plan]:
    more = f"{text}, {times} x the data"
    memory = f"{more}: RssAnon of the largest Python worker"
    return [
        Plan(f"data-{work}", more, ours, "few", "ours with 1 x", _DATA_AT_LEAST),
        Plan(f"memory-{work}", memory, ours, "few", "ours with 1 x", _MEMORY_AT_LEAST, "bytes"),
    ]
