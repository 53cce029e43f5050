"""Our own broker as its users run it: ``penstock up`` in a process of its own, on free ports of loopback.

It has the face of :class:`penstock.bench.rocketmq.RocketMQ`, so that whatever drives one can drive the other.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.bench.child import python_environment
from penstock.bench.machine import rss_anon
from penstock.bench.rocketmq import free_port, wait_listening


class PenstockBroker:
    """A running broker with its name server inside; ``settings`` are lines of ``broker.conf``."""

    def __init__(
        self, folder: Path, settings: Mapping[str, object] | None = None, flush: str = "sync"
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.namesrv_port = free_port()
        self.flush = flush
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.start_seconds = 0.0

    @property
    def namesrv(self) -> str:
        """What clients are told."""
        return f"127.0.0.1:{self.namesrv_port}"

    @property
    def address(self) -> str:
        """Where the broker listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The broker's."""
        assert self._process is not None
        return self._process.pid

    def rss_anon(self) -> int:
        """Anonymous memory of the broker in bytes."""
        return rss_anon(self.pid)

    def start(self) -> None:
        """Start it, again or for the first time; returns when it accepts connections."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = {
            "brokerName": "broker-a",
            "listenPort": self.port,
            "namesrv_port": self.namesrv_port,
            "flushDiskType": {"sync": "SYNC_FLUSH", "async": "ASYNC_FLUSH"}[self.flush],
            **self._settings,
        }
        file = self.folder / "broker.conf"
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        command = [sys.executable, "-m", "penstock", "up", "--store", str(self.folder / "store")]
        begin = time.monotonic()
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--config", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=python_environment(),
                start_new_session=True,
            )
        wait_listening(self.port, self._process)
        self.start_seconds = time.monotonic() - begin

    def stop(self, *, kill: bool = False) -> None:
        """End it, in order or at once."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End it in order."""
        self.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
