"""``penstock spark compact``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from penstock.cli.sparkframe import Conf, DryRun, Json, Master, StorePlace, job_session

Fate = Literal["keep", "drop"]


def compact(
    path: StorePlace,
    target: Annotated[
        Path | None, typer.Argument(help="Where the new store goes: a directory that is not there yet.")
    ] = None,
    topic: Annotated[list[str] | None, typer.Option(help="A topic to compact. Repeatable.")] = None,
    tombstone_hours: Annotated[
        float, typer.Option(min=0, help="Messages with an empty body go too when they are older.")
    ] = 24,
    keyless: Annotated[Fate, typer.Option(help="What becomes of messages without a key.")] = "keep",
    others: Annotated[Fate, typer.Option(help="What becomes of the other topics.")] = "keep",
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Put the result where PATH is, and keep PATH beside it.")
    ] = False,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    split_mib: Annotated[int, typer.Option(min=1, help="Log read by one task, in MiB.")] = 128,
    as_json: Json = False,
) -> None:
    """Leave the last message of each key, in a new store with the same queue offsets."""
    from penstock.cli.output import safe, size_text, write_json
    from penstock.spark.jobs.compact import compact as run

    with job_session("compact", master, conf, shown=not as_json, path=path) as (spark, progress):
        result = run(
            spark,
            path,
            target,
            topics=topic or [],
            tombstone_age_ms=round(tombstone_hours * 3_600_000),
            keyless=keyless,
            others=others,
            in_place=in_place,
            dry_run=dry_run,
            split_bytes=split_mib << 20,
            progress=progress,
        )
    if as_json:
        write_json(result.as_dict())
        return
    gone = result.records_before - result.records_after
    print(
        f"{'would keep' if dry_run else 'kept'} {result.records_after} of {result.records_before} records"
        f" ({size_text(result.bytes_after)} of {size_text(result.bytes_before)});"
        f" {gone} replaced or deleted; {result.keys} keys,"
        f" {result.tombstones_kept} deleted ones still marked, {result.tombstones_dropped} forgotten"
    )
    if result.target:
        print(safe(f"the store is {result.target}"))
    if result.replaced:
        print(safe(f"what was there is {result.replaced}"))
