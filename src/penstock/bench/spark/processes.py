"""Memory and processor time of a Spark application on this machine: its Java process and its workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.bench.machine import rss_anon

# Looking at all processes takes some milliseconds: not so often that it shows in what is measured.
_SAMPLE_SECONDS = 0.5


@dataclass
class Peak:
    """The most anonymous memory seen, in bytes: of Java, and of the largest Python process."""

    java: int = 0
    workers: int = 0


def descendants(pid: int) -> list[int]:
    """Processes below one, by what /proc says at this moment."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name in parentheses can hold blanks: the parent is the second field behind it.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def cpu_seconds(pid: int) -> float:
    """Processor time that a process and those below it have used, ended children of theirs included."""
    ticks = 0
    for one in (pid, *descendants(pid)):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


def sample(pid: int, peak: Peak) -> None:
    """Raise ``peak`` to what the processes below ``pid`` have now."""
    java = workers = 0
    for below in descendants(pid):
        size = max(0, rss_anon(below))
        if _is_java(below):
            java += size
        else:
            workers = max(workers, size)  # more data has more of them at work, up to one a core
    peak.java, peak.workers = max(peak.java, java), max(peak.workers, workers)


@contextmanager
def watching(pid: int) -> Iterator[Peak]:
    """Sample while the block runs."""
    peak, ended = Peak(), threading.Event()

    def watch() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            sample(pid, peak)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        sample(pid, peak)
        ended.set()
        watcher.join()
