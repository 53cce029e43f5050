"""Summaries that add up: quantiles with a bounded error, and the frequent items of a stream.

Each task makes its own, of whatever size its split is; merged they say the same as one over everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

RELATIVE_ERROR = 0.01
_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GAMMA = math.log(_GAMMA)


# -- quantiles ---------------------------------------------------------------------------------------


def bucket_column(values: Any) -> Any:
    """The bucket of each whole number of an Arrow array: 0 for zero and below, else 1 and more, by its
    logarithm.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    positive = pc.max_element_wise(values, pa.scalar(1, values.type))
    logarithm = pc.divide(pc.ln(pc.cast(positive, pa.float64(), safe=False)), _LOG_GAMMA)
    bucket = pc.add(pc.cast(pc.ceil(logarithm), pa.int32()), 1)
    return pc.if_else(pc.less_equal(values, pa.scalar(0, values.type)), pa.scalar(0, pa.int32()), bucket)


def bucket_value(bucket: int) -> float:
    """What stands for the values of a bucket: none of them is further from it than ``RELATIVE_ERROR``."""
    return 0.0 if bucket <= 0 else 2 * _GAMMA ** (bucket - 1) / (_GAMMA + 1)


def quantiles(counts: Mapping[int, int], wanted: Iterable[float]) -> dict[str, float]:
    """``{"p50": …}``: values that so much of the whole does not exceed, within ``RELATIVE_ERROR``.

    ``counts`` are numbers of values by bucket. The value at rank floor(q * (n - 1)) is meant; empty for none.
    """
    ordered = sorted(counts.items())
    whole = sum(counts.values())
    found: dict[str, float] = {}
    for share in wanted:
        if not whole:
            break
        rank, seen = math.floor(share * (whole - 1)), 0
        for bucket, count in ordered:
            seen += count
            if seen > rank:
                found[f"p{share * 100:g}"] = bucket_value(bucket)
                break
    return found


# -- frequent items ----------------------------------------------------------------------------------


class FrequentItems:
    """Counters of (topic, item), at most ``capacity`` for each topic: Misra and Gries' summary.

    ``total[topic]`` is the number of items counted. An item's counter is too low by ``error[topic]`` at
    most, and that is at most the total divided by ``capacity + 1``: so every item that is more frequent than
    that has a counter. Where the error is 0 all counters are exact. Counters, totals and errors of several
    add up to those of their union.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.error: dict[str, int] = {}
        self.total: dict[str, int] = {}
        self._table: Any = None
        self._waiting: list[Any] = []
        self._rows = 0

    def add(self, topics: Any, items: Any) -> None:
        """Count one of each pair of two Arrow arrays. Rows without an item are passed over."""
        import pyarrow as pa

        found = pa.table({"topic": topics, "item": items}).filter(items.is_valid())
        sizes = found.group_by("topic").aggregate([([], "count_all")])
        for topic, count in zip(sizes["topic"].to_pylist(), sizes["count_all"].to_pylist(), strict=True):
            self.total[topic] = self.total.get(topic, 0) + count
        self._take(found.group_by(["topic", "item"]).aggregate([([], "count_all")]))

    def counters(self) -> pyarrow.Table:
        """Columns topic, item and count."""
        import pyarrow as pa

        self._settle()
        if self._table is None:
            return pa.table(
                {
                    "topic": pa.array([], pa.string()),
                    "item": pa.array([], pa.string()),
                    "count": pa.array([], pa.int64()),
                }
            )
        return self._table

    def _take(self, table: Any) -> None:
        self._waiting.append(table.select(["topic", "item", "count_all"]))
        self._rows += table.num_rows
        # Grouping costs more than keeping: wait until there is something to win.
        if self._rows > 4 * self.capacity:
            self._settle()

    def _settle(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._waiting:
            return
        tables = [table.rename_columns(["topic", "item", "count"]) for table in self._waiting]
        if self._table is not None:
            tables.append(self._table)
        self._waiting, self._rows = [], 0
        summed = pa.concat_tables(tables).group_by(["topic", "item"]).aggregate([("count", "sum")])
        table = summed.select(["topic", "item", "count_sum"]).rename_columns(["topic", "item", "count"])
        sizes = table.group_by("topic").aggregate([([], "count_all")])
        for topic, size in zip(sizes["topic"].to_pylist(), sizes["count_all"].to_pylist(), strict=True):
            if size <= self.capacity:
                continue
            mine = pc.equal(table["topic"], topic)
            own = table.filter(mine)
            # What the first item without a counter has, everybody loses: so nobody loses more than their
            # share.
            order = pc.sort_indices(own["count"], sort_keys=[("count", "descending")])
            lost = own["count"][order[self.capacity].as_py()].as_py()
            own = own.set_column(2, "count", pc.subtract(own["count"], lost)).filter(
                pc.greater(own["count"], lost)
            )
            self.error[topic] = self.error.get(topic, 0) + lost
            table = pa.concat_tables([table.filter(pc.invert(mine)), own])
        self._table = table
