"""Splits become tasks, rows come back in order, and an error of ours stays one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

from penstock.errors import CorruptRecord
from penstock.spark import jobs
from penstock.spark.jobs.job import run_splits, split_frame

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


def test_a_job_is_its_function_also_after_its_module_was_imported() -> None:
    import penstock.spark.jobs.verify

    assert callable(jobs.verify) and callable(jobs.rebuild) and callable(jobs.export)
    assert penstock.spark.jobs.verify is jobs.verify
