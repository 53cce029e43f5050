"""The pipeline of ``examples/pipeline`` by Spark's own ``spark-pipelines``: raw, decoded, sums by minute."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import Message, StoreConfig
from penstock.store.opening import open_writable

from ..cluster.standalone import ROOT, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.cluster

EXAMPLE = ROOT / "examples" / "pipeline"
CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=100, max_index_num=400)
ITEMS = ("espresso", "tea", "cake")


def put(store: Path, begin: int, end: int) -> None:
    orders = [
        Message(
            "orders",
            json.dumps({"item": ITEMS[n % 3], "count": n % 4, "price": 2.5}).encode(),
            queue_id=n % 2,
        )
        for n in range(begin, end)
    ]
    with open_writable(store, config=CONFIG) as opened:
        opened.put_many([*orders, Message("orders", b"no order", queue_id=0)])
        opened.wait_visible()


def run_pipeline(folder: Path, store: Path) -> str:
    """Run the example once, with everything it writes in ``folder``."""
    project = folder / "pipeline"
    if not project.exists():
        shutil.copytree(EXAMPLE, project)
        spec = project / "spark-pipeline.yml"
        spec.write_text(spec.read_text().replace("file:///tmp/orders-pipeline", f"file://{folder}/storage"))
    settings = {
        "spark.penstock.store": str(store),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("spark-pipelines")),
            "run",
            *(word for pair in settings.items() for word in ("--conf", "=".join(pair))),
        ],
        cwd=project,
        env={**environment(), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout + done.stderr


def test_a_topic_becomes_tables(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    store = tmp_path / "store"
    put(store, 0, 90)
    assert "Run is COMPLETED" in run_pipeline(tmp_path, store)
    warehouse = tmp_path / "warehouse"
    decoded = spark.read.parquet(str(warehouse / "orders"))
    assert decoded.count() == 91
    assert decoded.where("unreadable = 'no order' and item is null").count() == 1
    assert decoded.select("queueId", "queueOffset").distinct().count() == 91
    sums = spark.read.parquet(str(warehouse / "orders_by_minute"))
    found = sums.groupBy("item").sum("orders", "pieces", "revenue").collect()
    wanted = {item: (30, sum(n % 4 for n in range(90) if ITEMS[n % 3] == item)) for item in ITEMS}
    assert {row.item: (row["sum(orders)"], row["sum(pieces)"]) for row in found} == wanted
    assert {row.item: row["sum(revenue)"] for row in found} == {
        item: pieces * 2.5 for item, (_, pieces) in wanted.items()
    }
