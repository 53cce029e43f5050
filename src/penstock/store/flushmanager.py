"""Who brings the log to disk, and when (format section 7.6)."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from penstock._native.append import Appender
from penstock._native.flush import Flusher
from penstock._native.waiting import LoopWaiters
from penstock.store.commitlog import CommitLog

log = logging.getLogger("penstock.store")

PAGE = 4096


class GroupCommitService:
    """Sync flush: one sync acknowledges everybody who waits.

    A thread that waits alone syncs by itself (natively, inside the put). Futures, and messages that nobody
    waits for, are served by a native loop.
    """

    def __init__(self, commit_log: CommitLog) -> None:
        self._flusher = commit_log.flusher
        self._appender = commit_log.appender
        self._loop_puts = commit_log.loop_puts
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loops: dict[asyncio.AbstractEventLoop, LoopWake] = {}
        self._loop_puts.wait_with(self.waiters)

    def waiters(self) -> LoopWaiters:
        """Those who wait for the disk on the running event loop."""
        loop = asyncio.get_running_loop()
        wake = self._loops.get(loop)
        if wake is None:
            wake = self._open(loop)
        return wake.waiters

    def append_gathered(self) -> None:
        """Have in the log what was put on the loop that runs in this thread, if one does."""
        try:
            wake = self._loops.get(asyncio.get_running_loop())
        except RuntimeError:
            return
        if wake is not None:
            wake.waiters.ask()

    def start(self) -> None:
        """Start the loop that syncs for those who do not wait themselves."""
        with self._guard:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._flusher.run, name="GroupCommitService", daemon=True
                )
                self._thread.start()

    def _open(self, loop: asyncio.AbstractEventLoop) -> LoopWake:
        self.start()
        with self._guard:
            for known in [k for k in self._loops if k.is_closed()]:
                self._loops.pop(known).close()
            wake = self._loops[loop] = LoopWake(loop, self._appender, self._flusher)
            return wake

    def shutdown(self) -> None:
        """End the loop. Who still waits gets an answer all the same, after one last sync."""
        self._flusher.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._loop_puts.wait_with(self.waiters)
        if any(wake.waiters.waiting for wake in self._loops.values()):
            with suppress(OSError):  # those who wait are told
                self._flusher.sync()
        for wake in self._loops.values():
            wake.close()
        self._loops.clear()


class LoopWake:
    """Wakes one event loop after each sync, to complete the futures that waited for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, appender: Appender, flusher: Flusher) -> None:
        self.waiters = LoopWaiters(loop, appender)
        self._loop = loop
        self._flusher = flusher
        if hasattr(os, "eventfd"):
            self._read = self._write = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._read, self._write = os.pipe()
            os.set_blocking(self._read, False)
            os.set_blocking(self._write, False)
        loop.add_reader(self._read, self._flushed)
        flusher.add_wake(self._write)

    def _flushed(self) -> None:
        try:
            os.read(self._read, 4096)
        except BlockingIOError:
            return
        self.waiters.flushed()

    def close(self) -> None:
        self._flusher.remove_wake(self._write)
        if not self._loop.is_closed():
            self._loop.remove_reader(self._read)
            self._loop.call_soon_threadsafe(self.waiters.flushed)
        for descriptor in {self._read, self._write}:
            os.close(descriptor)


class PeriodicService:
    """A thread that does one thing again and again; every wait can be interrupted."""

    def __init__(self, name: str, interval_ms: int, work: Callable[[], object]) -> None:
        self._name = name
        self._interval = interval_ms / 1000
        self._work = work
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def wakeup(self) -> None:
        self._wake.set()

    def shutdown(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            self._wake.wait(self._interval)
            self._wake.clear()
            if self._stopping:
                return
            try:
                self._work()
            except Exception:  # the next round tries again; what is final is remembered where it happened
                log.exception("%s failed", self._name)


class FlushRealTimeService:
    """Async flush: every interval, when enough pages are dirty; all of them every now and then."""

    def __init__(self, commit_log: CommitLog, on_failure: Callable[[OSError], object]) -> None:
        config = commit_log.config
        self._log = commit_log
        self._on_failure = on_failure
        self._least_pages = config.flush_commit_log_least_pages
        self._thorough = config.flush_commit_log_thorough_interval_ms
        self._last_thorough = 0
        self._thread = PeriodicService(
            "FlushRealTimeService", config.flush_interval_commit_log_ms, self.flush_once
        )

    def flush_once(self) -> None:
        now = int(self._log.clock.monotonic() * 1000)
        thorough = now >= self._last_thorough + self._thorough or self._last_thorough == 0
        pages = self._log.max_offset // PAGE - self._log.flushed_where // PAGE
        if self._log.max_offset <= self._log.flushed_where or (not thorough and pages < self._least_pages):
            return
        if thorough:
            self._last_thorough = now
        try:
            self._log.flush()
        except OSError as error:
            self._on_failure(error)

    def start(self) -> None:
        self._thread.start()

    def shutdown(self) -> None:
        self._thread.shutdown()


class CommitRealTimeService:
    """Transient pool: moves what lies in write buffers into the files."""

    def __init__(self, commit_log: CommitLog, on_failure: Callable[[OSError], object]) -> None:
        config = commit_log.config
        self._log = commit_log
        self._on_failure = on_failure
        self._least_pages = config.commit_commit_log_least_pages
        self._thorough = config.commit_commit_log_thorough_interval_ms
        self._last = 0
        self._thread = PeriodicService(
            "CommitRealTimeService", config.commit_interval_commit_log_ms, self.commit_once
        )

    def commit_once(self) -> None:
        now = int(self._log.clock.monotonic() * 1000)
        least = self._least_pages
        if now >= self._last + self._thorough:
            self._last, least = now, 0
        try:
            while not self._log.commit(least):
                pass  # one file a call; go on until nothing advances
        except OSError as error:
            self._on_failure(error)

    def start(self) -> None:
        self._thread.start()

    def wakeup(self) -> None:
        self._thread.wakeup()

    def shutdown(self) -> None:
        self._thread.shutdown()


class FlushManager:
    """The services that the flush mode asks for."""

    def __init__(self, commit_log: CommitLog, on_failure: Callable[[OSError], object]) -> None:
        self.group_commit = GroupCommitService(commit_log)
        self.flush_real_time = None if commit_log.sync_flush else FlushRealTimeService(commit_log, on_failure)
        self.commit_real_time = (
            CommitRealTimeService(commit_log, on_failure) if commit_log.pool is not None else None
        )

    def start(self) -> None:
        if self.flush_real_time is not None:
            self.flush_real_time.start()
        else:
            self.group_commit.start()
        if self.commit_real_time is not None:
            self.commit_real_time.start()

    def shutdown(self) -> None:
        if self.commit_real_time is not None:
            self.commit_real_time.shutdown()
        if self.flush_real_time is not None:
            self.flush_real_time.shutdown()
        self.group_commit.shutdown()
