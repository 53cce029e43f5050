"""What a task of an export does: messages of a split into Parquet files by topic and day, written by pyarrow.

Files are written below a staging folder under names that no other attempt uses; which of them count is told
by the rows that the task gives, and decided by the driver.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.errors import StoreError
from penstock.spark.body import split_batches
from penstock.spark.jobs.exportstate import ExportedFile, QueueSpan, make_folder
from penstock.spark.location import Location, open_filesystem
from penstock.spark.options import ReadOptions

if TYPE_CHECKING:
    from penstock.spark.body import AnySplit

log = logging.getLogger("penstock.spark")

ROWS_SCHEMA = "staged string, path string, topic string, day string, rows long, bytes long, queues string"
ROW_GROUP_ROWS = 128 << 10
ROW_GROUP_BYTES = 32 << 20
HELD_BYTES = 192 << 20
OPEN_FILES = 128
# Values that repeat; for the others a dictionary costs time and saves nothing.
_REPEATING = [
    "queueId",
    "tags",
    "bornHost",
    "storeHost",
    "flag",
    "sysFlag",
    "reconsumeTimes",
    "preparedTransactionOffset",
]
_PROPERTY_NAME = "properties.key_value.key"
_DAY_ONE = date(1970, 1, 1)


@dataclass(frozen=True)
class ExportPart:
    """One task: a split of the source, or an earlier file of which some rows are replaced by others."""

    number: int
    run: str
    target: Location
    staging: str
    columns: tuple[str, ...]
    compression: str
    split: AnySplit | None = None
    options: ReadOptions = field(default_factory=ReadOptions)
    kept: ExportedFile | None = None
    replaced: tuple[tuple[int, int, int], ...] = ()
    """Queue and offsets [start, end) that go out of ``kept``."""


def export_part(part: ExportPart) -> Iterator[tuple[Any, ...]]:
    """The work of one task: rows of :data:`ROWS_SCHEMA`, one for each file."""
    writer = PartitionedWriter(part)
    try:
        if part.split is not None:
            for batch in split_batches(part.split, part.columns, part.options):
                writer.add(batch)
        elif part.kept is not None:
            _keep_rest(part, part.kept, writer)
        files = writer.close()
    except BaseException:
        writer.abandon()
        raise
    for staged, file in files:
        queues = json.dumps({str(queue): span for queue, span in file.queues.items()})
        yield staged, file.path, file.topic, file.day, file.rows, file.bytes, queues


def _keep_rest(part: ExportPart, kept: ExportedFile, writer: PartitionedWriter) -> None:
    """Rows of an earlier file that are not replaced."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = f"{part.target.path}/{kept.path}"
    table = pq.read_table(path, filesystem=open_filesystem(part.target), partitioning=None)
    out = pc.scalar(False)
    for queue, start, end in part.replaced:
        within = (pc.field("queueId") == queue) & (pc.field("queueOffset") >= start)
        out = out | (within & (pc.field("queueOffset") < end))
    rest = table.filter(~out)
    for batch in rest.to_batches():
        day = (date.fromisoformat(kept.day) - _DAY_ONE).days
        writer.hold((kept.topic, day), batch, batch.nbytes)


@dataclass(slots=True)
class _Group:
    """Rows of one topic and day that wait to be written, and the file they go to."""

    batches: list[Any] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    writer: Any = None
    staged: str = ""
    file: ExportedFile | None = None


