"""A session from ``session()``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_counts_and_has_arrow_on(spark: SparkSession) -> None:
    assert spark.range(100).count() == 100
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
