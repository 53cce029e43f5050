"""``penstock spark export``."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Any, Literal

import typer

from penstock.cli.sparkframe import (
    Brokers,
    Conf,
    DryRun,
    Json,
    Master,
    StorePlace,
    brokers_or,
    spark_session,
    task_bar,
)


def export(
    path: StorePlace,
    target: Annotated[
        str | None, typer.Argument(help="Folder for the files, or a URI that every worker can write.")
    ] = None,
    namesrv: Brokers = None,
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic. Repeatable.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Stored at this time or later: milliseconds or ISO 8601.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Stored before this time.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Everything anew, not only what came since.")] = False,
    column: Annotated[list[str] | None, typer.Option(help="Only this column. Repeatable.")] = None,
    format: Annotated[Literal["parquet", "delta"], typer.Option(help="Delta needs delta-spark.")] = "parquet",
    compression: Annotated[
        Literal["snappy", "zstd", "gzip", "lz4", "none"], typer.Option(help="Of the columns in the files.")
    ] = "snappy",
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Go on when messages were removed before they were exported.")
    ] = False,
    split_mib: Annotated[int, typer.Option(min=1, help="Log read by one task, in MiB.")] = 128,
    master: Master = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Messages as Parquet by topic and day: what came since the last run, or a range anew.

    With --namesrv from brokers that run: penstock spark export --namesrv 127.0.0.1:9876 parquet
    """
    from penstock.cli.output import size_text, write_json
    from penstock.spark.jobs.export import check_export
    from penstock.spark.jobs.export import export as run

    path, target = brokers_or(namesrv, path, target)
    check_export(path, format, compression)  # before Spark starts, which takes long
    opened: Any = (
        nullcontext() if dry_run else spark_session(master, conf, name="export")
    )  # counting needs none
    with (
        opened as spark,
        task_bar("export", shown=not as_json) as progress,
    ):
        result = run(
            spark,
            path,
            target,
            topics=topic or (),
            since=since,
            until=until,
            full=full,
            columns=column or None,
            format=format,
            compression=compression,
            split_bytes=split_mib << 20,
            fail_on_data_loss=not allow_loss,
            dry_run=dry_run,
            progress=progress,
        )
    if as_json:
        write_json(result.as_dict())
        return
    if result.resumed:
        print("finished an earlier export that was stopped")
    for lost_topic, queue, start, end in result.lost:
        print(f"lost: {lost_topic}-{queue} from {start} to {end}")
    what = "would export" if dry_run else "exported"
    print(
        f"{what} {result.rows} messages of {len(result.ranges)} queues"
        + ("" if dry_run else f" into {len(result.files)} files ({size_text(result.bytes)})")
        + (f", replacing rows of {len(result.replaced_files)} files" if result.replaced_files else "")
    )
