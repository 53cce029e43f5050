"""A Delta that does not go with this Spark is refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SparkUnavailable
from penstock.spark.jobs.deltatable import _satisfies, check_delta, condition_of
from penstock.spark.ranges import QueueRange

from .inprocess import without_spark
from .test_export import put


def install(folder: Path, version: str, *requires: str) -> None:
    """What pip leaves of delta-spark, as far as anybody looks at it."""
    (folder / "delta").mkdir()
    (folder / "delta" / "__init__.py").touch()
    (folder / f"delta_spark-{version}.dist-info").mkdir()
    lines = [
        "Metadata-Version: 2.4",
        "Name: delta-spark",
        f"Version: {version}",
        *(f"Requires-Dist: {text}" for text in requires),
    ]
    (folder / f"delta_spark-{version}.dist-info" / "METADATA").write_text("\n".join(lines) + "\n")


def test_delta_without_its_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = without_spark(monkeypatch, "export")
    put(tmp_path / "store", 0, 6)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SparkUnavailable, match="delta-spark is not installed"):
        job.export(None, str(tmp_path / "store"), str(tmp_path / "out"), format="delta")
    assert not (tmp_path / "out").exists()


def test_delta_for_another_spark_is_refused_and_says_for_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyspark

    job: Any = without_spark(monkeypatch, "export")
    put(tmp_path / "store", 0, 6)
    (tmp_path / "site").mkdir()
    install(tmp_path / "site", "4.4.1", "pyspark<=4.2.0,>=4.0.1", "importlib_metadata<=8.7.1,>=1.0.0")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with pytest.raises(SparkUnavailable) as caught:
        job.export(None, str(tmp_path / "store"), str(tmp_path / "out"), format="delta")
    assert "delta-spark 4.4.1 is made for pyspark<=4.2.0,>=4.0.1" in str(caught.value)
    assert f"Spark {pyspark.__version__}" in str(caught.value) and "parquet" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_delta_for_this_spark_is_let_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    install(tmp_path, "9.0.0", f"pyspark<={pyspark.__version__},>=4.0.1", "pyspark-client<1")
    monkeypatch.syspath_prepend(str(tmp_path))
    check_delta()


@pytest.mark.parametrize(
    ("version", "requirement", "good"),
    [
        ("4.3.0", "pyspark<=4.2.0,>=4.0.1", False),
        ("4.2.0", "pyspark<=4.2.0,>=4.0.1", True),
        ("4.3.0", "pyspark (<4.4,>=4.3)", True),
        ("4.3.0.dev1", "pyspark==4.3", True),
        ("4.10.0", "pyspark<4.4", False),
        ("4.3.2", "pyspark~=4.3.0", True),
        ("4.4.0", "pyspark~=4.3.0", False),
        ("4.3.0", "pyspark", True),
    ],
)
def test_bounds_of_requirements_are_understood(version: str, requirement: str, good: bool) -> None:
    assert _satisfies(version, requirement) is good


def test_ranges_become_a_condition_that_quotes_topics() -> None:
    assert condition_of([QueueRange("it's", 1, 5, 9)]) == (
        "(topic = 'it\\'s' and queueId = 1 and queueOffset >= 5 and queueOffset < 9)"
    )
