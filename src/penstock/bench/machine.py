"""What a figure depends on: the machine, how busy it is, and what its disk can do by itself."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

WINDOW = 64 << 20


class Fingerprint(TypedDict):
    """Enough to tell two machines apart in a report."""

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    filesystem: str
    python: str


class SyncLatency(TypedDict):
    """Microseconds of one small write with its fdatasync, into blocks that were written before."""

    p50_us: float
    p99_us: float
    count: int


def fingerprint(path: str | os.PathLike[str]) -> Fingerprint:
    """The machine, and the file system that ``path`` lies on."""
    return Fingerprint(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        filesystem=filesystem(path),
        python=f"{platform.python_implementation()} {sys.version.split()[0]}",
    )


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def filesystem(path: str | os.PathLike[str]) -> str:
    """Type and mount point of the file system of ``path``: ``ext4 on /``; ``unknown`` where nobody says."""
    wanted = Path(path).resolve()
    best, found = -1, "unknown"
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _, mount, kind, *_ = line.split()
        # A later mount covers an earlier one at the same place.
        if wanted.is_relative_to(mount) and len(mount) >= best:
            best, found = len(mount), f"{kind} on {mount}"
    return found


def load_average() -> tuple[float, float, float]:
    """Of the last 1, 5 and 15 minutes. Benches want the first near zero before they start."""
    return os.getloadavg()


def processor_ticks() -> tuple[int, int]:
    """Of all processors since the start: what a virtual machine's host kept, and all; zeros if unknown."""
    try:
        words = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    except OSError:
        return 0, 0
    counted = [int(word) for word in words[:8]]  # what follows is part of these
    return counted[7] if len(counted) == 8 else 0, sum(counted)


def rss_anon(pid: int | str = "self") -> int:
    """Anonymous memory of a process in bytes; -1 where /proc does not say."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return -1


def _sync(fd: int) -> None:
    # macOS has no fdatasync.
    getattr(os, "fdatasync", os.fsync)(fd)


@contextmanager
def _written_blocks(directory: str | os.PathLike[str], size: int) -> Iterator[int]:
    """A descriptor of a file whose blocks were all written and synced; gone afterwards."""
    path = Path(directory) / f".penstock-disk-{os.getpid()}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        chunk = bytes(1 << 20)
        for position in range(0, size, len(chunk)):
            os.pwrite(fd, chunk[: size - position], position)
        os.fsync(fd)
        yield fd
    finally:
        os.close(fd)
        path.unlink(missing_ok=True)


def sync_latency(directory: str | os.PathLike[str], *, size: int = 1024, count: int = 2000) -> SyncLatency:
    """p50 and p99 of ``pwrite`` + ``fdatasync`` of ``size`` bytes, one behind the other."""
    data = os.urandom(size)
    taken = []
    with _written_blocks(directory, min(WINDOW, size * count)) as fd:
        slots = max(1, min(WINDOW, size * count) // size)
        for index in range(count):
            start = time.perf_counter()
            os.pwrite(fd, data, index % slots * size)
            _sync(fd)
            taken.append(time.perf_counter() - start)
    cuts = statistics.quantiles(taken, n=100) if count > 1 else taken * 99
    return SyncLatency(p50_us=cuts[49] * 1e6, p99_us=cuts[98] * 1e6, count=count)


def bare_rate(
    directory: str | os.PathLike[str], *, size: int, count: int, group: int = 1, synced: bool = True
) -> float:
    """Records per second of a bare loop: ``group`` records of ``size`` bytes a ``pwrite``, ``fdatasync``.

    Nothing durable is faster on this disk with one write at a time; without ``synced`` it is the call alone.
    """
    data = os.urandom(size * group)
    rounds = max(1, count // group)
    with _written_blocks(directory, max(len(data), min(WINDOW, len(data) * rounds))) as fd:
        slots = max(1, min(WINDOW, len(data) * rounds) // len(data))
        start = time.perf_counter()
        for index in range(rounds):
            os.pwrite(fd, data, index % slots * len(data))
            if synced:
                _sync(fd)
        seconds = time.perf_counter() - start
    return rounds * group / seconds
