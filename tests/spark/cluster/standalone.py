"""A standalone Spark cluster of real processes on the loopback: one master, workers of one core each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[3]
START_SECONDS = 600.0


def environment() -> dict[str, str]:
    """For every process of a cluster: this interpreter, the sources and the tests on its path."""
    import pyspark

    from penstock.spark.java import find_java
    from penstock.spark.sparkhome import SparkHome

    home = SparkHome(Path(pyspark.__file__).parent, pyspark.__version__, find_java())
    home.prepare()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **kept,
        "SPARK_HOME": str(home.path),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
        "SPARK_DAEMON_MEMORY": "512m",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}",
    }


class Standalone:
    """A master and its workers, killed at the end. ``url`` is what a session takes as its master."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self._environment = environment()
        self.workers: list[subprocess.Popen[bytes]] = []
        self.master = self._start(
            "master", "org.apache.spark.deploy.master.Master", "--port", "0", "--webui-port", "0"
        )
        self.url = self._wait("master", r"Starting Spark master at (spark://\S+)")
        self._wait("master", r"I have been elected leader")
        for _ in range(workers):
            self.add_worker()

    def __enter__(self) -> Standalone:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self.workers, self.master):
            kill(process)

    def add_worker(self) -> None:
        """Start one more worker and wait until the master knows it."""
        number = len(self.workers)
        self.workers.append(
            self._start(
                f"worker-{number}",
                "org.apache.spark.deploy.worker.Worker",
                *("--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(self.folder / f"work-{number}")),
                self.url,
            )
        )
        self._wait(f"worker-{number}", r"Successfully registered with master")

    def _start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        script = Path(self._environment["SPARK_HOME"]) / "bin" / "spark-class"
        main, *rest = command
        with open(self.folder / f"{name}.log", "wb") as log:
            # A session of its own: killing the group takes the executors with it.
            return subprocess.Popen(
                [str(script), main, "--host", "127.0.0.1", *rest],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self, name: str, pattern: str) -> str:
        file = self.folder / f"{name}.log"
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            text = file.read_text(errors="replace")
            if found := re.search(pattern, text):
                return found.group(found.lastindex or 0)
            time.sleep(0.1)
        raise AssertionError(f"no {pattern!r} in the log of {name}:\n{text[-3000:]}")


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process of the cluster and all that it started, at once."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
