"""``penstock tail``: follow a topic of a running broker, or of a store."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.network import NameServer

_LOOK_EVERY = 0.2


def tail(
    topic: Annotated[str, typer.Argument(help="Topic to follow.")],
    store: Annotated[
        Path | None,
        typer.Option(
            "--store", help="From this store directory, without a broker; another process may be writing it."
        ),
    ] = None,
    namesrv: NameServer = None,
    start: Annotated[
        str, typer.Option("--from", help="earliest, latest, or a queue offset. A group goes on where it was.")
    ] = "earliest",
    group: Annotated[
        str | None,
        typer.Option(
            help="Remember how far this group came (of a store: it needs it for itself, offsets are written)."
        ),
    ] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue.")] = None,
    tags: Annotated[
        str | None, typer.Option(help="Only these tags, as in 'a || b'. From a broker only.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many messages.")] = None,
    follow: Annotated[bool, typer.Option(help="Wait for more at the end.")] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="An object a line, as `store dump` prints.")
    ] = False,
) -> None:
    """Print the messages of a topic as they arrive."""
    from penstock.cli.output import write_message
    from penstock.errors import UsageError

    place = _place(start)
    if store is None:
        _tail_broker(namesrv, topic, place, group, queue, tags or "*", count, follow, as_json)
        return
    if namesrv is not None or tags is not None:
        raise UsageError("--namesrv and --tags are of a broker, --store goes without one")
    shown = 0
    try:
        for message, acknowledge in _messages(str(store), topic, place, group, queue, follow):
            write_message(message, as_json=as_json)
            sys.stdout.flush()
            acknowledge()
            shown += 1
            if shown == count:
                break
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _tail_broker(
    namesrv: str | None,
    topic: str,
    place: int | str,
    group: str | None,
    queue: int | None,
    tags: str,
    count: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    from penstock.cli.network import run
    from penstock.cli.networktail import tail_group, tail_queues

    if group is None:
        work = tail_queues(
            namesrv,
            topic,
            start=place,
            queue=queue,
            tags=tags,
            count=count,
            follow=follow,
            as_json=as_json,
        )
    elif queue is not None or isinstance(place, int) or not follow:
        raise typer.BadParameter(
            "a group reads all queues, from where it was, and waits for more", param_hint="--group"
        )
    else:
        work = tail_group(namesrv, topic, group, start=place, tags=tags, count=count, as_json=as_json)
    try:
        run(work)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _place(start: str) -> int | str:
    if start in ("earliest", "latest"):
        return start
    if start.isascii() and start.isdigit():
        return int(start)
    raise typer.BadParameter(f"{start!r} is neither earliest, latest nor a queue offset", param_hint="--from")


def _messages(
    path: str, topic: str, place: int | str, group: str | None, queue: int | None, follow: bool
) -> Iterator[tuple[Any, Callable[[], None]]]:
    """Messages, each with what to call when it was printed."""
    if group is None:
        for message in _read_only(path, topic, place, queue, follow):
            yield message, lambda: None
        return
    if queue is not None or isinstance(place, int):
        raise typer.BadParameter("a group reads all queues, from where it was", param_hint="--group")
    from penstock.config import load_config
    from penstock.store.opening import open_writable
    from penstock.store.sizes import require_store

    with open_writable(path, config=load_config()[0], create=False) as opened:
        require_store(opened.storage, path)
        with opened.reader(topic, group, wait=follow, start=place) as reader:
            for message in reader:
                yield message, reader.commit


def _read_only(path: str, topic: str, place: int | str, queue: int | None, follow: bool) -> Iterator[Any]:
    from penstock.config import load_config
    from penstock.store.readonly import ReadOnlyStore

    with ReadOnlyStore(path, config=load_config()[0]) as opened:
        messages = opened.follow(topic, queue, offset=place, wait=False)
        while True:
            yield from messages
            if not follow:
                return
            time.sleep(_LOOK_EVERY)
            opened.refresh()
