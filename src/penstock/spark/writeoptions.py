"""The options of a write, and what the columns of a DataFrame are to it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from penstock.errors import UsageError
from penstock.message.topic import FORBIDDEN_TOPICS, validate_topic
from penstock.spark.options import BROKER_KINDS, BROKERS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ONLY_BROKERS = ("producerGroup", *BROKER_KINDS)
OPTIONS = ("path", "namesrv", "topic", "queues", "writeId", "sweepAfter", *ONLY_BROKERS)
# What Spark puts beside the user's options (a table's, a stream's), all lower-case.
_SPARKS_OWN = (
    "owner",
    "provider",
    "serialization.format",
    "paths",
    "__paths__",
    "mergeschema",
    "checkpointlocation",
    "queryname",
)
_NUMBERS = ("tinyint", "smallint", "int", "bigint")
ACCEPTED: dict[str, tuple[str, ...]] = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "value": ("binary", "string"),
    "keys": ("string",),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "queueId": _NUMBERS,
    "orderKey": ("string",),
    "delay": _NUMBERS,
    "deliverAt": ("timestamp",),
    "uniqKey": ("string",),
    "flag": _NUMBERS,
    "sysFlag": _NUMBERS,
    "bornTimestamp": ("timestamp",),
}
"""Columns that are taken, and their Spark types. ``value`` is another name for ``body``."""


@dataclass(frozen=True)
class WriteOptions:
    """What the user asked for."""

    path: str
    topic: str | None = None
    queues: int = 4
    write_id: str | None = None
    sweep_after: float = 86_400.0
    namesrv: str | None = None
    producer_group: str = "PENSTOCK_SPARK"
    reaching: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    """Options about reaching brokers, by their names."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> WriteOptions:
        known = {name.lower(): name for name in OPTIONS}
        values: dict[str, str] = {}
        for key, value in given.items():
            name = known.get(key.lower())
            if name is not None:
                values[name] = value
            elif key.lower() not in _SPARKS_OWN and not key.lower().startswith("option."):
                near = difflib.get_close_matches(key.lower(), known, 1)
                raise UsageError(
                    f"a write has no option {key!r}",
                    hint=f"did you mean {known[near[0]]!r}?" if near else f"there are {', '.join(OPTIONS)}",
                )
        if values.get("path", "").startswith(BROKERS):
            values["namesrv"] = values.pop("path").removeprefix(BROKERS)
        _check_body(values)
        topic = values.get("topic")
        if topic is not None:
            check_topic(topic)
        return cls(
            local_path(values["path"]) if "namesrv" not in values else "",
            topic,
            int(_number("queues", values.get("queues", "4"), low=1, high=65536)),
            values.get("writeId"),
            _number("sweepAfter", values.get("sweepAfter", "86400"), low=0, high=1e12),
            values.get("namesrv"),
            values.get("producerGroup", cls.producer_group),
            tuple((name, _broker_option(name, values[name])) for name in BROKER_KINDS if name in values),
        )


def _check_body(values: Mapping[str, str]) -> None:
    """One of the two bodies, and nothing that only the other knows."""
    if "namesrv" in values:
        wrong = [name for name in ("path", "sweepAfter") if values.get(name)]
        if wrong:
            raise UsageError(
                f"{' and '.join(wrong)} is about a store directory, namesrv about brokers",
                hint="write to one of them",
            )
        return
    only = [name for name in ONLY_BROKERS if name in values]
    if only:
        raise UsageError(f"{' and '.join(only)} is about brokers", hint="give namesrv, or leave it out")
    if not values.get("path"):
        raise UsageError(
            "a write needs a store to write to",
            hint='give its directory: .save("/data/store"), or brokers: .option("namesrv", "127.0.0.1:9876")',
        )


def _broker_option(name: str, text: str) -> Any:
    read, meant = BROKER_KINDS[name]
    try:
        return read(text)
    except ValueError as error:
        raise UsageError(f"the option {name} can't be read: {error}", hint=f"{name} is {meant}") from None


def local_path(path: str) -> str:
    """The directory of a store to write to: a path, or a ``file:`` URI."""
    parts = urlparse(path)
    if parts.scheme == "file":
        return str(Path(unquote(parts.path)).absolute())
    if "://" in path:
        raise UsageError(
            f"cannot write to {path}: a store is appended to in place",
            hint="write to a directory that driver and workers share, then copy it",
        )
    return str(Path(path).absolute())


def _number(name: str, text: str, *, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise UsageError(f"the option {name} is a number from {low:g} to {high:g}, not {text!r}")
    return value


def check_topic(topic: str) -> None:
    """Raise unless messages may be written to such a topic."""
    reason = validate_topic(topic)
    if reason is None and topic in FORBIDDEN_TOPICS:
        reason = f"the topic {topic} belongs to the broker"
    if reason is not None:
        raise UsageError(reason, hint="choose another topic")


def column_roles(schema: StructType, topic: str | None) -> tuple[str, ...]:
    """What each column is to the encoder; an error that lists what is accepted when one is nothing to it."""
    roles: list[str] = []
    for column in schema.fields:
        kind = column.dataType.simpleString()
        types = ACCEPTED.get(column.name)
        if types is None:
            near = difflib.get_close_matches(column.name, ACCEPTED, 1)
            raise _refused(
                f"a write knows no column {column.name!r}", f"did you mean {near[0]!r}?" if near else ""
            )
        if kind not in types:
            raise _refused(f"the column {column.name!r} is {kind}, not {' or '.join(types)}")
        roles.append("body" if column.name == "value" else column.name)
    if roles.count("body") != 1:
        raise _refused("a write needs one column 'body' (or 'value')")
    if len(set(roles)) != len(roles):
        raise _refused("a column is there twice")
    if "topic" not in roles and topic is None:
        raise _refused("there is neither a column 'topic' nor the option 'topic'")
    return tuple(roles)


def _refused(what: str, hint: str = "") -> UsageError:
    listed = ", ".join(f"{name} {' or '.join(types)}" for name, types in ACCEPTED.items())
    return UsageError(what, hint=f"{hint}{' ' if hint else ''}accepted are: {listed}")
