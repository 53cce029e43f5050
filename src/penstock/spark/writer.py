"""A DataFrame into a store: tasks stage whole records, the driver publishes them at once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from penstock.config import StoreConfig
from penstock.errors import StoreError, UsageError
from penstock.files.disk import DiskStorage
from penstock.spark.publishing import Publication, publish, settle, withdraw
from penstock.spark.rowencoder import RowEncoder, WritePlan
from penstock.spark.staging import StagedRun, StagingArea
from penstock.spark.writeoptions import WriteOptions, column_roles
from penstock.store.sizes import detect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass
class Staged(WriterCommitMessage):
    """What a task attempt tells the driver: where its records are, and whose they are."""

    partition: int
    run: StagedRun
    key: str | None = None
    number: int = -1


def make_plan(options: dict[str, str], schema: StructType, *, overwrite: bool) -> WritePlan:
    """Check everything that can be checked before a task runs."""
    if overwrite:
        raise UsageError(
            "a store is a log: it is appended to, never overwritten",
            hint='write with .mode("append"); to begin anew, write to a new directory',
        )
    parsed = WriteOptions.parse(options)
    roles = column_roles(schema, parsed.topic)
    config = StoreConfig()
    return WritePlan(parsed, roles, config if parsed.namesrv else detect(DiskStorage(), parsed.path, config))


def attempt_name(context: Any) -> str:
    """A name that no two attempts share, not even a retry that Spark numbers the same in a new stage."""
    return (
        f"{context.partitionId()}-{context.attemptNumber()}-{context.taskAttemptId()}-{uuid.uuid4().hex[:8]}"
    )


def ordered(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRun]:
    """The runs in the order of their partitions: order within a queue is the DataFrame's."""
    given = [message for message in messages if isinstance(message, Staged)]
    if len(given) != len(messages):
        raise StoreError(f"{len(messages) - len(given)} tasks did not say where their records are")
    return [message.run for message in sorted(given, key=lambda m: m.partition) if message.run.records]


class RocketMQWriter(DataSourceArrowWriter):
    """One batch write. Nothing of it is visible before ``commit`` has decided it, and all of it after."""

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        self.plan = make_plan(options, schema, overwrite=overwrite)
        self.write_name = f"batch-{uuid.uuid4().hex}"

    def step(self, name: str) -> None:
        """Called between two steps of a commit."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        encoder = RowEncoder(self.plan, context.partitionId())
        area = StagingArea(self.plan.options.path)
        run = encoder.stage(iterator, area, self.write_name, attempt_name(context))
        return Staged(context.partitionId(), run)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options = self.plan.options
        publication = Publication(self.write_name, ordered(messages), options.write_id)
        publish(options.path, publication, step=self.step)
        StagingArea(options.path).sweep(options.sweep_after)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        withdraw(self.plan.options.path, self.write_name)


def settle_interrupted(path: str | Path) -> str | None:
    """Settle what a killed write left behind, as the next write would: "rolled back", "finished", or None."""
    return settle(path)
