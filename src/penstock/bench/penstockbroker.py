"""Our own broker as its users run it: ``penstock up`` in a process of its own, on free ports of loopback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from penstock.bench.child import python_environment
from penstock.bench.cluster import Cluster
from penstock.bench.peer import cache_directory


@cache
def compiled_environment() -> dict[str, str]:
    """For a child that runs this package as it is when it was installed: with its bytecode.

    Without it a start is mostly the compiler's work, as RocketMQ's would be from sources. Made once, in the
    cache folder: the sources may be read-only, and some people forbid Python to write beside theirs.
    """
    environment = python_environment()
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(cache_directory() / "bytecode")
    parts = "penstock.broker, penstock.cli.output, penstock.remoting.loop"
    run = f"import {parts}; from penstock.cli import main; main(['up', '--help'])"
    subprocess.run([sys.executable, "-c", run], env=environment, check=True, stdout=subprocess.DEVNULL)
    return environment


class PenstockBroker(Cluster):
    """A running broker with its name server inside."""

    def __init__(
        self, folder: Path, settings: Mapping[str, object] | None = None, flush: str = "sync"
    ) -> None:
        super().__init__(folder, settings, ())
        self.flush = flush
        self._environment = compiled_environment()

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
        self.start_seconds = self._run("broker", command, self._environment, self.port)
