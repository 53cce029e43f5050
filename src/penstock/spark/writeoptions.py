"""The options of a write, and what the columns of a DataFrame are to it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from penstock.errors import UsageError
from penstock.message.topic import FORBIDDEN_TOPICS, validate_topic

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OPTIONS = ("path", "topic", "queues", "writeId", "sweepAfter")
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
        if not values.get("path"):
            raise UsageError(
                "a write needs a store to write to", hint='give its directory: .save("/data/store")'
            )
        topic = values.get("topic")
        if topic is not None:
            check_topic(topic)
        return cls(
            local_path(values["path"]),
            topic,
            int(_number("queues", values.get("queues", "4"), low=1, high=65536)),
            values.get("writeId"),
            _number("sweepAfter", values.get("sweepAfter", "86400"), low=0, high=1e12),
        )


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
    for field in schema.fields:
        kind = field.dataType.simpleString()
        types = ACCEPTED.get(field.name)
        if types is None:
            near = difflib.get_close_matches(field.name, ACCEPTED, 1)
            raise _refused(
                f"a write knows no column {field.name!r}", f"did you mean {near[0]!r}?" if near else ""
            )
        if kind not in types:
            raise _refused(f"the column {field.name!r} is {kind}, not {' or '.join(types)}")
        roles.append("body" if field.name == "value" else field.name)
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
