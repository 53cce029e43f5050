"""``penstock spark rebuild``."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.sparkframe import Conf, DryRun, Json, Master, StorePlace, job_session


def rebuild(
    path: StorePlace,
    queues: Annotated[bool, typer.Option("--queues/--no-queues", help="Build the consume queues.")] = True,
    index: Annotated[
        bool | None,
        typer.Option("--index/--no-index", help="Build the key index. [default: if there is one]"),
    ] = None,
    split_mib: Annotated[int, typer.Option(min=1, help="Log read by one task, in MiB.")] = 128,
    master: Master = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Consume queues and key index anew from the log of a closed store."""
    from penstock.cli.output import safe, write_json
    from penstock.spark.jobs.rebuild import rebuild as run

    with job_session("rebuild", master, conf, shown=not as_json, path=path) as (spark, progress):
        result = run(
            spark,
            path,
            queues=queues,
            index=index,
            split_bytes=split_mib << 20,
            dry_run=dry_run,
            progress=progress,
        )
    if as_json:
        write_json(result.as_dict())
        return
    for name in result.changed:
        print(safe(f"{'would replace' if dry_run else 'replaced'} {name}"))
    print(
        f"{result.records} records: {result.units} units in {result.queues} queues,"
        f" {result.index_entries} entries in {result.index_files} index files; "
        + (f"{len(result.changed)} files differed" if result.changed else "nothing to change")
    )
