"""The rows about opening: after a close, after a kill, rebuilding, growing logs, many queues, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from penstock.bench.logs import SharedLog, write_log
from penstock.bench.row import Row
from penstock.bench.session import RECORD, Session, median
from penstock.bench.work import Work

_BLOCK = 4096
_MEMORY_LIMIT = 100 << 20
_OPEN_LIMIT = 2.0


def open_rows(session: Session, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """After a kill, after a clean close, and with queues and index gone."""
    keys = {
        "open-killed": ("open after a kill", "open", 4.0),
        "open-clean": ("open after a clean close", "open", 5.0),
        "rebuild": ("rebuild of all queues and the index", "rebuild", 5.0),
    }
    chosen = {key: row for key, row in keys.items() if wanted(key)}
    if not chosen:
        return
    size = f"{session.scale.log_bytes / 1e9:.1f} GB log"
    logs = {side: session.log(side) for side in session.sides()}
    for key, (text, do, at_least) in chosen.items():
        for side in session.sides():
            # Once unmeasured: the JVM compiles what recovery needs, and what was killed is closed cleanly.
            session.progress(f"{text}: {side}, unmeasured")
            _open(session, side, logs[side], "open" if side == "ours" else do, killed=key == "open-killed")
        figures = session.compare(text, partial(_open_side, session, logs, do, key == "open-killed"))
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


def _open(session: Session, side: str, log: SharedLog, do: str, *, killed: bool) -> float:
    """Open it as it was killed, else as it was closed last; closed cleanly afterwards."""
    if killed:
        log.restore()
        session.settle()
    with session.side(side) as child:
        config = session.config("async", **log.options)
        answer = child.ask(do, dir=str(log.folder), config=config, wait=True)
        child.ask("close")
    return float(answer["seconds"])


def _open_side(session: Session, logs: Mapping[str, SharedLog], do: str, killed: bool, side: str) -> float:
    return _open(session, side, logs[side], do, killed=killed)


def growth_rows(session: Session, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """Our opening time with 8 segments against 1: after a kill soon after a checkpoint, and after a close."""
    chosen = [key for key in ("growth-killed", "growth-clean") if wanted(key)]
    if not chosen:
        return
    logs = {str(segments): _write_segments(session, segments) for segments in (8, 1)}
    for key in chosen:
        killed = key == "growth-killed"
        text = f"open after a {'kill' if killed else 'clean close'}, log of 8 segments against 1"
        for log in logs.values():
            _open(session, "ours", log, "open", killed=True)
        turns = {
            name: partial(_open, session, "ours", log, "open", killed=killed) for name, log in logs.items()
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


def _write_segments(session: Session, segments: int) -> SharedLog:
    """So many segments but a half, a checkpoint, and a little more behind it."""
    size = session.scale.segment_bytes
    session.progress(f"ours writes {segments} segments")
    count = int(size * (segments - 0.5)) // RECORD
    parts = [Work(count, batch=64), Work(1000, first=count)]
    return write_log(session, "ours", parts, checkpoint=True, mappedFileSizeCommitLog=size)


def memory_rows(session: Session, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """Anonymous memory: the most that was seen anywhere, and whether it stays while a store grows."""
    if wanted("memory-flat"):
        memory = session.log("ours").memory
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
