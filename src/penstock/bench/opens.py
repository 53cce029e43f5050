"""The rows about opening: after a close, after a kill, rebuilding, growing logs, many queues, memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from penstock.bench.row import Row
from penstock.bench.session import Session, median
from penstock.bench.work import Work

_RECORD = 310
_BLOCK = 4096
_MEMORY_LIMIT = 100 << 20
_OPEN_LIMIT = 2.0


def open_rows(session: Session, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """After a clean close, after a kill, and with queues and index gone."""
    keys = {
        "open-clean": ("open after a clean close", "open", 5.0),
        "open-killed": ("open after a kill", "open", 4.0),
        "rebuild": ("rebuild of all queues and the index", "rebuild", 5.0),
    }
    chosen = {key: row for key, row in keys.items() if wanted(key)}
    if not chosen:
        return
    size = f"{session.scale.log_bytes / 1e9:.1f} GB log"
    with ExitStack() as stack:
        clean: dict[str, Path] = {}
        killed: dict[str, Path] = {}
        for side in session.sides():
            clean[side] = stack.enter_context(session.folder())
            write_log(session, side, clean[side], kill=False)
            if "open-killed" in chosen:
                killed[side] = stack.enter_context(session.folder())
                write_log(session, side, killed[side], kill=True)
        for key, (text, do, at_least) in chosen.items():
            stores = killed if key == "open-killed" else clean
            if session.with_peer:
                # Once unmeasured: the JVM compiles what recovery needs.
                _open_copy(session, "peer", stores["peer"], do)
            figures = session.compare(text, partial(_open_side, session, stores, do))
            yield Row(
                key,
                f"{text}, {size}",
                "s",
                median(figures["ours"]),
                median(figures["peer"]) if "peer" in figures else None,
                at_least,
                lower_is_better=True,
                detail={"rounds": figures},
            )


def write_log(session: Session, side: str, folder: Path, *, kill: bool, **options: Any) -> dict[str, Any]:
    """A log of the scale's size, in four parts; RssAnon after each. Closed, or killed when all is visible."""
    session.progress(f"{side} writes {session.scale.log_bytes / 1e9:.2f} GB")
    part = Work(max(64, session.scale.log_bytes // _RECORD // 4), batch=64)
    memory = []
    with session.side(side) as child:
        child.ask("open", dir=str(folder), config=session.config("async", **options))
        for _ in range(4):
            memory.append(child.ask("put", **part.command())["rss_anon"])
        answer = child.ask("kill" if kill else "close")
        if kill:
            child.wait_killed()
    return {**answer, "memory": memory}


def _open_copy(session: Session, side: str, source: Path, do: str, **options: Any) -> float:
    with session.copy(source) as folder, session.side(side) as child:
        answer = child.ask(do, dir=str(folder), config=session.config("async", **options), wait=True)
        child.ask("close")
    return float(answer["seconds"])


def _open_side(session: Session, stores: Mapping[str, Path], do: str, side: str) -> float:
    return _open_copy(session, side, stores[side], do)


def growth_rows(session: Session, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """Our opening time with 8 segments against 1: after a close, and after a kill soon after a checkpoint."""
    options = {"mappedFileSizeCommitLog": session.scale.segment_bytes}
    for killed in (False, True):
        key = "growth-killed" if killed else "growth-clean"
        if not wanted(key):
            continue
        text = f"open after a {'kill' if killed else 'clean close'}, log of 8 segments against 1"
        with session.folder() as one, session.folder() as eight:
            for segments, folder in ((1, one), (8, eight)):
                session.progress(f"{text}: writing {segments}")
                _write_segments(session, folder, segments, kill=killed)
            turns = {
                "8": partial(_open_copy, session, "ours", eight, "open", **options),
                "1": partial(_open_copy, session, "ours", one, "open", **options),
            }
            figures = session.alternate(text, turns)
        yield Row(
            key,
            text,
            "s",
            median(figures["8"]),
            median(figures["1"]),
            0.5,
            lower_is_better=True,
            against="ours with 1 segment",
            detail={"rounds": figures},
        )


def _write_segments(session: Session, folder: Path, segments: int, *, kill: bool) -> None:
    size = session.scale.segment_bytes
    count = int(size * (segments - 0.5)) // _RECORD
    with session.ours() as child:
        child.ask("open", dir=str(folder), config=session.config("async", mappedFileSizeCommitLog=size))
        child.ask("put", **Work(count, batch=64).command())
        if kill:
            # Let a thorough flush and the checkpoint pass, then leave something behind them.
            time.sleep(12.0 if session.scale.rounds > 1 else 2.0)
            child.ask("put", **Work(1000, first=count).command())
            child.ask("kill")
            child.wait_killed()
        else:
            child.ask("close")


def memory_rows(session: Session, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """Anonymous memory: the most that was seen anywhere, and whether it stays while a store grows."""
    if wanted("memory-flat"):
        with session.folder() as folder:
            memory = write_log(session, "ours", folder, kill=False)["memory"]
        yield Row(
            "memory-flat",
            "RssAnon after the whole log against after its first quarter",
            "bytes",
            memory[-1],
            memory[0],
            0.8,
            lower_is_better=True,
            against="ours, first quarter",
            detail={"rounds": {"ours": memory}},
        )
    if wanted("memory") and session.peak["ours"]:
        yield Row(
            "memory",
            "RssAnon while doing all this, at most 100 MiB",
            "bytes",
            session.peak["ours"],
            float(_MEMORY_LIMIT),
            1.0,
            lower_is_better=True,
            against="the limit",
            detail={"rocketmq": session.peak["peer"] or None},
        )


def queue_rows(session: Session, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """Many queues with little in each: their disk space, our descriptors, and the time to open."""
    if not wanted("queues"):
        return
    count, each = session.scale.many_queues, 8
    with session.folder() as folder:
        session.progress(f"{count} queues: writing")
        with session.ours() as child:
            child.ask("open", dir=str(folder), config=session.config("async"))
            written = child.ask("spread", queues=count, each=each)
            child.ask("close")
        files = [file for file in (folder / "consumequeue").rglob("*") if file.is_file()]
        used = sum(file.stat().st_blocks * 512 for file in files)
        opened = []
        for number in range(session.scale.rounds):
            session.progress(f"{count} queues: opening, round {number + 1}")
            session.settle()
            with session.ours() as child:
                answer = child.ask("open", dir=str(folder), config=session.config("async"))
                opened.append(float(answer["seconds"]))
                descriptors = child.ask("memory")["descriptors"]
                child.ask("close")
    allowed = count * (each * 20 + _BLOCK)
    yield Row(
        "queues-disk",
        f"{count} queues: disk space, at most their data and a block each",
        "bytes",
        used,
        allowed,
        1.0,
        lower_is_better=True,
        against="the limit",
    )
    yield Row(
        "queues-descriptors",
        f"{count} queues: open descriptors",
        "descriptors",
        max(written["descriptors"], descriptors),
        1024,
        1.0,
        lower_is_better=True,
        against="the limit",
    )
    yield Row(
        "queues-open",
        f"{count} queues: open",
        "s",
        median(opened),
        _OPEN_LIMIT,
        1.0,
        lower_is_better=True,
        against="the limit",
        detail={"rounds": {"ours": opened}},
    )
