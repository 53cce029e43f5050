"""``penstock bench ...``: its options. Everything heavy is imported when a bench runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(
    help="Measure the store against RocketMQ's own, SQLite and the bare disk; the pipeline against Spark's.",
    no_args_is_help=True,
)


Peer = Literal["rocketmq", "none"]
Rounds = Annotated[int | None, typer.Option(min=1, help="Turns of each side; the median counts.")]
Quick = Annotated[bool, typer.Option(help="Tiny sizes, one round: shows that it runs.")]
Rows = Annotated[
    list[str] | None, typer.Option(help="Only rows whose key fits, '*' for any. Can be repeated.")
]
Directory = Annotated[
    Path | None, typer.Option("--dir", help="Where to work; decides which disk is measured.")
]
AsJson = Annotated[bool, typer.Option("--json", help="The report as JSON.")]
Plot = Annotated[Path | None, typer.Option(help="Write the ratios as a picture (PNG).")]


@app.callback()
def bench() -> None:
    """Benchmarks. Run them on an otherwise idle machine."""


@app.command("store")
def store(
    peer: Annotated[
        Peer,
        typer.Option(help="Compare with RocketMQ's Java store (needs Java 17 and Maven), or with nothing."),
    ] = "none",
    quick: Quick = False,
    rounds: Rounds = None,
    rows: Rows = None,
    directory: Directory = None,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """The same work through our store and through RocketMQ's, in one run, in turns."""
    from penstock.bench.store import bench_store

    code = bench_store(
        peer=peer,
        quick=quick,
        rounds=rounds,
        patterns=rows,
        directory=directory,
        as_json=as_json,
        plot=plot,
    )
    raise typer.Exit(code)


@app.command("spark")
def spark(
    quick: Quick = False,
    rounds: Rounds = None,
    rows: Rows = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where to work: some gigabytes, in the page cache.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Begin no second round that ends later (19).")
    ] = None,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """The pipeline beside Spark's own Parquet and a plain Python source, a fresh session for each side."""
    from penstock.bench.spark.bench import bench_spark

    code = bench_spark(
        quick=quick,
        rounds=rounds,
        patterns=rows,
        directory=directory,
        minutes=minutes,
        as_json=as_json,
        plot=plot,
    )
    raise typer.Exit(code)


@app.command("broker")
def broker(
    peer: Annotated[
        Peer,
        typer.Option(help="Compare with RocketMQ's broker (needs Java 17 and Maven), or with nothing."),
    ] = "none",
    quick: Quick = False,
    rounds: Rounds = None,
    rows: Rows = None,
    directory: Directory = None,
    as_json: AsJson = False,
    plot: Plot = None,
    pending_timers: Annotated[
        int, typer.Option(min=0, help="Also: memory with so many timers pending (10000000 takes long).")
    ] = 0,
) -> None:
    """One Java client against our broker, RocketMQ's and one that stores nothing, in turns."""
    from penstock.bench.broker.bench import bench_broker

    code = bench_broker(
        peer=peer,
        quick=quick,
        rounds=rounds,
        patterns=rows,
        directory=directory,
        as_json=as_json,
        plot=plot,
        pending_timers=pending_timers,
    )
    raise typer.Exit(code)
