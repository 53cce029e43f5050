"""``penstock sql``: Spark SQL over a store, topics as views."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any

import typer

from penstock.cli.sparkframe import (
    Brokers,
    Conf,
    Json,
    Master,
    StorePlace,
    brokers_or,
    look_at,
    spark_session,
)

SHOWN = 1000


def sql(
    path: StorePlace,
    query: Annotated[
        str | None, typer.Argument(help="A query. Every topic is a table; `messages` is all of them.")
    ] = None,
    namesrv: Brokers = None,
    master: Master = None,
    conf: Conf = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="NAME=VALUE", help="An option of the source, as startingTimestamp=…"
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Print at most so many rows; 0: all.")] = SHOWN,
    as_json: Json = False,
) -> None:
    """Ask a store, or with --namesrv brokers, in SQL. Prints a table, or with --json an object a row.

    penstock sql demo-store "select tags, count(*) from orders group by tags"
    """
    from penstock.cli.output import print_table, write_json
    from penstock.cli.sparkframe import settings_of
    from penstock.spark.jobs.job import told_errors
    from penstock.spark.sql import sql as ask

    options = settings_of("--option", option or [])
    path, query = brokers_or(namesrv, path, query)
    look_at(path, brokers=True)  # before Spark starts, which takes long
    with spark_session(master, conf, name="sql") as spark, told_errors():
        frame = ask(spark, path, query, options=options)
        found = frame.toLocalIterator(prefetchPartitions=True)
        rows = list(islice(found, limit + 1)) if limit else found
        if as_json:
            for row in islice(rows, limit or None):
                write_json(_plain(row.asDict(recursive=True)))
            sys.stdout.flush()
        else:
            shown = list(islice(rows, limit or None))
            print_table("", frame.columns, [[_cell(value) for value in row] for row in shown])
        if limit and isinstance(rows, list) and len(rows) > limit:
            print(f"the first {limit} rows; --limit 0 for all", file=sys.stderr)


def _plain(value: Any) -> Any:
    """A value of Spark's for JSON: times in UTC, bytes as they are (they become base64)."""
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def _cell(value: Any) -> str:
    from penstock.cli.output import preview

    if isinstance(value, bytes | bytearray):
        return preview(value)
    plain = _plain(value)
    return "" if plain is None else str(plain)
