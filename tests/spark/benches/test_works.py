"""Every work of ``penstock bench spark``, every way it is done there, on few messages in one session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.bench.spark.data import Dataset, write_store
from penstock.bench.spark.live import serving
from penstock.bench.spark.side import Side
from penstock.bench.spark.turns import Spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 3_000
COUNTED = [
    ("count", "ours"),
    ("count", "tuples"),
    ("count", "parquet"),
    ("group", "ours"),
    ("group", "tuples"),
    ("group", "parquet"),
    ("verify", "ours"),
    ("verify-sql", "ours"),
    ("stream", "ours"),
    ("stream", "parquet"),
]
DONE = [
    ("all", "ours"),
    ("all", "tuples"),
    ("all", "parquet"),
    ("narrow", "ours"),
    ("narrow", "parquet"),
    ("export", "ours"),
    ("export-rows", "ours"),
    ("write", "ours"),
    ("write", "rows"),
    ("write", "parquet"),
]


@pytest.fixture(scope="module")
def side(spark: SparkSession) -> Side:
    made = Side()
    made.spark = spark
    return made


@pytest.fixture(scope="module")
def data(side: Side, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("bench")
    write_store(folder / "store", COUNT, segment=256 << 10)
    made = Dataset(folder / "store", folder / "parquet", COUNT)
    answer = side.parquet({"path": str(made.store), "target": str(made.parquet)})
    assert answer["rows"] == COUNT
    return made


def command(spec: Spec, below: Path) -> dict[str, object]:
    return {
        "do": "run",
        "work": spec.work,
        "arguments": {"source": spec.source, "path": str(spec.path)},
        "below": str(below),
        "warm": 0,
        "repeats": 1,
    }


@pytest.mark.parametrize(("work", "source"), COUNTED)
def test_work_sees_every_message(side: Side, data: Dataset, tmp_path: Path, work: str, source: str) -> None:
    answer = side.answer(command(Spec(work, data, source), tmp_path))
    assert answer["rows"] == COUNT
    assert len(answer["seconds"]) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("work", "source"), DONE)
def test_work_is_done_and_leaves_nothing(
    side: Side, data: Dataset, tmp_path: Path, work: str, source: str
) -> None:
    answer = side.answer(command(Spec(work, data, source), tmp_path))
    assert answer["rows"] in (None, COUNT)
    assert answer["java"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("source", ["live", "loop"])
def test_a_broker_on_the_same_messages_gives_all_of_them(
    side: Side, data: Dataset, tmp_path: Path, source: str
) -> None:
    with serving(data.store) as address:
        asked = command(Spec("count", data, source), tmp_path)
        answer = side.answer({**asked, "arguments": {"source": source, "path": address}})
    assert answer["rows"] == COUNT


def test_memory_of_java_after_collection_is_told(side: Side) -> None:
    assert side.answer({"do": "heap"})["bytes"] > 1 << 20
