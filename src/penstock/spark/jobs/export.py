"""Messages as Parquet, by topic and day of storing: ``topic=…/dt=…``, written where they are read.

The target remembers which offsets of which queues it has. A run without bounds adds what came since; a run
with bounds replaces what the target has of them. Either way every message of a range is there once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock.errors import DataLost, StoreError, UsageError
from penstock.spark.jobs.deltatable import append, check_delta, check_session
from penstock.spark.jobs.exported import Exported, exported
from penstock.spark.jobs.exportfiles import ROWS_SCHEMA, ExportPart, export_part, run_name, total_rows
from penstock.spark.jobs.exportstate import STATE, ExportedFile, ExportState, Manifest
from penstock.spark.jobs.job import Progress, run_splits
from penstock.spark.location import parse_location
from penstock.spark.options import BROKERS, ReadOptions
from penstock.spark.places import open_places
from penstock.spark.ranges import QueueRange
from penstock.spark.schema import NAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = ("parquet", "delta")
COMPRESSIONS = ("snappy", "zstd", "gzip", "lz4", "none")
# Without these a target could not tell its rows apart, nor where they go.
_NEEDED = ("topic", "queueId", "queueOffset", "storeTimestamp")


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What a run wrote, or with ``dry_run`` would. ``replaced_files`` are gone or have become shorter."""

    target: str
    format: str
    dry_run: bool
    ranges: list[QueueRange]
    rows: int = 0
    bytes: int = 0
    files: list[str] = field(default_factory=list)
    replaced_files: list[str] = field(default_factory=list)
    lost: list[tuple[str, int, int, int]] = field(default_factory=list)
    resumed: bool = False
    """An earlier run was stopped while it put its files in place; this one finished it first."""

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "ranges": [part._asdict() for part in self.ranges]}


