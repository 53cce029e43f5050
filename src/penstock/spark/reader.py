"""A batch read as Spark runs it: planned once on the driver, read in tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, In, InputPartition

from penstock.spark.body import plan_read, split_batches
from penstock.spark.options import ReadOptions
from penstock.spark.schema import as_spark_has_it

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.spark.body import AnySplit

log = logging.getLogger("penstock.spark")


class SplitPartition(InputPartition):
    """One task of a batch read."""

    def __init__(self, split: AnySplit) -> None:
        super().__init__(None)
        self.split = split


class BatchReader(DataSourceReader):
    """Reads what is in the store when the DataFrame is first used. Later uses read the same range again."""

    def __init__(
        self, options: ReadOptions, columns: Sequence[str], schema: StructType | None = None
    ) -> None:
        self._options = options
        self._columns = list(columns)
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [SplitPartition(split) for split in plan_read(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(
            partition, SplitPartition
        ):  # with nothing to read, Spark makes up a partition of its own
            batches = split_batches(partition.split, self._columns, self._options)
            yield from as_spark_has_it(batches, self._schema)


class AdvisingReader(BatchReader):
    """For ``pushFilters``: looks at the filters of a query, and leaves all of them to Spark.

    Spark (4.3) keeps one plan for all uses of a loaded DataFrame, so a plan that leaves out what one query
    filters away gives wrong rows to another, and to the other side of a self-join. Nothing that a reader can
    do tells it which query it serves. So filters never make it read less; they say which options would.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        advice = [text for text in map(_as_option, filters) if text]
        if advice:
            log.warning("reading less is possible with options on a fresh load: %s", ", ".join(advice))
        return filters


_OPTIONS = {"topic": "subscribe", "tags": "tags", "keys": "keys", "uniqKey": "keys"}


def _as_option(condition: Filter) -> str | None:
    """The option that does what a filter does."""
    if not isinstance(condition, EqualTo | In) or len(condition.attribute) != 1:
        return None
    option = _OPTIONS.get(condition.attribute[0])
    values = [condition.value] if isinstance(condition, EqualTo) else list(condition.value)
    if option is None or not all(isinstance(value, str) for value in values):
        return None
    return f"{option}={(' || ' if option == 'tags' else ',').join(values)}"
