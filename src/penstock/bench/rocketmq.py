"""RocketMQ as its users run it: a name server and a broker, each a JVM, on free ports of loopback."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from penstock.bench.cluster import Cluster
from penstock.bench.peer import Version, build, java_command, java_environment

_BROKER = "org.apache.rocketmq.broker.BrokerStartup"
_NAME_SERVER = "org.apache.rocketmq.namesrv.NamesrvStartup"
SMALL_OPTIONS = ("-Xms256m", "-Xmx1g", "-XX:+UseSerialGC")


class RocketMQ(Cluster):
    """A running name server and broker of one version."""

    def __init__(
        self,
        folder: Path,
        version: Version = "5.5.0",
        settings: Mapping[str, object] | None = None,
        options: tuple[str, ...] = SMALL_OPTIONS,
    ) -> None:
        # RocketMQ takes the port below by two for its fast lane and the one above for its slaves.
        super().__init__(folder, settings, (-2, 1))
        self.version = version
        self._options = options
        self._class_path = build(version, "client-pom.xml")
        self._home = tempfile.TemporaryDirectory(prefix="penstock-rocketmq-")
        # 4.9 does not start without these files, whatever they say.
        logging = Path(self._home.name) / "conf"
        logging.mkdir()
        for name in ("namesrv", "broker"):
            (logging / f"logback_{name}.xml").write_text("<configuration/>\n")

    def start(self) -> None:
        """Both servers; the name server stays when only the broker was stopped."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if "namesrv" not in self._processes:
            file = self.folder / "namesrv.conf"
            file.write_text(f"listenPort={self.namesrv_port}\nbindAddress=127.0.0.1\n")
            options = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC")
            self._run_java("namesrv", _NAME_SERVER, file, options, self.namesrv_port)
        lines: dict[str, object] = {
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
        }
        if self.version == "4.9.7":
            lines.pop("bindAddress")
        file = self._write_settings(**lines)
        self.start_seconds = self._run_java("broker", _BROKER, file, self._options, self.port)

    def _run_java(self, name: str, main: str, file: Path, options: tuple[str, ...], port: int) -> float:
        home = f"-Drocketmq.home.dir={self._home.name}"
        command = java_command(self._class_path, main, (*options, home), self._home.name)
        return self._run(name, [*command, "-c", str(file)], java_environment(), port)

    def close(self) -> None:
        """End everything."""
        self._end("broker", kill=False)
        self._end("namesrv", kill=True)
        self._home.cleanup()
