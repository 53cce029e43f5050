"""Reading and writing a store, or brokers, in one call, with bounds as arguments.

Bounds are options of a fresh load, not filters: a loaded DataFrame is a snapshot whose plan Spark keeps.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.spark.options import ReadOptions, option_text
from penstock.spark.schema import TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Time = str | int | datetime
Path = str | os.PathLike[str] | Sequence[str] | None

_MOVING = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp", "startinggroup")


def read(
    spark: SparkSession,
    path: Path = None,
    *,
    topic: str | Iterable[str] | None = None,
    since: Time | None = None,
    until: Time | None = None,
    tags: str | Iterable[str] | None = None,
    keys: str | Iterable[str] | None = None,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """The messages of a store, of segments of a log, or of brokers (``namesrv="host:port"``), as rows.

    ``topic`` is one or several; ``since`` and ``until`` are store times [since, until), as datetime, ISO-8601
    or milliseconds; ``columns`` are the only ones that are decoded. Other options go by their names.
    """
    given = _given(path, topic, since, until, tags, keys, options)
    ReadOptions.parse(given)  # a mistake is told here, not in a worker
    reader = spark.read.format("rocketmq").options(**given)
    if columns is not None:
        reader = reader.schema(_ddl(columns))
    return reader.load()


def stream(
    spark: SparkSession,
    path: Path = None,
    *,
    topic: str | Iterable[str] | None = None,
    since: Time | None = None,
    tags: str | Iterable[str] | None = None,
    keys: str | Iterable[str] | None = None,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """What is appended to a store, or sent to brokers (``namesrv``), as a stream. It begins with the first
    message, ``since`` a time, or where ``startingOffsets`` or ``startingGroup`` say.

    The start is fixed here: what "latest" means now is what it means when the first batch is repeated after
    a crash. A checkpoint that exists has the last word.
    """
    from penstock.spark.streaming import frozen_start

    given = _given(path, topic, since, None, tags, keys, options)
    parsed = ReadOptions.parse(given)
    if parsed.stateLocation is None:
        kept = {name: value for name, value in given.items() if name.lower() not in _MOVING}
        given = {**kept, "startingOffsets": frozen_start(given)}
    reader = spark.readStream.format("rocketmq").options(**given)
    if columns is not None:
        reader = reader.schema(_ddl(columns))
    return reader.load()


def write(
    frame: DataFrame, path: str | os.PathLike[str] | None = None, *, topic: str | None = None, **options: Any
) -> None:
    """Append the rows to a store that nobody has open: nothing is visible before all of it is. Or send them
    to brokers (``namesrv="host:port"``): each is there when it is sent.
    """
    given = {name: option_text(value) for name, value in options.items()}
    if topic is not None:
        given["topic"] = topic
    writer = frame.write.format("rocketmq").mode("append").options(**given)
    writer.save(None if path is None else os.fspath(path))


def _given(
    path: Path,
    topic: str | Iterable[str] | None,
    since: Time | None,
    until: Time | None,
    tags: str | Iterable[str] | None,
    keys: str | Iterable[str] | None,
    options: dict[str, Any],
) -> dict[str, str]:
    given = {name: option_text(value) for name, value in options.items() if value is not None}
    if path is not None:
        given["path"] = os.fspath(path) if isinstance(path, str | os.PathLike) else json.dumps(list(path))
    if topic is not None:
        given["subscribe"] = topic if isinstance(topic, str) else ",".join(topic)
    if since is not None:
        given["startingTimestamp"] = _time(since)
    if until is not None:
        given["endingTimestamp"] = _time(until)
    if tags is not None:
        given["tags"] = tags if isinstance(tags, str) else " || ".join(tags)
    if keys is not None:
        given["keys"] = keys if isinstance(keys, str) else json.dumps(list(keys))
    return given


def _time(value: Time) -> str:
    return value.astimezone().isoformat() if isinstance(value, datetime) else str(value)


def _ddl(columns: Sequence[str]) -> str:
    # An unknown name goes to the source as it is: that is where the columns are listed.
    return ", ".join(f"`{name}` {TYPES.get(name, 'string')}" for name in columns)
