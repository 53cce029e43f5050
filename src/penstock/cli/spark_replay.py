"""``penstock spark replay``."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.sparkframe import Conf, DryRun, Json, Master, brokers_or, job_session, written_text
from penstock.errors import UsageError


def replay(
    path: Annotated[
        str | None,
        typer.Argument(metavar="[PATH]", help="Store to read from.  [default: the brokers of --namesrv]"),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="STORE", help="Store to write to.  [default: the same]")
    ] = None,
    namesrv: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Send to brokers that run, by their name server."),
    ] = None,
    topic: Annotated[list[str] | None, typer.Option(help="Topic to replay. Repeatable.")] = None,
    dead_letters: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Replay the dead letters of this group.")
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="TOPIC", help="Topic that the copies go to.")] = None,
    since: Annotated[str | None, typer.Option(help="Stored at or after this time (ISO-8601 or ms).")] = None,
    until: Annotated[str | None, typer.Option(help="Stored before this time.")] = None,
    tags: Annotated[str | None, typer.Option(help="As consumers give them: 'a || b'.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="Only messages with this key. Repeatable.")] = None,
    where: Annotated[str | None, typer.Option(metavar="SQL", help="A condition over the columns.")] = None,
    name: Annotated[str, typer.Option(help="Each message arrives once for each name.")] = "replay",
    rate: Annotated[float | None, typer.Option(help="Messages a second, at most.")] = None,
    master: Master = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Write messages again, to another topic, store or broker; a repetition adds only what is missing."""
    from penstock.cli.output import write_json
    from penstock.spark.jobs.replay import replay as run

    if namesrv is not None:
        if target is not None:
            raise UsageError("--target and --namesrv name two places", hint="send the copies to one of them")
        target = f"namesrv://{namesrv}"
    if path is None:
        (path,) = brokers_or(namesrv, None)
    session = job_session("replay", master, conf, shown=not as_json, path=path, brokers=True)
    with session as (spark, progress):
        result = run(
            spark,
            path,
            target,
            topics=topic or None,
            dead_letters=dead_letters,
            to=to,
            since=since,
            until=until,
            tags=tags,
            keys=key or None,
            where=where,
            name=name,
            rate=rate,
            dry_run=dry_run,
            progress=progress,
        )
    if as_json:
        write_json(result.as_dict())
    else:
        if result.homeless:
            print(f"{result.homeless} dead letters do not say where they came from: send them --to a topic")
        print(
            f"{result.selected} messages selected, {result.present} of them there already,"
            f" {result.written} {written_text(result)}"
        )
