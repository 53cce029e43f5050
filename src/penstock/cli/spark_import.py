"""``penstock spark import``."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.sparkframe import Conf, DryRun, Json, Master, job_session, settings_of, written_text


def import_messages(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Parquet file or folder, or a URI of one.")],
    target: Annotated[str, typer.Argument(metavar="STORE", help="Store directory; made if it is not there.")],
    topic: Annotated[str | None, typer.Option(help="For rows without a column topic.")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SQL", help="A column from an expression, as body=payload. Repeatable."),
    ] = None,
    json_body: Annotated[bool, typer.Option(help="Make the body of all other columns, as JSON.")] = False,
    order_by: Annotated[str | None, typer.Option(help="Column that gives the order within a queue.")] = None,
    queues: Annotated[int, typer.Option(min=1, help="Queues to spread rows over that name none.")] = 4,
    write_id: Annotated[
        str | None, typer.Option("--id", help="Name of this import: repeated, it is made once.")
    ] = None,
    source_format: Annotated[str, typer.Option("--format", help="Any that Spark reads.")] = "parquet",
    master: Master = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Write the rows of Parquet files into a store, all at once."""
    from penstock.cli.output import write_json
    from penstock.spark.jobs.importing import import_messages as run

    with job_session("import", master, conf, shown=not as_json) as (spark, progress):
        result = run(
            spark,
            source,
            target,
            topic=topic,
            columns=settings_of("--column", column or []),
            json_body=json_body,
            order_by=order_by,
            queues=queues,
            write_id=write_id,
            source_format=source_format,
            dry_run=dry_run,
            progress=progress,
        )
    if as_json:
        write_json(result.as_dict())
    else:
        left = f"; left out: {', '.join(result.left_out)}" if result.left_out else ""
        print(f"{result.rows} messages {written_text(result)}{left}")
