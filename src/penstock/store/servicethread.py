"""A thread that takes one step of a service after another."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class ServiceThread:
    """Calls ``step`` until stopped; ``step`` returns how many milliseconds to wait before the next call.

    An error of a step is logged, kept in ``last_error`` and followed by ``error_wait_ms``: a service outlives
    a bad message or a full disk, and whoever watches it can tell.
    """

    def __init__(self, name: str, step: Callable[[], int], *, error_wait_ms: int = 10_000) -> None:
        self.name = name
        self.last_error: Exception | None = None
        self._step = step
        self._error_wait_ms = error_wait_ms
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def stopping(self) -> bool:
        """True while ``stop`` waits for the thread: a long step looks at it and returns early."""
        return self._stopping.is_set()

    def rest(self, seconds: float) -> None:
        """For a step on the thread: let others have the interpreter; a stop ends it. Elsewhere nothing."""
        if seconds > 0 and threading.current_thread() is self._thread:
            self._stopping.wait(seconds)

    def start(self) -> None:
        """Start the thread; a service that runs already goes on running."""
        if self.running:
            return
        self._stopping.clear()
        self._wake.clear()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """End the current wait."""
        self._wake.set()

    def stop(self) -> None:
        """Return when the thread has ended; the step it is in is finished first."""
        thread = self._thread
        if thread is None:
            return
        self._stopping.set()
        self._wake.set()
        thread.join()
        self._thread = None
        self._stopping.clear()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                wait_ms = self._step()
                self.last_error = None
            except Exception as error:
                _log.exception("%s: a step failed, going on in %d ms", self.name, self._error_wait_ms)
                self.last_error = error
                wait_ms = self._error_wait_ms
            self._wake.wait(wait_ms / 1000)
            if not self._stopping.is_set():
                self._wake.clear()
