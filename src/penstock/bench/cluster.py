"""What RocketMQ's servers and our own have in common when something drives them as processes of their own."""

from __future__ import annotations

import secrets
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.bench.machine import rss_anon
from penstock.errors import PenstockError

_START_SECONDS = 90.0
_STOP_SECONDS = 60.0


# Below those that systems take for outgoing connections: between our look and the server's, none is gone.
_PORTS = range(12_000, 32_000)
_given: set[int] = set()


def free_port(neighbours: tuple[int, ...] = ()) -> int:
    """A port nobody listens on, with free neighbours at the given distances.

    None of them is given to anybody else in this process, whether or not it is used.
    """
    for _ in range(1000):
        port = secrets.choice(_PORTS)
        ports = {port, *(port + distance for distance in neighbours)}
        if _given.isdisjoint(ports) and all(map(_is_free, ports)):
            _given.update(ports)
            return port
    raise PenstockError("no free ports side by side on this machine")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wait_listening(port: int, process: subprocess.Popen[bytes], seconds: float = _START_SECONDS) -> float:
    """Wait until the process accepts connections there; how long that took."""
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        if process.poll() is not None:
            raise PenstockError(f"the server on port {port} ended with code {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return time.monotonic() - begin
        time.sleep(0.005)
    raise PenstockError(f"nothing listens on port {port} after {seconds:.0f} s")


class Cluster(ABC):
    """A name server and a broker on free ports of loopback. A context manager; ``stop`` and ``start`` in it.

    ``settings`` are lines of ``broker.conf`` beyond what loopback needs.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, object] | None, neighbours: tuple[int, ...]
    ) -> None:
        self.folder = folder
        self.namesrv_port = free_port()
        self.port = free_port(neighbours)
        self.start_seconds = 0.0
        self._settings = dict(settings or {})
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

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
        return self._processes["broker"].pid

    def rss_anon(self) -> int:
        """Anonymous memory of the broker in bytes."""
        return rss_anon(self.pid)

    @abstractmethod
    def start(self) -> None:
        """Start it, again or for the first time; returns when the broker accepts connections."""

    def _write_settings(self, **lines: object) -> Path:
        """``broker.conf`` with these lines and those of the settings."""
        file = self.folder / "broker.conf"
        file.write_text("".join(f"{name}={value}\n" for name, value in {**lines, **self._settings}.items()))
        return file

    def _run(self, name: str, command: list[str], environment: Mapping[str, str], port: int) -> float:
        """Start a process and wait until it listens; how long that took. What it prints goes to a file."""
        begin = time.monotonic()
        with (self.folder / f"{name}.log").open("ab") as log:
            process = self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(environment),
                start_new_session=True,
            )
        wait_listening(port, process)
        return time.monotonic() - begin

    def stop(self, *, kill: bool = False) -> None:
        """End the broker, in order or at once; a name server beside it goes on."""
        self._end("broker", kill=kill)

    def _end(self, name: str, *, kill: bool) -> None:
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End everything in order."""
        self.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
