"""The rows about reading: get, decode, Arrow columns, query by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from penstock.bench.row import Row
from penstock.bench.session import Session, median
from penstock.bench.work import Work

_ARROW_ROWS = 8192
# A get answers with 32 messages unless the settings allow more.
_ARROW_CONFIG = {
    "maxTransferCountOnMessageInMemory": _ARROW_ROWS,
    "maxTransferBytesOnMessageInMemory": 64 << 20,
}

Question = tuple[str, dict[str, Any]]

# Key, text, unit, at least, what our side is asked, what the peer is asked.
_ROWS: tuple[tuple[str, str, str, float, Question, Question], ...] = (
    ("get-raw", "get, 32 a call, raw records, 128 B", "messages/s", 1.0, ("get", {}), ("get", {})),
    (
        "get-decode",
        "get and decode, 32 a call, 128 B",
        "messages/s",
        0.7,
        ("get", {"decode": True}),
        ("get", {"decode": True}),
    ),
    (
        "get-arrow",
        "get as Arrow columns, 128 B",
        "messages/s",
        2.0,
        ("columns", {"count": _ARROW_ROWS}),
        ("get", {"decode": True}),
    ),
    ("query", "query by key, 32 hits", "queries/s", 1.0, ("query", {}), ("query", {})),
)


def read_rows(session: Session, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """Each side reads a store that it wrote itself."""
    rows = [row for row in _ROWS if wanted(row[0])]
    if not rows:
        return
    work = Work(session.scale.read_messages, batch=64)
    with ExitStack() as stack:
        stores = {side: stack.enter_context(session.folder()) for side in session.sides()}
        for side, folder in stores.items():
            session.progress(f"reading: {side} writes {work.n} messages")
            with session.side(side) as child:
                child.ask("open", dir=str(folder), config=session.config("async"))
                child.ask("put", **work.command())
                child.ask("close")
        for key, text, unit, at_least, ours, theirs in rows:
            asked = {"ours": ours, "peer": theirs}
            figures = session.compare(text, partial(_read, session, stores, work, asked))
            yield Row(
                key,
                text,
                unit,
                median(figures["ours"]),
                median(figures["peer"]) if "peer" in figures else None,
                at_least,
                detail={"rounds": figures},
            )


def _read(
    session: Session, stores: Mapping[str, Path], work: Work, asked: Mapping[str, Question], side: str
) -> float:
    """Once unmeasured, once measured, both over everything."""
    do, arguments = asked[side]
    if do == "query":
        arguments = {"queries": session.scale.queries, "distinct": work.distinct}
    with session.side(side) as child:
        options = _ARROW_CONFIG if do == "columns" else {}
        child.ask("open", dir=str(stores[side]), config=session.config("async", **options))
        child.ask(do, **arguments)
        answer = child.ask(do, **arguments)
        child.ask("close")
    expected = session.scale.queries if do == "query" else work.n
    if answer["count"] != expected:
        raise AssertionError(f"{side} read {answer['count']} of {expected}")
    if do == "query" and answer["hits"] < 0.9 * 32 * expected:
        raise AssertionError(f"{side} found {answer['hits']} messages with {expected} queries")
    return float(answer["rate"])
