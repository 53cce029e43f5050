"""``penstock spark trace``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.cli.sparkframe import Conf, Json, Master, StorePlace, job_session

if TYPE_CHECKING:
    from penstock.spark.jobs.trace import TraceResult


def trace(
    path: StorePlace,
    key: Annotated[str, typer.Argument(help="A key, a unique key or a message id.")],
    via: Annotated[
        Literal["auto", "index", "scan"],
        typer.Option(help="Ask the index, or look at every record. auto: the index where it can know."),
    ] = "auto",
    master: Master = None,
    conf: Conf = None,
    split_mib: Annotated[int, typer.Option(min=1, help="Log read by one task, in MiB.")] = 128,
    as_json: Json = False,
) -> None:
    """Everything that became of a message: half, op, delay, retry, dead letter. Exit code 1 if there is
    none.
    """
    from penstock.cli.output import write_json
    from penstock.spark.jobs.trace import trace as run
    from penstock.spark.jobs.trace import trace_by_index

    # Spark takes seconds to start, and the index answers at once.
    result = None if via == "scan" else trace_by_index(path, key, sure=via == "auto")
    if result is None:
        with job_session("trace", master, conf, shown=not as_json, path=path) as (spark, progress):
            result = run(spark, path, key, via="scan", split_bytes=split_mib << 20, progress=progress)
    if as_json:
        write_json(result.as_dict())
    else:
        _print(result)
    raise typer.Exit(0 if result.steps else 1)


def _print(result: TraceResult) -> None:
    from penstock.cli.output import safe, time_text

    for message in result.messages:
        print(safe(message))
        for step in result.steps:
            if step.message != message:
                continue
            place = f"{step.topic}-{step.queue_id}@{step.queue_offset}"
            print(safe(f"  {time_text(step.store_ms)}  {step.kind:<11}  {place}"))
            print(safe(f"      {step.meaning}"))
            if step.consumed_by:
                print(safe(f"      consumed by {', '.join(step.consumed_by)}"))
    steps = len(result.steps)
    print(f"{steps} steps of {len(result.messages)} messages, found by {result.via}")
