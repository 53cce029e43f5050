"""Splits become tasks, rows come back in order, and an error of ours stays one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import CorruptRecord
from penstock.spark import jobs
from penstock.spark.jobs.job import run_each, run_splits, split_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def repeated(split: int, *, times: int) -> Iterator[tuple[int, str]]:
    if split < 0:
        raise CorruptRecord("some/file", 12, found="no record", hint="mend it")
    for number in range(times):
        yield split, f"{split}.{number}"


def test_rows_come_in_the_order_of_the_splits_and_progress_is_told(spark: SparkSession) -> None:
    told: list[tuple[int, int]] = []
    rows = run_splits(
        spark,
        [3, 1, 2],
        partial(repeated, times=2),
        "split int, text string",
        progress=lambda *done: told.append(done),
    )
    assert [tuple(row) for row in rows] == [
        (3, "3.0"),
        (3, "3.1"),
        (1, "1.0"),
        (1, "1.1"),
        (2, "2.0"),
        (2, "2.1"),
    ]
    assert told[0] == (0, 3) and told[-1] == (3, 3)
    assert run_splits(spark, [], partial(repeated, times=2), "split int, text string") == []
    frame = split_frame(spark, [5, 6], partial(repeated, times=1), "split int, text string")
    assert frame.rdd.getNumPartitions() == 2


def test_an_error_of_a_task_is_raised_as_what_it_is(spark: SparkSession) -> None:
    with pytest.raises(CorruptRecord) as caught:
        run_splits(spark, [-1], partial(repeated, times=1), "split int, text string")
    assert str(caught.value) == "some/file at offset 12: corrupt record: no record (mend it)"


def halved(split: int) -> dict[str, Any]:
    if split < 0:
        raise CorruptRecord("some/file", 12, found="no record", hint="mend it")
    return {"half": split / 2}


class WithoutContext:
    """A session that has no context to ask, as one of Spark Connect."""

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark

    def __getattr__(self, name: str) -> Any:
        if name == "_sc":
            raise AttributeError(name)
        return getattr(self._session, name)


def test_values_come_in_the_order_of_the_splits_with_and_without_a_context(spark: SparkSession) -> None:
    told: list[tuple[int, int]] = []
    values = run_each(spark, [3, 1, 2], halved, progress=lambda *done: told.append(done))
    assert values == [{"half": 1.5}, {"half": 0.5}, {"half": 1.0}]
    assert told[0] == (0, 3) and told[-1] == (3, 3)
    assert run_each(spark, [], halved) == []
    assert run_each(WithoutContext(spark), [3, 1, 2], halved) == values  # type: ignore[arg-type]
    with pytest.raises(CorruptRecord) as caught:
        run_each(spark, [1, -1], halved)
    assert str(caught.value) == "some/file at offset 12: corrupt record: no record (mend it)"


def test_a_job_is_its_function_also_after_its_module_was_imported() -> None:
    import penstock.spark.jobs.verify

    assert callable(jobs.verify) and callable(jobs.rebuild) and callable(jobs.export)
    assert penstock.spark.jobs.verify is jobs.verify
