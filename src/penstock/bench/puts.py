"""The rows about putting: async, sync, batched, in flight, and against SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from penstock.bench import sqlite
from penstock.bench.machine import bare_rate, sync_latency
from penstock.bench.row import Row
from penstock.bench.session import Flush, Session, median
from penstock.bench.work import Work

UNIT = "messages/s"
_SIZES = {128: "128 B", 1024: "1 KiB"}


@dataclass(frozen=True, slots=True)
class PutCase:
    """One put work and what is asked of it."""

    key: str
    text: str
    work: Work
    flush: Flush
    at_least: float
    reopened: bool = False


def measure_put(session: Session, side: str, case: PutCase) -> dict[str, float]:
    """A store of its own: a tenth of the work to warm up, then the work. The answer of the timed put."""
    warm = replace(case.work, n=max(64, case.work.n // 10))
    with session.folder() as folder, session.side(side) as child:
        config = session.config(case.flush)
        child.ask("open", dir=str(folder), config=config)
        child.ask("put", **warm.command())
        if case.reopened:
            child.ask("close")
            child.ask("open", dir=str(folder), config=config)
        answer: dict[str, float] = child.ask("put", **replace(case.work, first=warm.n).command())
        child.ask("close")
    return answer


def _rate(session: Session, case: PutCase, side: str) -> float:
    return measure_put(session, side, case)["rate"]


def async_cases(session: Session) -> Iterator[PutCase]:
    """One call a message with 1 and 8 writers, and 64 messages a call."""
    count = session.scale.async_messages
    for size, name in _SIZES.items():
        n = count if size == 128 else count // 2
        yield PutCase(
            f"put-async-1-{size}", f"put, async flush, 1 writer, {name}", Work(n, size), "async", 1.3
        )
    for size, name in _SIZES.items():
        n = count if size == 128 else count // 2
        work = Work(n, size, writers=8)
        yield PutCase(f"put-async-8-{size}", f"put, async flush, 8 writers, {name}", work, "async", 1.0)
    for size, name in _SIZES.items():
        n = count * 2 if size == 128 else count
        at_least = 2.0 if size == 128 else 1.5
        work = Work(n, size, batch=64)
        yield PutCase(
            f"put-many-{size}", f"put_many, 64 a call, async flush, {name}", work, "async", at_least
        )


def async_rows(session: Session, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """Ours against RocketMQ, both async."""
    for case in async_cases(session):
        if not wanted(case.key):
            continue
        figures = session.compare(case.text, partial(_rate, session, case))
        yield _row(case, figures)


def _row(case: PutCase, figures: dict[str, list[float]], at_least: float | None = None) -> Row:
    return Row(
        case.key,
        case.text,
        UNIT,
        median(figures["ours"]),
        median(figures["peer"]) if "peer" in figures else None,
        case.at_least if at_least is None else at_least,
        detail={"rounds": figures},
    )


def sync_rows(session: Session, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """Sync flush: one writer against RocketMQ and the bare disk, then 64 in flight."""
    n = session.scale.sync_messages
    for reopened in (False, True):
        name = "put, sync flush, 1 writer, 1 KiB" + (", store reopened" if reopened else "")
        key = "put-sync-1" + ("-reopened" if reopened else "")
        case = PutCase(key, name, Work(n, 1024), "sync", 1.1, reopened)
        if wanted(key):
            yield from _one_writer(session, case)
    grouped = Work(session.scale.grouped_messages, 1024)
    threads = PutCase(
        "put-sync-64-threads",
        "put, sync flush, 64 threads, 1 KiB",
        replace(grouped, writers=64),
        "sync",
        1.0,
    )
    futures = PutCase(
        "put-sync-64-futures",
        "put_async, sync flush, 64 in flight on one loop, 1 KiB",
        replace(grouped, n=grouped.n * 2, in_flight=64),
        "sync",
        3.0,
    )
    if wanted(threads.key):
        yield _row(threads, session.compare(threads.text, partial(_rate, session, threads)))
    if wanted(futures.key):
        yield _futures_row(session, futures)


def _futures_row(session: Session, case: PutCase) -> Row:
    """Held against RocketMQ, or against 64 messages per sync of the bare disk where that asks for less."""
    turns: dict[str, Callable[[], float]] = {
        side: partial(_rate, session, case, side) for side in session.sides()
    }
    turns["disk"] = lambda: sync_latency(session.directory)["p50_us"]
    figures = session.alternate(case.text, turns)
    p50 = median(figures.pop("disk"))
    bound = 0.6 * 64 / (p50 / 1e6)
    at_least = case.at_least
    if "peer" in figures:
        at_least = min(at_least, bound / median(figures["peer"]))
    row = _row(case, figures, at_least)
    return replace(row, detail={**row.detail, "fdatasync_p50_us": p50, "bound": bound})


def _one_writer(session: Session, case: PutCase) -> Iterator[Row]:
    size = 0

    def put(side: str) -> float:
        nonlocal size
        answer = measure_put(session, side, case)
        size = int(answer.get("record_bytes", size))
        return answer["rate"]

    turns: dict[str, Callable[[], float]] = {"ours": lambda: put("ours")}
    if session.with_peer:
        turns["peer"] = lambda: put("peer")
    # The first round is ours first, so the size of a record is known to the bare loop.
    turns["disk"] = lambda: bare_rate(session.directory, size=size or 1200, count=case.work.n)
    figures = session.alternate(case.text, turns)
    disk = figures.pop("disk")
    yield _row(case, figures)
    yield Row(
        f"{case.key}-disk",
        f"{case.text}: against the bare disk",
        UNIT,
        median(figures["ours"]),
        median(disk),
        0.8,
        against="pwrite + fdatasync",
        detail={"rounds": {"ours": figures["ours"], "peer": disk}},
    )


def sqlite_rows(session: Session, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """Against a table in SQLite: synced one by one, synced 64 a commit, unsynced one by one."""
    scale = session.scale
    cases: list[tuple[PutCase, sqlite.Synchronous, int]] = [
        (
            PutCase("sqlite-full-1", "synced one by one, 128 B", Work(scale.sync_messages), "sync", 1.2),
            "FULL",
            1,
        ),
        (
            PutCase(
                "sqlite-full-64",
                "synced 64 a commit, 128 B",
                Work(scale.grouped_messages * 2, batch=64),
                "sync",
                2.5,
            ),
            "FULL",
            64,
        ),
        (
            PutCase("sqlite-off-1", "unsynced one by one, 128 B", Work(scale.async_messages), "async", 5.0),
            "OFF",
            1,
        ),
    ]
    for case, synchronous, per_commit in cases:
        if wanted(case.key):
            yield _against_sqlite(session, case, synchronous, per_commit)


def _against_sqlite(session: Session, case: PutCase, synchronous: sqlite.Synchronous, per_commit: int) -> Row:
    size = 310

    def ours() -> float:
        nonlocal size
        answer = measure_put(session, "ours", case)
        size = int(answer["record_bytes"])
        return answer["rate"]

    def theirs() -> float:
        with session.folder() as folder:
            folder.mkdir()
            database = folder / "messages.db"
            # Fewer than ours puts, as each takes so much longer: a smaller table is no disadvantage.
            work = replace(case.work, n=min(case.work.n, session.scale.sqlite_messages))
            return sqlite.put_rate(database, work, synchronous=synchronous, per_commit=per_commit)

    def bare() -> float:
        synced = case.flush == "sync"
        return bare_rate(session.directory, size=size, count=case.work.n, group=per_commit, synced=synced)

    figures = session.alternate(f"against SQLite, {case.text}", {"ours": ours, "peer": theirs, "disk": bare})
    peer, disk = median(figures["peer"]), median(figures["disk"])
    return Row(
        case.key,
        f"put, {case.text}",
        UNIT,
        median(figures["ours"]),
        peer,
        min(case.at_least, 0.75 * disk / peer),
        against=f"SQLite {synchronous}",
        detail={"rounds": figures, "bare_loop": disk},
    )
