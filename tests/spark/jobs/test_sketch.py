"""Summaries: the error they promise, however the data is cut."""

from __future__ import annotations

import math
from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.jobs.sketch import (
    RELATIVE_ERROR,
    FrequentItems,
    bucket_column,
    bucket_value,
    quantiles,
)

VALUES = st.lists(st.integers(0, 2**40), min_size=1, max_size=60)
PARTS = st.lists(
    st.lists(st.tuples(st.sampled_from("tu"), st.sampled_from("abcdefgh")), max_size=40), max_size=6
)


@given(VALUES)
def test_quantiles_are_within_the_error(values: list[int]) -> None:
    counts = Counter(bucket_column(pa.array(values, pa.int64())).to_pylist())
    ordered = sorted(values)
    for share in (0.0, 0.5, 0.9, 1.0):
        exact = ordered[math.floor(share * (len(values) - 1))]
        found = quantiles(counts, [share])[f"p{share * 100:g}"]
        assert abs(found - exact) <= RELATIVE_ERROR * exact + 1e-6


def test_values_at_and_below_zero_are_zero() -> None:
    assert bucket_column(pa.array([-5, 0], pa.int64())).to_pylist() == [0, 0]
    assert bucket_value(0) == 0
    assert quantiles({}, [0.5]) == {}


@given(PARTS, st.integers(1, 5))
def test_every_frequent_item_has_a_counter_that_is_too_low_by_the_error_at_most(
    parts: list[list[tuple[str, str]]], capacity: int
) -> None:
    """Each part is a task's; counters, totals and errors are added up as Spark does."""
    counters: Counter[tuple[str, str]] = Counter()
    errors: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for part in parts:
        frequent = FrequentItems(capacity)
        for pair in part:  # one at a time: the summary is reduced as often as it can be
            frequent.add(pa.array([pair[0]], pa.string()), pa.array([pair[1]], pa.string()))
        for row in frequent.counters().to_pylist():
            counters[row["topic"], row["item"]] += row["count"]
        assert all(
            many <= capacity for many in Counter(r["topic"] for r in frequent.counters().to_pylist()).values()
        )
        errors.update(frequent.error)
        totals.update(frequent.total)
    exact = Counter(pair for part in parts for pair in part)
    assert totals == Counter(topic for part in parts for topic, _ in part)
    for (topic, item), count in exact.items():
        assert count - errors[topic] <= counters[topic, item] <= count
        assert errors[topic] <= totals[topic] / (capacity + 1)
