"""A DataFrame, or a stream of them, into topics of brokers. What is sent is there: nothing is taken back."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock.errors import UsageError
from penstock.spark.network.access import READING_GROUP, Access, make_access
from penstock.spark.network.rowsender import Identity, RowSender, Written
from penstock.spark.rowencoder import WritePlan
from penstock.spark.sink import BATCH_ID, QUERY_ID
from penstock.spark.writeoptions import WriteOptions
from penstock.spark.writer import make_plan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("penstock.spark")


@dataclass
class Sent(WriterCommitMessage):
    """What a task tells the driver."""

    written: Written


def access_of(options: WriteOptions) -> Access:
    """How the options say that brokers are reached."""
    assert options.namesrv is not None
    return make_access(options.namesrv, READING_GROUP, dict(options.reaching))


def _send(plan: WritePlan, identity: Identity, iterator: Iterator[pa.RecordBatch]) -> Sent:
    written = RowSender(plan, access_of(plan.options), identity).send(iterator)
    if written.skipped:
        log.info("%d rows of an earlier attempt were there already", written.skipped)
    return Sent(written)


class BrokerWriter(DataSourceArrowWriter):
    """One batch write. A task that runs again sends what the first attempt did not."""

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        self.plan = make_plan(options, schema, overwrite=overwrite)
        self.write_name = self.plan.options.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        return _send(self.plan, Identity(self.write_name, context.partitionId()), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Everything is at the brokers already."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.warning("a write failed: what its tasks had sent stays with the brokers")


class BrokerSink(DataSourceStreamArrowWriter):
    """The micro-batches of a stream. A batch that is repeated sends what is missing."""

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        self.plan = make_plan(options, schema, overwrite=overwrite)
        if self.plan.options.write_id is not None:
            raise UsageError("a stream is known by its checkpoint", hint="leave out writeId")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            log.warning("Spark does not tell the query's id: a batch may be repeated after a crash")
            name = uuid.uuid4().hex
        else:
            name = f"{query} {batch}"
        return _send(self.plan, Identity(name, context.partitionId()), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Everything is at the brokers already."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        log.warning("batch %d failed: what its tasks had sent stays with the brokers", batchId)
