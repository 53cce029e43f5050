"""``penstock spark verify``."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.sparkframe import Conf, Json, Master, StorePlace, job_session


def verify(
    path: StorePlace,
    master: Master = None,
    conf: Conf = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many faults.")] = 1000,
    split_mib: Annotated[
        int | None, typer.Option(min=1, help="Log read by one task, in MiB; as fits the cores.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every record, queue unit, index chain and the checkpoint. Exit code 1 if anything is wrong."""
    from penstock.cli.output import safe, size_text, write_json
    from penstock.spark.jobs.verify import verify as run

    with job_session("verify", master, conf, shown=not as_json, path=path) as (spark, progress):
        split_bytes = None if split_mib is None else split_mib << 20
        result = run(spark, path, split_bytes=split_bytes, limit=limit, progress=progress)
    report = result.report
    if as_json:
        write_json(result.as_dict())
    else:
        for fault in report.faults:
            print(safe(f"fault  {fault.kind:<16} {fault}"))
        for note in report.notes:
            print(safe(f"note   {note.kind:<16} {note}"))
        accounted = sum(file.accounted for file in result.files)
        print(
            f"{report.records} records ({size_text(report.log_end - report.log_begin)}),"
            f" {report.units} units in {report.queues} queues,"
            f" {report.index_entries} index entries in {report.index_files} files;"
            f" {accounted} of {sum(file.size for file in result.files)} bytes of the log accounted for;"
            f" {result.parts} tasks: " + ("healthy" if report.healthy else f"{report.fault_count} faults")
        )
    raise typer.Exit(0 if report.healthy else 1)
