"""Our own broker as its users run it: ``penstock up`` in a process of its own, on free ports of loopback."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from penstock.bench.child import python_environment
from penstock.bench.cluster import Cluster


class PenstockBroker(Cluster):
    """A running broker with its name server inside."""

    def __init__(
        self, folder: Path, settings: Mapping[str, object] | None = None, flush: str = "sync"
    ) -> None:
        super().__init__(folder, settings, ())
        self.flush = flush

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self._write_settings(
            brokerName="broker-a",
            listenPort=self.port,
            namesrv_port=self.namesrv_port,
            flushDiskType={"sync": "SYNC_FLUSH", "async": "ASYNC_FLUSH"}[self.flush],
        )
        command = [sys.executable, "-m", "penstock", "up", "--store", str(self.folder / "store")]
        command += ["--config", str(file)]
        self.start_seconds = self._run("broker", command, python_environment(), self.port)
