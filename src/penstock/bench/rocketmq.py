"""RocketMQ itself, as its users run it: a name server and a broker, each a JVM, on free ports of loopback."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.bench.machine import rss_anon
from penstock.bench.peer import Version, build, java_command, java_environment
from penstock.errors import PenstockError

_BROKER = "org.apache.rocketmq.broker.BrokerStartup"
_NAME_SERVER = "org.apache.rocketmq.namesrv.NamesrvStartup"
_START_SECONDS = 90.0
SMALL_OPTIONS = ("-Xms256m", "-Xmx1g", "-XX:+UseSerialGC")


def free_port(neighbours: tuple[int, ...] = ()) -> int:
    """A port nobody listens on, with free neighbours at the given distances."""
    for _ in range(100):
        with ExitStack() as held:
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            try:
                for distance in neighbours:
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port + distance))
            except (OSError, OverflowError):
                continue
            return port
    raise PenstockError("no free ports side by side on this machine")


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


class RocketMQ:
    """A running name server and broker of one version. A context manager; ``kill`` and ``start`` in between.

    ``settings`` are lines of ``broker.conf`` beyond what loopback needs.
    """

    def __init__(
        self,
        folder: Path,
        version: Version = "5.5.0",
        settings: Mapping[str, object] | None = None,
        options: tuple[str, ...] = SMALL_OPTIONS,
    ) -> None:
        self.version = version
        self.folder = folder
        self.namesrv_port = free_port()
        # RocketMQ takes the port below by two for its fast lane and the one above for its slaves.
        self.port = free_port((-2, 1))
        self._options = options
        self._settings = dict(settings or {})
        self._class_path = build(version, "client-pom.xml")
        self._home = tempfile.TemporaryDirectory(prefix="penstock-rocketmq-")
        # 4.9 does not start without these files, whatever they say.
        logging = Path(self._home.name) / "conf"
        logging.mkdir()
        for name in ("namesrv", "broker"):
            (logging / f"logback_{name}.xml").write_text("<configuration/>\n")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
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
        return self._processes["broker"].pid

    def rss_anon(self) -> int:
        """Anonymous memory of the broker in bytes."""
        return rss_anon(self.pid)

    def start(self) -> None:
        """Both servers; the name server stays when only the broker was stopped."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if "namesrv" not in self._processes:
            file = self.folder / "namesrv.conf"
            file.write_text(f"listenPort={self.namesrv_port}\nbindAddress=127.0.0.1\n")
            self._run("namesrv", _NAME_SERVER, file, ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC"))
            wait_listening(self.namesrv_port, self._processes["namesrv"])
        lines = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "namesrvAddr": self.namesrv,
            "storePathRootDir": self.folder / "store",
            "storePathCommitLog": self.folder / "store" / "commitlog",
            **self._settings,
        }
        if self.version == "4.9.7":
            lines.pop("bindAddress")
        file = self.folder / "broker.conf"
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        begin = time.monotonic()
        self._run("broker", _BROKER, file, self._options)
        wait_listening(self.port, self._processes["broker"])
        self.start_seconds = time.monotonic() - begin

    def _run(self, name: str, main: str, file: Path, options: tuple[str, ...]) -> None:
        home = f"-Drocketmq.home.dir={self._home.name}"
        command = java_command(self._class_path, main, (*options, home), self._home.name)
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            self._processes[name] = subprocess.Popen(
                [*command, "-c", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=java_environment(),
                start_new_session=True,
            )

    def stop(self, *, kill: bool = False) -> None:
        """End the broker, in order or at once; the name server goes on."""
        self._end("broker", kill=kill)

    def _end(self, name: str, *, kill: bool) -> None:
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End everything."""
        self._end("broker", kill=False)
        self._end("namesrv", kill=True)
        self._home.cleanup()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
