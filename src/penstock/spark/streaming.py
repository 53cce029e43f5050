"""A store, or brokers, as a stream: what Spark calls, on the driver and in the tasks.

The driver's side is one long-lived process per query, which holds one reader and asks it through a socket;
its work is done by ``Course``. The tasks get a copy of the reader, pickled before anything was opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.spark.body import StreamBody, group_of, split_batches, watch_of
from penstock.spark.course import Course
from penstock.spark.offsets import starting_json
from penstock.spark.options import ReadOptions
from penstock.spark.ranges import QueueRange
from penstock.spark.schema import as_spark_has_it

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

Json = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is appended to a store or sent to brokers, batch by batch, each message once."""

    def __init__(
        self, options: ReadOptions, columns: Sequence[str], schema: StructType | None = None
    ) -> None:
        self._options = options
        self._columns = list(columns)
        self._schema = schema
        self._opened: tuple[Course, StreamBody] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Open files and positions belong to the driver's process.
        return {**self.__dict__, "_opened": None}

    def _open(self) -> tuple[Course, StreamBody]:
        if self._opened is None:
            group = group_of(self._options)
            watch = watch_of(self._options)
            self._opened = Course(self._options, watch, group=group), watch
        return self._opened

    @property
    def _course(self) -> Course:
        return self._open()[0]

    # -- the driver --------------------------------------------------------------------------------

    def initialOffset(self) -> Json:
        """Where a new query begins. Asked again when batch 0 is replayed: the logged end then wins."""
        return self._course.initial()

    def prepareForTriggerAvailableNow(self) -> None:
        self._course.freeze_target()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What Spark hands back to ``latestOffset``, unless the trigger is to take everything.

        Only one limit can be said here; the course applies all of them.
        """
        limits = self._course.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        return self._course.latest(start, everything=isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> Json:
        return self._course.report()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        course, watch = self._open()
        ranges = [QueueRange(*key, *span) for key, span in sorted(course.ranges(start, end).items())]
        if not ranges:
            return []
        return [InputPartition(split) for split in watch.plan(ranges, self._columns)]

    def commit(self, end: Json) -> None:
        self._course.commit(end)

    def stop(self) -> None:
        """Spark kills the process instead; nothing depends on it."""

    # -- the tasks ---------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batches = split_batches(partition.value, self._columns, self._options)
        yield from as_spark_has_it(batches, self._schema)


def frozen_start(options: Mapping[str, Any]) -> str:
    """What ``startingOffsets`` has to be so that a query begins where ``options`` say at this moment.

    "latest", times and groups become an offset for each queue there is; a queue that comes later is read from
    its first message. "earliest" stays what it is: it does not run away from anybody.
    """
    parsed = ReadOptions.parse(options)
    watch = watch_of(parsed)
    moving = (parsed.startingTimestamp, parsed.startingOffsetsByTimestamp, parsed.startingGroup)
    if parsed.startingOffsets in (None, "earliest") and not any(start is not None for start in moving):
        return "earliest"
    watch.refresh(thoroughly=True)
    return starting_json(watch.starts())
