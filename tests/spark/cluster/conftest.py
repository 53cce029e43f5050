"""A store, and the answers that one process gives."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Message, StoreConfig
from penstock.store.opening import open_writable

from .standalone import ROOT, environment
from .work import TASKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = StoreConfig(
    mapped_file_size_commit_log=2 << 20,
    mapped_file_size_consume_queue=20_000,
    max_hash_slot_num=5_000,
    max_index_num=20_000,
)
COUNT = 30_000
DRIVER_SECONDS = 900

Answer = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def cluster_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 000 messages of three topics over several log files."""
    path = tmp_path_factory.mktemp("cluster-store") / "store"
    with open_writable(path, flush="async", config=CONFIG) as store:
        for start in range(0, COUNT, 500):
            store.put_many(
                [
                    Message(
                        ("orders", "payments", "shipping")[n % 3],
                        b"body of message %d " % n * 3,
                        tags=("red", "blue")[n % 2],
                        keys=f"key-{n}",
                        queue_id=n % 4,
                        properties={"number": str(n)},
                    )
                    for n in range(start, start + 500)
                ]
            )
        store.wait_visible()
    return path


@pytest.fixture
def local_answer(spark: SparkSession, cluster_store: Path, tmp_path: Path) -> Answer:
    """What ``local[2]`` answers to a task."""

    def ask(task: str) -> dict[str, Any]:
        folder = tmp_path / f"local-{task}"
        folder.mkdir()
        (folder / "go").touch()
        answer = TASKS[task](spark, str(cluster_store), str(folder))
        loaded: dict[str, Any] = json.loads(json.dumps(answer, default=str))
        return loaded

    return ask


@pytest.fixture
def driver(cluster_store: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a driver process for tasks on a master; ``folder`` is theirs to write in."""
    started: list[subprocess.Popen[str]] = []

    def start(master: str, task: str, folder: Path, *more: int) -> subprocess.Popen[str]:
        folder.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "spark.cluster.work", master, task, str(cluster_store), str(folder)]
        process = subprocess.Popen(
            [*command, *map(str, more)],
            cwd=ROOT / "tests",
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:  # Java ends with it
        process.kill()
        process.communicate()


def answer_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a driver printed, when it is done."""
    out, err = process.communicate(timeout=DRIVER_SECONDS)
    assert process.returncode == 0, err[-5000:]
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer
