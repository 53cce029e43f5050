"""``penstock store``: look at a store directory, check it, mend it, copy it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.config import StoreConfig

app = typer.Typer(help="Look at a store directory, check it, mend it, copy it.", no_args_is_help=True)

StorePath = Annotated[Path, typer.Argument(metavar="PATH", help="Store directory, Penstock's or RocketMQ's.")]
Json = Annotated[bool, typer.Option("--json", help="For programs.")]


@app.callback()
def store() -> None:
    """Look at a store directory, check it, mend it, copy it."""


def _settings() -> StoreConfig:
    """Of the environment and the file it names: a log that RocketMQ keeps in several folders is found so."""
    from penstock.config import load_config

    return load_config()[0]


@app.command("info")
def info(path: StorePath, as_json: Json = False) -> None:
    """What is in it: log, topics, queues, index, checkpoint."""
    from penstock.cli.output import print_facts, print_table, size_text, time_text, write_json
    from penstock.cli.summary import summarise

    summary = summarise(str(path), _settings())
    if as_json:
        write_json(summary)
        return
    log, index = summary["log"], summary["index"]
    print_facts(
        summary["path"],
        {
            "state": summary["state"],
            "log": f"{log['begin']} to {log['end']} ({size_text(log['end'] - log['begin'])}),"
            f" {log['files']} files of {size_text(log['segment_size'])}",
            **({"folders": ", ".join(log["folders"])} if len(log["folders"]) > 1 else {}),
            "queues": f"{len(summary['queues'])} of {len(summary['topics'])} topics",
            "index": f"{index['entries']} entries in {index['files']} files",
            "checkpoint": ", ".join(
                f"{name} {time_text(value) if name.endswith('timestamp') else value}"
                for name, value in summary["checkpoint"].items()
                if value
            )
            or "empty",
        },
    )
    print_table(
        "queues",
        ["topic", "queue", "min", "max", "messages"],
        [
            [q["topic"], q["queue_id"], q["min_offset"], q["max_offset"], q["max_offset"] - q["min_offset"]]
            for q in summary["queues"]
        ],
    )
    for fault in summary["faults"]:
        print(f"fault: {fault}")


@app.command("verify")
def verify(
    path: StorePath,
    as_json: Json = False,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many faults.")] = 1000,
) -> None:
    """Check every record, queue unit, index chain and the checkpoint. Exit code 1 if anything is wrong."""
    from penstock.cli.output import safe, size_text, write_json
    from penstock.cli.progress import progress_bar
    from penstock.store.verify import verify_store

    with progress_bar("verify", shown=not as_json) as progress:
        report = verify_store(str(path), config=_settings(), progress=progress, limit=limit)
    if as_json:
        write_json(report.as_dict())
    else:
        for fault in report.faults:
            print(safe(f"fault  {fault.kind:<16} {fault}"))
        for note in report.notes:
            print(safe(f"note   {note.kind:<16} {note}"))
        print(
            f"{report.records} records ({size_text(report.log_end - report.log_begin)}),"
            f" {report.units} units in {report.queues} queues,"
            f" {report.index_entries} index entries in {report.index_files} files: "
            + ("healthy" if report.healthy else f"{report.fault_count} faults")
        )
    raise typer.Exit(0 if report.healthy else 1)


@app.command("dump")
def dump(
    path: StorePath,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue.")] = None,
    start: Annotated[int | None, typer.Option("--from", min=0, help="From this physical offset on.")] = None,
    count: Annotated[int | None, typer.Option(min=0, help="At most so many messages.")] = None,
    as_json: Json = False,
) -> None:
    """Every stored message in the order of the log. Goes around damage; exit code 1 if there was any."""
    import json

    from penstock.cli.output import write_message
    from penstock.store.directory import StoreDirectory
    from penstock.store.fault import FaultList
    from penstock.store.scan import LogScanner, record_boundary

    directory = StoreDirectory(None, str(path), _settings())
    faults = FaultList(100)
    begin = None if start is None else record_boundary(directory, start)
    scanner = LogScanner(directory, begin=begin, on_fault=faults)
    left = -1 if count is None else count
    if left:
        for message in scanner.messages():
            if (topic is None or message.topic == topic) and queue in (None, message.queue_id):
                write_message(message, as_json=as_json)
                left -= 1
                if left == 0:
                    break
    sys.stdout.flush()
    for fault in faults.faults:
        print(json.dumps(fault.as_dict()) if as_json else f"fault: {fault}", file=sys.stderr)
    raise typer.Exit(1 if faults.fault_count else 0)


@app.command("get")
def get(
    path: StorePath,
    topic: Annotated[str, typer.Argument(help="Topic.")],
    queue: Annotated[int, typer.Argument(min=0, help="Queue of the topic.")],
    offset: Annotated[int, typer.Argument(min=0, help="Queue offset of the first message.")],
    count: Annotated[int, typer.Argument(min=1, help="At most so many.")] = 32,
    tags: Annotated[str | None, typer.Option(help="Only these tags, as in 'a || b'.")] = None,
    as_json: Json = False,
) -> None:
    """Messages of one queue, with RocketMQ's status and the offset to go on with."""
    from penstock.cli.output import message_line, message_object, write_json
    from penstock.store.readonly import ReadOnlyStore

    with ReadOnlyStore(str(path), config=_settings()) as opened:
        result = opened.get(topic, queue, offset, count, tags=tags)
        if as_json:
            write_json(
                {
                    "status": result.status,
                    "next_begin_offset": result.next_begin_offset,
                    "min_offset": result.min_offset,
                    "max_offset": result.max_offset,
                    "messages": [message_object(message) for message in result.messages],
                }
            )
            return
        for message in result.messages:
            print(message_line(message))
        print(
            f"{result.status}, next offset {result.next_begin_offset},"
            f" queue holds {result.min_offset} to {result.max_offset}"
        )