class PartitionedWriter:
    """Parquet files by topic and day. Memory is bounded whatever the number of topics is."""

    def __init__(self, part: ExportPart) -> None:
        self.part = part
        self._filesystem = open_filesystem(part.target)
        self._attempt = uuid.uuid4().hex
        self._groups: dict[tuple[str, int], _Group] = {}
        self._held = 0
        self._open: list[_Group] = []
        self._done: list[tuple[str, ExportedFile]] = []
        self._count = 0

    def add(self, batch: Any) -> None:
        """Rows of any topics and days."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not batch.num_rows:
            return
        topics = batch.column("topic").dictionary_encode()
        days = pc.cast(pc.cast(batch.column("storeTimestamp"), pa.date32()), pa.int32())
        codes = pc.add(pc.multiply(pc.cast(topics.indices, pa.int64()), 1 << 32), pc.cast(days, pa.int64()))
        rows = batch.drop_columns(["topic"])
        each = rows.nbytes / rows.num_rows  # of parts of it, the number costs more than the work
        extremes = pc.min_max(codes)
        if extremes["min"] == extremes["max"]:
            self.hold((topics.dictionary[0].as_py(), days[0].as_py()), rows, rows.nbytes)
            return
        order = pc.sort_indices(codes)
        sorted_rows = rows.take(order)
        begin = 0
        ends = pc.run_end_encode(codes.take(order))
        for code, end in zip(ends.values.to_pylist(), ends.run_ends.to_pylist(), strict=True):
            number = code >> 32
            key = (topics.dictionary[number].as_py(), code - (number << 32))
            self.hold(key, sorted_rows.slice(begin, end - begin), int(each * (end - begin)))
            begin = end

    def hold(self, key: tuple[str, int], batch: Any, size: int) -> None:
        """Rows of one topic and day (in days since 1970), and about how many bytes they are."""
        group = self._groups.setdefault(key, _Group())
        group.batches.append(batch)
        group.rows += batch.num_rows
        group.bytes += size
        self._held += size
        if group.rows >= ROW_GROUP_ROWS or group.bytes >= ROW_GROUP_BYTES:
            self._write(key, group)
        elif self._held > HELD_BYTES:
            self._write(*max(self._groups.items(), key=lambda item: item[1].bytes))

    def close(self) -> list[tuple[str, ExportedFile]]:
        """Finish all files: staged path and description of each."""
        for key, group in self._groups.items():
            if group.batches:
                self._write(key, group)
        while self._open:
            self._finish(self._open[0])
        return self._done

    def abandon(self) -> None:
        """Let go of the files after an error; the driver sweeps them."""
        for group in self._open:
            try:
                group.writer.close()
            except OSError as error:
                log.warning("%s: cannot be closed: %s", group.staged, error)
        self._open.clear()

    def _write(self, key: tuple[str, int], group: _Group) -> None:
        import pyarrow as pa

        table = pa.Table.from_batches(group.batches)
        if group.writer is None:
            if len(self._open) >= OPEN_FILES:
                self._finish(self._open[0])
            self._begin(key, group, table.schema)
        group.writer.write_table(table, row_group_size=table.num_rows)
        assert group.file is not None
        group.file = group.file.with_rows(table.num_rows, _spans(table))
        self._held -= group.bytes
        group.batches, group.rows, group.bytes = [], 0, 0

    def _begin(self, key: tuple[str, int], group: _Group, schema: Any) -> None:
        import pyarrow.parquet as pq

        topic, number = key
        day = (_DAY_ONE + timedelta(days=number)).isoformat()
        part = self.part
        folder = f"topic={quote(topic, safe='')}/dt={day}"
        path = f"{folder}/{part.run}-{part.number:05d}-{self._count:04d}.parquet"
        self._count += 1
        group.staged = f"{part.staging}/{self._attempt}/{path}"
        group.file = ExportedFile(path, topic, day)
        full = f"{part.target.path}/{group.staged}"
        try:
            make_folder(part.target, self._filesystem, full)
        except OSError as error:
            raise StoreError(
                f"cannot make the folder of a topic: {error.strerror or error}",
                file=str(part.target),
                hint="a name that is too long for this file system? Name the other topics with --topic",
            ) from error
        names = set(schema.names)
        group.writer = pq.ParquetWriter(
            full,
            schema,
            filesystem=self._filesystem,
            compression=part.compression,
            use_dictionary=[*(name for name in _REPEATING if name in names), _PROPERTY_NAME],
            write_statistics=[name for name in ("queueId", "queueOffset", "storeTimestamp") if name in names],
            store_schema=False,
        )
        self._open.append(group)

    def _finish(self, group: _Group) -> None:
        group.writer.close()
        self._open.remove(group)
        assert group.file is not None
        size = self._filesystem.get_file_info(f"{self.part.target.path}/{group.staged}").size
        self._done.append((group.staged, group.file.with_bytes(size)))
        group.writer = None


def _spans(table: Any) -> dict[int, QueueSpan]:
    """Of each queue: least and greatest offset, and number of rows."""
    found = table.group_by("queueId", use_threads=False).aggregate(
        [("queueOffset", "min"), ("queueOffset", "max"), ("queueOffset", "count")]
    )
    return {
        row["queueId"]: (row["queueOffset_min"], row["queueOffset_max"], row["queueOffset_count"])
        for row in found.to_pylist()
    }


def run_name(when: datetime | None = None) -> str:
    """A name for one run of the job: sorts by time, and no other run has it."""
    return f"{(when or datetime.now(UTC)):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


def total_rows(files: Iterable[ExportedFile]) -> dict[tuple[str, int], tuple[int, int]]:
    """Of each queue: rows and greatest offset in the files."""
    totals: dict[tuple[str, int], tuple[int, int]] = {}
    for file in files:
        for queue, (_, high, rows) in file.queues.items():
            known = totals.get((file.topic, queue), (0, -1))
            totals[file.topic, queue] = (known[0] + rows, max(known[1], high))
    return totals
