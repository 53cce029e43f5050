"""The same work for every kind of master. As a program it is a driver of its own:

python -m spark.cluster.work MASTER TASK STORE FOLDER [PID of a worker to kill]

prints one JSON object.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

WAIT_SECONDS = 600.0
SPLIT = 256 << 10


def digest(rows: Iterator[Any]) -> str:
    """One number for a set of rows, whatever their order."""
    return hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()


def scan(spark: SparkSession, store: str, folder: str) -> dict[str, Any]:
    """Every column of every message."""
    rows = spark.read.format("rocketmq").option("splitBytes", SPLIT).load(store).collect()
    return {"rows": len(rows), "digest": digest(iter(rows))}


def jobs(spark: SparkSession, store: str, folder: str) -> dict[str, Any]:
    """Verify, export and statistics: the reports, and the rows that were exported."""
    from penstock.spark.jobs import export, stats, verify

    report = verify(spark, store, split_bytes=SPLIT).report
    export(spark, store, f"{folder}/exported")
    exported = spark.read.parquet(f"{folder}/exported").drop("dt")
    numbers = stats(spark, store, split_bytes=SPLIT).as_dict()
    return {
        "verify": [report.healthy, report.records, report.units, report.index_entries],
        "exported": digest(iter(exported.select(*sorted(exported.columns)).collect())),
        "stats": [numbers["records"], numbers["bytes"], numbers["topics"], numbers["hours"]],
    }


def gated(spark: SparkSession, store: str, folder: str) -> dict[str, Any]:
    """A scan whose tasks wait, after their first rows, until the file ``go`` is there."""
    from penstock.spark.jobs.job import map_in_arrow

    schema = "topic string, queueId int, queueOffset bigint, body binary"
    frame = spark.read.format("rocketmq").schema(schema).option("splitBytes", SPLIT).load(store)
    held = map_in_arrow(frame, gate(folder), frame.schema)
    rows = held.collect()
    return {"rows": len(rows), "digest": digest(iter(rows))}


def gate(folder: str) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """Pass batches on; at the first, say in a file that this process is at work, and wait for ``go``."""

    def pass_on(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        first = True
        for batch in batches:
            if first:
                Path(folder, f"at-work-{os.getpid()}").touch()
                wait_for(lambda: Path(folder, "go").exists())
                first = False
            yield batch

    return pass_on


def killing_verify(spark: SparkSession, store: str, folder: str, worker: int = 0) -> dict[str, Any]:
    """Verify, with a worker of the cluster killed when the first tasks are done."""
    from penstock.spark.jobs import verify

    told: list[tuple[int, int]] = []

    def progress(done: int, whole: int) -> None:
        if done > 0 and not told:
            told.append((done, whole))
            if worker:
                os.killpg(worker, signal.SIGKILL)

    report = verify(spark, store, split_bytes=SPLIT // 4, progress=progress).report
    return {
        "verify": [report.healthy, report.records, report.units, report.index_entries],
        "killed in the middle": told[0][0] < told[0][1],
    }


def wait_for(condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    """Return when it holds; raise when it takes too long."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("waited too long")
        time.sleep(0.05)


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "scan": scan,
    "jobs": jobs,
    "gated": gated,
    "killing_verify": killing_verify,
}


def main(master: str, task: str, store: str, folder: str, *more: str) -> None:
    from penstock.spark.session import session

    spark = session(
        master,
        app_name=f"penstock-tests {task}",
        config={
            "spark.executor.cores": 1,
            "spark.executor.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": False,
            "spark.local.dir": f"{folder}/local",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        },
    )
    result = {}
    for name in task.split("+"):
        result[name] = TASKS[name](spark, store, folder, *map(int, more))
    print(json.dumps(result, default=str), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
