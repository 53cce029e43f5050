"""A stream into a store, exactly once: what was published is known by query and batch."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.errors import UsageError
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

    The query's id comes from its checkpoint, so it survives restarts, and ends with the checkpoint.
    """

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        self.plan = make_plan(options, schema, overwrite=overwrite)
        if self.plan.options.write_id is not None:
            # Batches are numbered from 0 again after a new checkpoint: the id would make them look repeated.
            raise UsageError("a stream is known by its checkpoint", hint="leave out writeId")

    def step(self, name: str) -> None:
        """Called between two steps of a commit."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        key, number = (query, int(batch)) if query is not None and batch is not None else (None, -1)
        encoder = RowEncoder(self.plan, context.partitionId())
        area = StagingArea(self.plan.options.path)
        folder = _name(key, number) if key is not None else f"stream-unknown/{uuid.uuid4().hex}"
        run = encoder.stage(iterator, area, folder, attempt_name(context))
        return Staged(context.partitionId(), run, key, number)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        options = self.plan.options
        runs, key = ordered(messages), _key(messages)
        if key is not None:
            publish(options.path, Publication(_name(key, batchId), runs, key, batchId), step=self.step)
        elif runs:
            log.warning("Spark does not tell the query's id: batch %d may be repeated after a crash", batchId)
            name = f"stream-unknown/{uuid.uuid4().hex}"
            publish(options.path, Publication(name, runs), step=self.step)
        StagingArea(options.path).sweep(options.sweep_after)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        runs = [message.run for message in messages if isinstance(message, Staged)]
        withdraw(self.plan.options.path, _name(_key(messages) or "unknown", batchId), runs)


def _key(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    """The query, as its tasks were told; None when they were not."""
    keys = {message.key for message in messages if isinstance(message, Staged)}
    return keys.pop() if len(keys) == 1 else None


def _name(key: str, number: int) -> str:
    """The staging folder of a batch."""
    return f"stream-{key}/{number}"
