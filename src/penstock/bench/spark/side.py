"""A side of the bench: a process with a Spark session of its own, that does one work some times.

Runs as a child (``python -m penstock.bench.spark.side``) and answers JSON lines.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.bench.answers import Answer, answer_commands
from penstock.bench.child import Child, python_environment
from penstock.bench.spark.processes import cpu_seconds, watching

PATIENCE_SECONDS = 300.0


def start_side(cache: Path, cores: int) -> Child:
    """A fresh process on so many cores; its session keeps what it prepares in ``cache``."""
    environment = {
        **python_environment(),
        "PENSTOCK_CACHE": str(cache),
        # A stock session takes whatever python3 is on the path otherwise, and that need not have PySpark.
        "PYSPARK_PYTHON": sys.executable,
        "PENSTOCK_BENCH_CORES": str(cores),
    }
    environment.pop("SPARK_HOME", None)
    child = Child("Spark", [sys.executable, "-m", "penstock.bench.spark.side"], environment)
    child.patience = PATIENCE_SECONDS  # the very first session writes its class archive when it ends
    return child


class Side:
    """The session and the works on it."""

    def __init__(self) -> None:
        self.spark: Any = None

    def answer(self, command: Answer) -> Answer:
        works = {"start": self.start, "run": self.run, "parquet": self.parquet, "heap": self.heap}
        return works[command["do"]](command)

    def start(self, command: Answer) -> Answer:
        """A session of ours or a stock one."""
        cores = int(os.environ["PENSTOCK_BENCH_CORES"])
        begin = time.perf_counter()
        if command.get("stock"):
            from pyspark.sql import SparkSession

            self.spark = SparkSession.builder.master(f"local[{cores}]").getOrCreate()
        else:
            from penstock.spark.session import session

            self.spark = session(f"local[{cores}]", app_name="penstock-bench")
        return {"seconds": time.perf_counter() - begin}

    def run(self, command: Answer) -> Answer:
        """Seconds of each repeat behind the warm-up, and of the processors; rows if the work counts them;
        memory at most.
        """
        from penstock.bench.spark.works import WORKS, clear, in_a_folder

        work, below = WORKS[command["work"]], Path(command["below"])
        rows, seconds, cpu = None, [], []
        with watching(os.getpid()) as peak:
            for number in range(command["warm"] + command["repeats"]):
                used, begin = cpu_seconds(os.getpid()), time.perf_counter()
                rows = in_a_folder(work, self.spark, below, **command["arguments"])
                if number >= command["warm"]:
                    seconds.append(time.perf_counter() - begin)
                    cpu.append(cpu_seconds(os.getpid()) - used)
                clear(below)
        return {"seconds": seconds, "cpu": cpu, "rows": rows, "java": peak.java, "workers": peak.workers}

    def parquet(self, command: Answer) -> Answer:
        """The messages of a store as Parquet, for the peers; not compressed, which reads fastest."""
        rows = self.spark.read.format("rocketmq").load(command["path"])
        rows.write.option("compression", "none").parquet(command["target"])
        return {"rows": self.spark.read.parquet(command["target"]).count()}

    def heap(self, command: Answer) -> Answer:
        """What Java still holds after it collected garbage."""
        java = self.spark._jvm.java.lang
        java.System.gc()
        runtime = java.Runtime.getRuntime()
        return {"bytes": int(runtime.totalMemory() - runtime.freeMemory())}


def pin(environment: Mapping[str, str]) -> None:
    """Keep this process, and Java and the workers it will start, to its share of the cores."""
    cores = int(environment["PENSTOCK_BENCH_CORES"])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


if __name__ == "__main__":
    pin(os.environ)
    answer_commands(Side().answer)
