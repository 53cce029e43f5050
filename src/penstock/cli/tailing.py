"""``penstock tail``: follow a topic."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

_LOOK_EVERY = 0.2


def tail(
    topic: Annotated[str, typer.Argument(help="Topic to follow.")],
    store: Annotated[
        Path, typer.Option("--store", help="Store directory; another process may be writing it.")
    ],
    start: Annotated[
        str, typer.Option("--from", help="earliest, latest, or a queue offset. A group goes on where it was.")
    ] = "earliest",
    group: Annotated[
        str | None,
        typer.Option(
            help="Remember how far this group came (needs the store for itself: offsets are written)."
        ),
    ] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many messages.")] = None,
    follow: Annotated[bool, typer.Option(help="Wait for more at the end.")] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="An object a line, as `store dump` prints.")
    ] = False,
) -> None:
    """Print the messages of a topic as they arrive."""
    from penstock.cli.output import write_message

    place = _place(start)
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
