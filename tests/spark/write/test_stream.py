"""A stream into a store: every message once, wherever the sink dies and however often a batch is repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import open_store
from penstock.spark.publishing import STEPS
from spark.write.killing import PLAN, DyingSource
from spark.write.publishing import ROOT, make_store, numbers_in

KILLS = ("before write", "after write", "before commit", *STEPS, "after commit")
SHORT = ("after write", "begun", "marked")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def feed(folder: Path, first: int, count: int) -> None:
    """A file of numbered lines, as the source of a stream."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{first}.txt"
    hidden.write_text("".join(f"{n:06d}\n" for n in range(first, first + count)))
    hidden.rename(folder / f"{first}.txt")


def numbered(spark: SparkSession, folder: Path) -> DataFrame:
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    return lines.select(F.lit("t1").alias("topic"), F.col("value").alias("body")).repartition(2, "body")


def run(rows: DataFrame, path: Path, work: Path, **options: str) -> None:
    """One run of the query: what is there, then end."""
    writer = rows.writeStream.format(options.pop("format", "rocketmq")).options(**options)
    query = writer.option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True)
    query.start(str(path)).awaitTermination()


def test_stream_writes_every_batch_and_leaves_only_its_marker(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    for first in (0, 100):
        feed(tmp_path / "in", first, 100)
        run(numbered(spark, tmp_path / "in"), path, tmp_path)
    assert numbers_in(path) == Counter(range(200))
    (marker,) = [p for p in (path / "penstock.spark").rglob("*") if p.is_file()]
    assert marker.parent.name == "markers"


def survive(spark: SparkSession, path: Path, work: Path, step: str) -> None:
    """Two good batches around one in which the sink dies once."""
    spark.dataSource.register(DyingSource)
    plan = work / "plan"
    feed(work / "in", 0, 50)
    rows = numbered(spark, work / "in")
    run(rows, path, work, format="dyingmq", **{PLAN: str(plan)})
    feed(work / "in", 50, 50)
    plan.write_text(step)
    try:
        run(rows, path, work, format="dyingmq", **{PLAN: str(plan)})
    except (StreamingQueryException, PySparkException) as error:
        assert "exited unexpectedly" in str(error) or "crashed" in str(error), str(error)[:500]
    assert not plan.exists(), f"nothing died at {step!r}"
    feed(work / "in", 100, 50)
    run(rows, path, work, format="dyingmq", **{PLAN: str(plan)})
    assert numbers_in(path) == Counter(range(150)), step


@pytest.mark.parametrize("step", SHORT)
def test_message_is_there_once_though_the_sink_died(
    spark: SparkSession, path: Path, tmp_path: Path, step: str
) -> None:
    survive(spark, path, tmp_path, step)
    assert sorted(p.name for p in (path / "penstock.spark").iterdir()) == ["markers"]


@pytest.mark.cluster
@pytest.mark.parametrize("step", [step for step in KILLS if step not in SHORT])
def test_message_is_there_once_wherever_the_sink_died(
    spark: SparkSession, path: Path, tmp_path: Path, step: str
) -> None:
    survive(spark, path, tmp_path, step)
    assert sorted(p.name for p in (path / "penstock.spark").iterdir()) == ["markers"]


@pytest.mark.parametrize("step", ["begun", "done"])
def test_batch_write_whose_commit_died_leaves_nothing_and_can_be_repeated(
    spark: SparkSession, path: Path, tmp_path: Path, step: str
) -> None:
    spark.dataSource.register(DyingSource)
    plan = tmp_path / "plan"
    plan.write_text(step)
    rows = spark.range(100).select(F.lit("t1").alias("topic"), F.format_string("%06d", "id").alias("body"))
    writer = rows.write.format("dyingmq").mode("append").option(PLAN, str(plan))
    with pytest.raises((PySparkException, Py4JJavaError)):
        writer.save(str(path))
    with open_store(path) as store:
        assert store.topics() == ["old"]
    writer.save(str(path))
    assert numbers_in(path) == Counter(range(100))


DRIVER = """
import sys
from pathlib import Path
from penstock.spark.session import session
from spark.write.killing import DyingSource, PLAN
from spark.write.test_stream import numbered, run
path, work = Path(sys.argv[1]), Path(sys.argv[2])
opened = session("local[2]", config={"spark.speculation": "true"})
opened.dataSource.register(DyingSource)
run(numbered(opened, work / "in"), path, work, format="dyingmq", **{PLAN: str(work / "plan")})
"""


@pytest.mark.cluster
@pytest.mark.parametrize("step", ["after write", "appended", "done", "after commit"])
def test_message_is_there_once_though_the_driver_was_killed(path: Path, tmp_path: Path, step: str) -> None:
    """The whole driver, Java and all, ends between two steps: between commit and checkpoint too."""
    feed(tmp_path / "in", 0, 50)
    feed(tmp_path / "in", 50, 50)
    (tmp_path / "plan").write_text(step)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    command = [sys.executable, "-c", DRIVER, str(path), str(tmp_path)]
    driver = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        while (tmp_path / "plan").exists() and driver.poll() is None:
            try:
                driver.wait(0.005)
            except subprocess.TimeoutExpired:
                continue
    finally:
        # Its own group: the driver, its Java and its workers, none of which gets to tidy.
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert numbers_in(path) == Counter(range(100))
