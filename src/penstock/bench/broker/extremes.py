"""What only we have to answer for: many topics, many idle connections, an old reader, our own client."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from penstock.bench.broker.loads import Load
from penstock.bench.broker.turns import Scale, Turns
from penstock.bench.child import python_environment
from penstock.bench.peer import Peer
from penstock.bench.penstockbroker import PenstockBroker
from penstock.bench.row import Row

_PLAIN = Load("plain", "async flush, 64 senders, 1 KiB", "async", 1.0, 64)
MIB = 1 << 20


@contextmanager
def our_broker(folder: Path) -> Iterator[PenstockBroker]:
    """A broker of ours with async flush in a folder that goes away."""
    with (
        tempfile.TemporaryDirectory(prefix="ours-", dir=folder) as place,
        PenstockBroker(Path(place), flush="async") as broker,
    ):
        yield broker


def own_client_rows(folder: Path, scale: Scale, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """Our client against our broker, one process each."""
    for kind, least in (("single", 30_000.0), ("batched", 300_000.0)):
        if not wanted(f"own-{kind}"):
            continue
        with our_broker(folder) as broker:
            rates = [_own_client(kind, broker.namesrv, scale.seconds) for _ in range(scale.rounds)]
        rate = sorted(rates)[len(rates) // 2]
        work = f"our client, {'64 a batch' if kind == 'batched' else 'one a request'}, 1 KiB"
        yield Row(f"own-{kind}", work, "msg/s", rate, least, 1.0, against="wanted")


def _own_client(kind: str, namesrv: str, seconds: float) -> float:
    command = [sys.executable, "-m", "penstock.bench.broker.ownclient", kind, namesrv, f"own-{kind}"]
    done = subprocess.run(
        [*command, "1024", str(seconds)], env=python_environment(), capture_output=True, check=True
    )
    return float(json.loads(done.stdout)["rate"])


def _rate(driver: Peer, broker: PenstockBroker, scale: Scale, topics: int = 0) -> dict[str, Any]:
    """Send to one topic, or go round so many."""
    driver.ask("load", **_PLAIN.command(broker.namesrv, "plain", scale.warm_up), topics=topics)
    return driver.ask("load", **_PLAIN.command(broker.namesrv, "plain", scale.seconds), topics=topics)


def crowd_rows(folder: Path, driver: Peer, scale: Scale, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """A thousand topics of eight queues; five thousand connections that say nothing."""
    if wanted("topics"):
        with our_broker(folder) as alone, our_broker(folder) as crowded:
            where = {"namesrv": crowded.namesrv, "broker": crowded.address}
            driver.ask("create-topics", **where, prefix="plain", count=scale.topics, queues=8)
            crowd = f"{scale.topics} topics of 8 queues"
            yield _beside("topics", f"64 senders beside {crowd}", driver, scale, alone, crowded)
            # After the other: what it leaves to the disk is still being written when the next turn begins.
            work = f"64 senders that go round {crowd}"
            yield _beside("topics-all", work, driver, scale, alone, crowded, scale.topics)
            yield _memory_row("topics-memory", "anonymous memory then", crowded)
    if wanted("idle"):
        with (
            our_broker(folder) as alone,
            our_broker(folder) as crowded,
            idle_connections(crowded.port, scale.connections),
        ):
            work = f"64 senders beside {scale.connections} idle connections"
            yield _beside("idle", work, driver, scale, alone, crowded)
            yield _memory_row("idle-memory", "anonymous memory then", crowded)


def _beside(
    key: str,
    work: str,
    driver: Peer,
    scale: Scale,
    alone: PenstockBroker,
    crowded: PenstockBroker,
    topics: int = 0,
) -> Row:
    """The rates of two brokers in turns, so that a slow minute of the machine falls on both."""
    sides = ((alone, 0), (crowded, topics))
    rates: tuple[list[float], list[float]] = ([], [])
    for broker, count in sides:
        command = _PLAIN.command(broker.namesrv, "plain", scale.first_warm_up)
        driver.ask("load", **command, topics=count)
    for _ in range(scale.rounds):
        for (broker, count), measured in zip(sides, rates, strict=True):
            measured.append(_rate(driver, broker, scale, count)["rate"])
    driver.ask("end-load")
    without, crowd = (sorted(measured)[scale.rounds // 2] for measured in rates)
    return Row(key, work, "msg/s", crowd, without, 0.9, against="ourselves without")


def _memory_row(key: str, work: str, broker: PenstockBroker) -> Row:
    return Row(key, work, "bytes", broker.rss_anon(), 300 * MIB, 1.0, lower_is_better=True, against="allowed")


@contextmanager
def idle_connections(port: int, count: int) -> Iterator[None]:
    """So many open connections that never say a word."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 1024)), hard))
    with ExitStack() as held:
        for _ in range(count):
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def old_reader_row(
    folder: Path, turns: Turns, driver: Peer, scale: Scale, wanted: Callable[[str], bool]
) -> Iterator[Row]:
    """Producers beside a consumer that reads what has left the page cache."""
    if not wanted("old-reader"):
        return
    with our_broker(folder) as broker:
        while _log_bytes(broker) < scale.old_bytes:
            driver.ask("load", **_PLAIN.command(broker.namesrv, "old", scale.seconds))
        alone = [_rate(driver, broker, scale)["p99_ms"] for _ in range(scale.rounds)]
        beside = []
        for _ in range(scale.rounds):
            _forget(broker)
            with old_reader(broker):
                beside.append(_rate(driver, broker, scale)["p99_ms"])
        driver.ask("end-load")
    middle = len(alone) // 2
    yield Row(
        "old-reader",
        "p99 of 64 senders beside a reader of old, uncached data",
        "s",
        sorted(beside)[middle] / 1000,
        sorted(alone)[middle] / 1000,
        1 / 1.5,
        lower_is_better=True,
        against="alone",
    )


def _logs(broker: PenstockBroker) -> list[Path]:
    folder = broker.folder / "store" / "commitlog"
    return sorted(folder.iterdir()) if folder.exists() else []


def _log_bytes(broker: PenstockBroker) -> int:
    return sum(path.stat().st_blocks * 512 for path in _logs(broker))


def _forget(broker: PenstockBroker) -> None:
    """Drop the log from the page cache, so far as it is on disk."""
    for path in _logs(broker):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


@contextmanager
def old_reader(broker: PenstockBroker) -> Iterator[None]:
    """A process that pulls the topic ``old`` from its beginning, again and again."""
    command = [sys.executable, "-m", "penstock.bench.broker.oldreader", broker.namesrv, "old"]
    process = subprocess.Popen(command, env=python_environment(), stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # it has got its first message
    drain = threading.Thread(target=process.stdout.read)
    drain.start()
    try:
        yield
    finally:
        process.kill()
        process.wait()
        drain.join()