@app.command("find")
def find(
    path: StorePath,
    topic: Annotated[str, typer.Argument(help="Topic.")],
    key: Annotated[str, typer.Argument(help="Key or unique key of the message.")],
    most: Annotated[int, typer.Option("--max", min=1, help="Look at no more places of the index.")] = 64,
    begin: Annotated[int, typer.Option(help="Stored at this time or later, in milliseconds.")] = 0,
    end: Annotated[int | None, typer.Option(help="Stored at this time or earlier.")] = None,
    tags: Annotated[bool, typer.Option("--tags", help="The key is a tag.")] = False,
    as_json: Json = False,
) -> None:
    """Messages by key, through the index."""
    from penstock.cli.output import write_message
    from penstock.store.readonly import ReadOnlyStore

    with ReadOnlyStore(str(path), config=_settings()) as opened:
        kind = "T" if tags else None
        for message in opened.query(topic, key, max=most, begin=begin, end=end, index_type=kind):
            write_message(message, as_json=as_json)


@app.command("repair")
def repair(
    path: StorePath,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Cut a damaged tail, contain damage inside the log, rebuild queues and index.

    Bytes that are removed are kept under penstock.damaged in the store.
    """
    from penstock.cli.output import safe, write_json
    from penstock.cli.progress import progress_bar
    from penstock.store.repair import repair_store

    with progress_bar("verify", shown=not as_json) as progress:
        report = repair_store(str(path), config=_settings(), dry_run=dry_run, progress=progress)
    if as_json:
        write_json(report.as_dict())
    else:
        for action in report.actions:
            print(safe(f"{'would ' if dry_run else ''}{action}"))
        if not report.actions:
            print("nothing to do: healthy")
        elif not dry_run:
            print("healthy now" if report.healthy else "still not healthy: see `penstock store verify`")
    raise typer.Exit(0 if report.healthy else 1)


@app.command("backup")
def backup(
    path: StorePath,
    target: Annotated[
        Path, typer.Argument(help="Where the copy goes: a directory that is not there yet, or empty.")
    ],
    as_json: Json = False,
) -> None:
    """A consistent copy, also while the store is in use: everything up to what is on disk now."""
    from penstock.cli.output import size_text, write_json
    from penstock.cli.progress import progress_bar
    from penstock.store.backup import backup_store

    with progress_bar("copy", shown=not as_json) as progress:
        report = backup_store(str(path), str(target), config=_settings(), progress=progress)
    if as_json:
        write_json(report.as_dict())
    else:
        print(f"copied up to {report.end_offset}: {size_text(report.bytes)} in {report.files} files")