def export(
    spark: SparkSession,
    path: str,
    target: str,
    *,
    topics: Sequence[str] = (),
    since: str | int | None = None,
    until: str | int | None = None,
    full: bool = False,
    columns: Sequence[str] | None = None,
    format: str = "parquet",
    compression: str = "snappy",
    split_bytes: int | None = None,
    fail_on_data_loss: bool = True,
    dry_run: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> ExportResult:
    """Export a store, or what brokers have (``namesrv://host:port``), into a folder, local or behind a URI
    that every worker can write.

    Without bounds it goes on where the last run into ``target`` ended, queue by queue. With ``since`` /
    ``until`` (as ``startingTimestamp``), with ``startingOffsets`` and the like among ``options``, or with
    ``full``, the ranges are exported anew and replace what the target has of them. ``columns`` narrows the
    rows.

    Raises StoreError when the rows are not what the queues say there are; the target is as before then.
    """
    _check(format, compression)
    if format == "delta" and not dry_run:
        check_session(spark)
    names = _columns(columns)
    read = _options(path, topics, since, until, split_bytes, fail_on_data_loss, options)
    where = parse_location(target)
    state = ExportState(where)
    resumed = False if dry_run else state.finish_journal()
    before = state.load()
    bounds = exported(read)
    if before.generation == 0 and state.has_foreign_files:
        raise UsageError(f"{where} is not empty and no export", hint="name a new folder")
    if before.generation and (before.source, before.format) != (bounds.uri, format):
        raise UsageError(
            f"{where} has an export of {before.source} as {before.format}", hint="name another folder"
        )
    try:
        bounded = full or _has_bounds(read)
        ranges = bounds.resolve(read)
        lost: list[tuple[str, int, int, int]] = []
        if not bounded:
            ranges, lost = _new_ranges(bounds, before, ranges, fail_on_data_loss)
        if dry_run or not ranges:
            rows = sum(_expected_rows(bounds, part) for part in ranges)
            return ExportResult(str(where), format, dry_run, ranges, rows, lost=lost, resumed=resumed)
        run = run_name()
        staging = f"{STATE}/staging/{run}"
        state.check_writable(run)
        state.sweep_old((datetime.now(UTC) - timedelta(days=1)).strftime("%Y%m%d"))
        splits = bounds.plan(read, ranges)
        parts = [
            ExportPart(number, run, where, staging, names, compression, split, read)
            for number, split in enumerate(splits)
        ]
        touched = {file.path: file.touched_by(ranges) for file in before.files}
        replaced = [file for file in before.files if touched[file.path]] if format == "parquet" else []
        for file in replaced:
            if not file.is_inside(touched[file.path]):
                ranges_in_file = tuple(touched[file.path])
                parts.append(
                    ExportPart(
                        len(parts),
                        run,
                        where,
                        staging,
                        names,
                        compression,
                        kept=file,
                        replaced=ranges_in_file,
                    )
                )
        try:
            found = run_splits(spark, parts, export_part, ROWS_SCHEMA, name="export", progress=progress)
            made = [(row["staged"], _file(row)) for row in found]
            new = [file for _, file in made if _number(file.path) < len(splits)]
            _check_rows(bounds, ranges, new)
            after = _after(before, bounds.uri, format, ranges, replaced, [file for _, file in made])
            if format == "delta":
                append(spark, where, ranges, [f"{where.path}/{staged}" for staged, _ in made])
                state.publish(before, after, staging, [], [])
            else:
                moves = [(staged, file.path) for staged, file in made]
                state.publish(before, after, staging, moves, [file.path for file in replaced])
        finally:
            state.sweep(staging)
    finally:
        bounds.close()
    return ExportResult(
        str(where),
        format,
        False,
        ranges,
        sum(file.rows for file in new),
        sum(file.bytes for file in new),
        [file.path for _, file in made] if format == "parquet" else [],
        [file.path for file in replaced],
        lost,
        resumed,
    )


def check_export(path: str, format: str, compression: str) -> None:
    """What can be said without Spark: raises as ``export`` would."""
    _check(format, compression)
    if not path.startswith(BROKERS):
        open_places(path)


def _check(format: str, compression: str) -> None:
    if format not in FORMATS:
        raise UsageError(f"there is no format {format!r}", hint=f"one of {', '.join(FORMATS)}")
    if compression not in COMPRESSIONS:
        raise UsageError(f"there is no compression {compression!r}", hint=f"one of {', '.join(COMPRESSIONS)}")
    if format == "delta":
        check_delta()


def _columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    unknown = [name for name in columns or () if name not in NAMES]
    if unknown:
        raise UsageError(f"there is no column {unknown[0]!r}", hint=f"columns: {', '.join(NAMES)}")
    return tuple(name for name in NAMES if columns is None or name in columns or name in _NEEDED)


def _options(
    path: str,
    topics: Sequence[str],
    since: str | int | None,
    until: str | int | None,
    split_bytes: int | None,
    fail_on_data_loss: bool,
    more: dict[str, Any],
) -> ReadOptions:
    given: dict[str, Any] = {"path": path, "failOnDataLoss": fail_on_data_loss, **more}
    if topics:
        given["subscribe"] = ",".join(topics)
    if since is not None:
        given["startingTimestamp"] = since
    if until is not None:
        given["endingTimestamp"] = until
    if split_bytes is not None:
        given["splitBytes"] = split_bytes
    options = ReadOptions.parse(given)
    if options.tags or options.keys or options.view != "queue" or options.badRecords == "quarantine":
        raise UsageError(
            "an export holds whole ranges of queues: tags, keys, view and quarantine do not go with it",
            hint="read with `format('rocketmq')` and write the rows, to export a selection",
        )
    return options


def _has_bounds(options: ReadOptions) -> bool:
    return any(
        getattr(options, name) is not None
        for name in (
            "startingOffsets",
            "endingOffsets",
            "startingTimestamp",
            "endingTimestamp",
            "startingOffsetsByTimestamp",
            "endingOffsetsByTimestamp",
            "startingGroup",
        )
    )


def _new_ranges(
    bounds: Exported, before: Manifest, ranges: Iterable[QueueRange], fail_on_data_loss: bool
) -> tuple[list[QueueRange], list[tuple[str, int, int, int]]]:
    """What came since the last run; and what was removed from the store before it was exported."""
    earliest, latest = bounds.earliest(), bounds.latest()
    lost, new = [], []
    for part in ranges:
        key = (part.topic, part.queue_id)
        done = before.end_of(*key)
        if done is not None and done > latest[key]:
            raise StoreError(
                f"queue {part.queue_id} of {part.topic} ends at {latest[key]}, but {done} were exported",
                file=bounds.uri,
                hint="this is another store, or it was cut back: name another folder, or export with --full",
            )
        if done is not None and done < earliest[key]:
            lost.append((*key, done, earliest[key]))
        start = part.start if done is None else max(part.start, done)
        if start < part.end:
            new.append(part._replace(start=start))
    if lost and fail_on_data_loss:
        raise DataLost(
            "messages were removed from the store before they were exported",
            lost,
            file=bounds.uri,
            hint="--allow-loss goes on with what is there",
        )
    return new, lost


def _after(
    before: Manifest,
    source: str,
    format: str,
    ranges: list[QueueRange],
    replaced: list[ExportedFile],
    made: list[ExportedFile],
) -> Manifest:
    gone = {file.path for file in replaced}
    files = [file for file in before.files if file.path not in gone] + made
    return Manifest(
        source,
        format,
        before.generation + 1,
        before.with_ranges(ranges),
        files if format == "parquet" else [],
    )


def _file(row: Any) -> ExportedFile:
    queues = {int(queue): (low, high, rows) for queue, (low, high, rows) in json.loads(row["queues"]).items()}
    return ExportedFile(row["path"], row["topic"], row["day"], row["rows"], row["bytes"], queues)


def _number(path: str) -> int:
    """Number of the task that wrote a file."""
    return int(path.rpartition("/")[2].removesuffix(".parquet").split("-")[-2])


def _expected_rows(bounds: Exported, part: QueueRange) -> int:
    """Messages that the queue's units promise. A unit of a batch counts up to the next one."""
    rows = 0
    previous: tuple[int, int] | None = None
    for offset, _, size in bounds.units(*part):
        if previous is not None and previous[1]:
            rows += offset - max(part.start, previous[0])
        previous = (offset, size)
    if previous is not None and previous[1]:
        rows += part.end - max(part.start, previous[0])
    return rows


def _check_rows(bounds: Exported, ranges: list[QueueRange], files: list[ExportedFile]) -> None:
    """Every queue has exactly the rows of its range, and ends where it ends."""
    totals = total_rows(files)
    for part in ranges:
        rows, high = totals.get((part.topic, part.queue_id), (0, -1))
        if (rows, high) == (part.end - part.start, part.end - 1):
            continue
        expected = _expected_rows(bounds, part)
        if rows != expected:
            raise StoreError(
                f"queue {part.queue_id} of {part.topic} has {expected} messages from {part.start} to"
                f" {part.end}, but {rows} were read",
                file=bounds.uri,
                hint="run `penstock spark verify`; nothing was changed in the target",
            )
