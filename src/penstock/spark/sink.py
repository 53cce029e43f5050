"""A stream into a store, exactly once: what was published is known by query and batch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.spark.publishing import Publication, publish, withdraw
from penstock.spark.rowencoder import RowEncoder
from penstock.spark.staging import StagingArea
from penstock.spark.writer import Staged, attempt_name, make_plan, ordered

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("penstock.spark")

# Names that Spark gives its own properties; it does not document them, so their absence is coped with.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


class RocketMQSink(DataSourceStreamArrowWriter):
    """Publishes each micro-batch once per (query, batch), however often Spark repeats it.

    The query's id comes from its checkpoint, so it survives restarts. With ``writeId`` the user gives the
    identity instead; then it must not be shared with another query.
    """

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        self.plan = make_plan(options, schema, overwrite=overwrite)

    def step(self, name: str) -> None:
        """Called between two steps of a commit."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        key = self.plan.options.write_id or context.getLocalProperty(QUERY_ID)
        batch = context.getLocalProperty(BATCH_ID)
        number = int(batch) if batch is not None else -1
        encoder = RowEncoder(self.plan, context.partitionId())
        area = StagingArea(self.plan.options.path)
        run = encoder.stage(iterator, area, _name(key, number), attempt_name(context))
        return Staged(context.partitionId(), run, key, number)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        options = self.plan.options
        keys = {(m.key, m.number) for m in messages if isinstance(m, Staged)}
        key, number = keys.pop() if len(keys) == 1 else (options.write_id, batchId)
        if key is None and keys == set():
            log.warning("Spark does not tell the query's id: batch %d may be repeated after a crash", batchId)
        runs = ordered(messages)
        if runs or key is not None:
            publish(options.path, Publication(_name(key, number), runs, key, batchId), step=self.step)
        StagingArea(options.path).sweep(options.sweep_after)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        given = [message for message in messages if isinstance(message, Staged)]
        for key, number in {(message.key, message.number) for message in given}:
            withdraw(self.plan.options.path, _name(key, number), [message.run for message in given])


def _name(key: str | None, number: int) -> str:
    """The staging folder of a batch."""
    return f"stream-{key or 'unknown'}/{number}"
