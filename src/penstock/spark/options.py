"""The options of the source, read from text and checked once, on the driver."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, TypeAlias

from penstock.errors import UsageError

EARLIEST = -2
LATEST = -1

QueueOffsets: TypeAlias = dict[str, dict[int, int]]
"""``{topic: {queue: offset}}``; -2 is the earliest, -1 the latest offset."""

BROKERS = "namesrv://"
"""What a path begins with that means brokers: ``namesrv://host:port``."""

Offsets: TypeAlias = str | QueueOffsets
"""``"earliest"``, ``"latest"``, or an offset per queue."""

# What Spark adds by itself: tables bring their options twice, and who made them.
_SPARKS_OWN = frozenset(
    ("location", "owner", "provider", "serialization.format", "paths", "__paths__", "mergeschema")
)
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+)\s*([bkmgt]?)(?:i?b)?", re.IGNORECASE)
_TIMES = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_PATIENCE = 86400.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|)", re.IGNORECASE)


@dataclass(frozen=True)
class ReadOptions:
    """Everything a read can be told, under the names of the options. Pickles; never changes."""

    path: str = ""
    namesrv: str | None = None
    consumerGroup: str = "TOOLS_CONSUMER"
    requestTimeout: float = 10.0
    retryTimeout: float = 120.0
    accessKey: str | None = None
    secretKey: str | None = field(default=None, repr=False)
    securityToken: str | None = field(default=None, repr=False)
    tls: bool = False
    tlsTrust: str | None = None
    tlsCert: str | None = None
    tlsKey: str | None = None
    tlsKeyPassword: str | None = field(default=None, repr=False)
    tlsVerify: bool = True
    subscribe: tuple[str, ...] = ()
    subscribePattern: str | None = None
    assign: dict[str, tuple[int, ...]] | None = None
    startingOffsets: Offsets | None = None
    endingOffsets: Offsets | None = None
    startingTimestamp: int | None = None
    endingTimestamp: int | None = None
    startingOffsetsByTimestamp: QueueOffsets | None = None
    endingOffsetsByTimestamp: QueueOffsets | None = None
    startingOffsetsByTimestampStrategy: str = "latest"
    startingGroup: str | None = None
    tags: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    view: str = "queue"
    failOnDataLoss: bool = True
    splitBytes: int = 128 << 20
    minPartitions: int = 0
    badRecords: str = "fail"
    verifyCrc: bool = True
    decompress: bool = True
    maxBatchRows: int = 16384
    maxBatchBytes: int = 4 << 20
    pushFilters: bool = False
    includeSystemTopics: bool = False
    maxOffsetsPerTrigger: int | None = None
    minOffsetsPerTrigger: int | None = None
    maxTriggerDelay: float = 900.0
    maxBytesPerTrigger: int | None = None
    stateLocation: str | None = None
    commitGroup: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, Any], *, path_needed: bool = True) -> ReadOptions:
        """Read options as Spark hands them over: names in any case, values as text.

        Raises UsageError that names the option and what it may be.
        """
        values: dict[str, Any] = {}
        for name, value in _own(options).items():
            low = name.lower()
            known = _READERS.get(low)
            if known is None:
                raise _unknown(name)
            option, read = known
            try:
                values[option] = read(value if isinstance(value, str) else option_text(value))
            except ValueError as error:
                raise UsageError(f"the option {option} is {value!r}: {error}", hint=_HINTS[option]) from None
        if str(values.get("path", "")).startswith(BROKERS):
            values.setdefault("namesrv", values.pop("path").removeprefix(BROKERS))
        made = cls(**values)
        made._check_body(path_needed, values)
        made._check()
        return made

    def _check_body(self, path_needed: bool, values: Mapping[str, Any]) -> None:
        """One of the two bodies, and nothing that only the other knows."""
        if self.namesrv is None:
            only = [name for name in ("consumerGroup", *BROKER_KINDS) if name in values]
            if only:
                raise UsageError(
                    f"{' and '.join(only)} is about brokers", hint="give namesrv, or leave it out with path"
                )
            if path_needed and not self.path:
                raise UsageError(
                    "there is neither a path nor a namesrv",
                    hint='spark.read.format("rocketmq").load("/data/store"), or'
                    ' .option("namesrv", "127.0.0.1:9876").load(). Of a table in the catalogue Spark'
                    " hands over no options: CREATE TEMPORARY VIEW t USING rocketmq OPTIONS"
                    " (path '/data/store'), or SELECT … FROM t WITH (path = '/data/store')",
                )
        elif self.path:
            raise UsageError(
                f"path and namesrv name two places: {self.path} and {self.namesrv}",
                hint="a store directory is read with path, brokers that run with namesrv: give one of them",
            )
        elif self.view != "queue":
            raise UsageError(
                "brokers hand out messages by queue: there is no view=commitlog over the network",
                hint="read the broker's store directory with path",
            )

    def _check(self) -> None:
        chosen = [name for name in ("subscribe", "subscribePattern", "assign") if getattr(self, name)]
        if len(chosen) > 1:
            raise UsageError(f"{' and '.join(chosen)} say different things", hint="give one of them")
        starts = [
            name
            for name in (
                "startingOffsets",
                "startingTimestamp",
                "startingOffsetsByTimestamp",
                "startingGroup",
            )
            if getattr(self, name) is not None
        ]
        if len(starts) > 1:
            raise UsageError(f"{' and '.join(starts)} say different things", hint="give one of them")
        ends = [
            name
            for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
            if getattr(self, name) is not None
        ]
        if len(ends) > 1:
            raise UsageError(f"{' and '.join(ends)} say different things", hint="give one of them")
        if (
            self.startingTimestamp is not None
            and self.endingTimestamp is not None
            and self.endingTimestamp < self.startingTimestamp
        ):
            raise UsageError("endingTimestamp is before startingTimestamp", hint="times are [start, end)")

    @property
    def quarantine(self) -> bool:
        """Whether bad records become rows of their own."""
        return self.badRecords == "quarantine"

    def wants_topic(self, topic: str) -> bool:
        """Whether messages of a topic are asked for. Without a choice: all but system and light ones."""
        if self.subscribe:
            return topic in self.subscribe
        if self.assign is not None:
            return topic in self.assign
        if self.subscribePattern is not None and not re.fullmatch(self.subscribePattern, topic):
            return False
        return self.includeSystemTopics or not _is_hidden(topic)

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        """Whether a queue is asked for."""
        if self.assign is not None:
            return queue_id in self.assign.get(topic, ())
        return self.wants_topic(topic)

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The topics that are named one by one; None when they are found by pattern, or all are meant."""
        if self.assign is not None:
            return tuple(self.assign)
        return self.subscribe or None


def _own(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without what Spark adds. A table has each a second time as ``option.x``, some only so, and
    its path as ``location``.
    """
    given = {name: value for name, value in options.items() if value is not None}
    own = {name: value for name, value in given.items() if not name.lower().startswith("option.")}
    lower = {name.lower() for name in own}
    for name, value in given.items():
        short = name[len("option.") :]
        if name.lower().startswith("option.") and short.lower() not in lower:
            own[short] = value
            lower.add(short.lower())
    for name in [name for name in own if name.lower() in _SPARKS_OWN]:
        value = own.pop(name)
        if name.lower() == "location" and "path" not in lower:
            own["path"] = value
    return own


def _is_hidden(topic: str) -> bool:
    from penstock.message.topic import LMQ_PREFIX, is_system_topic

    # A light queue shows messages of other topics again: reading everything reads each message once.
    return is_system_topic(topic) or topic.startswith(LMQ_PREFIX)


# -- values ------------------------------------------------------------------------------------------------


def option_text(value: Any) -> str:
    """A value as the text that an option takes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, dict | list | tuple) else str(value)


def _boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("neither true nor false")
    return text.strip().lower() == "true"


def _string(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


def _path(text: str) -> str:
    return text


def _count(text: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise ValueError("not a number from 1 on")
    return int(text)


def parse_size(text: str) -> int:
    """A number of bytes: ``1048576``, ``64m``, ``1 GiB``."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or int(found[1]) < 1:
        raise ValueError("not a number of bytes")
    return int(found[1]) * _UNITS[found[2].lower()]


def parse_duration(text: str) -> float:
    """Seconds: ``15m``, ``500ms``, ``2 h``, ``30``."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError("not a duration")
    return float(found[1]) * _TIMES[found[2].lower()]


def parse_patience(text: str) -> float:
    """Seconds that somebody waits: a duration of at most a day."""
    if not 0 < (seconds := parse_duration(text)) <= _LONGEST_PATIENCE:
        raise ValueError("not between 1ms and 1d")
    return seconds


def parse_time(text: str) -> int:
    """Milliseconds since 1970: a number of them, or ISO-8601 (without a zone: UTC)."""
    text = text.strip()
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("neither milliseconds nor an ISO-8601 time") from None
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("it names nothing")
    return names


def _keys(text: str) -> tuple[str, ...]:
    if text.lstrip().startswith("["):
        found = json.loads(text)
        if not all(isinstance(key, str) and key for key in found):
            raise ValueError("not a list of texts")
        return tuple(dict.fromkeys(found))
    return _names(text)


def _tags(text: str) -> tuple[str, ...] | None:
    if text.strip() in ("", "*"):
        return None
    return tuple(dict.fromkeys(tag.strip() for tag in text.split("||") if tag.strip()))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    return _string(text)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    made: dict[str, tuple[int, ...]] = {}
    for topic, queues in _object(text).items():
        if not isinstance(queues, list) or not all(type(q) is int and q >= 0 for q in queues):
            raise ValueError(f"the queues of {topic} are no list of numbers")
        made[topic] = tuple(dict.fromkeys(queues))
    return made


def _per_queue(text: str, least: int) -> QueueOffsets:
    made: QueueOffsets = {}
    for topic, queues in _object(text).items():
        if not isinstance(queues, dict):
            raise ValueError(f"{topic} has no object with queues")
        made[topic] = {}
        for queue, value in queues.items():
            if not queue.isdigit() or type(value) is not int or value < least:
                raise ValueError(f"queue {queue} of {topic} has {value!r}")
            made[topic][int(queue)] = value
    return made


def _offsets(text: str) -> Offsets:
    if text.strip().lower() in ("earliest", "latest"):
        return text.strip().lower()
    return _per_queue(text, EARLIEST)


def _times(text: str) -> QueueOffsets:
    return _per_queue(text, 0)


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.strip().lower() not in allowed:
            raise ValueError("unknown")
        return text.strip().lower()

    return read


_OFFSET_HINT = 'earliest, latest, or {"topic":{"0":12,"1":-2}} with -2 for earliest and -1 for latest'
_TIME_HINT = "milliseconds since 1970, or ISO-8601 such as 2024-05-01T12:00:00Z"
BROKER_KINDS: dict[str, tuple[Callable[[str], Any], str]] = {
    "requestTimeout": (parse_patience, "a duration, such as 10s"),
    "retryTimeout": (parse_patience, "a duration, such as 2m"),
    "accessKey": (_string, "the name of an account"),
    "secretKey": (_string, "the secret of an account"),
    "securityToken": (_string, "a token that goes with the account"),
    "tls": (_boolean, "true or false"),
    "tlsTrust": (_string, "a PEM file with the certificates that brokers' are signed by"),
    "tlsCert": (_string, "a PEM file with a certificate of our own"),
    "tlsKey": (_string, "a PEM file with its key"),
    "tlsKeyPassword": (_string, "the password of that key"),
    "tlsVerify": (_boolean, "true or false"),
}
"""Options about reaching brokers, of reading and of writing: how each is read, and what it may be."""
_KINDS: dict[str, tuple[Callable[[str], Any], str]] = {
    "path": (_path, "a store directory, a segment, a glob, or a URI"),
    "namesrv": (_string, "host:port of a name server, several separated by semicolons"),
    "consumerGroup": (_string, "the consumer group that pulls are made for"),
    **BROKER_KINDS,
    "subscribe": (_names, "topics, separated by commas"),
    "subscribePattern": (_pattern, "a regular expression for whole topic names"),
    "assign": (_assigned, '{"topic":[0,1]}'),
    "startingOffsets": (_offsets, _OFFSET_HINT),
    "endingOffsets": (_offsets, _OFFSET_HINT),
    "startingTimestamp": (parse_time, _TIME_HINT),
    "endingTimestamp": (parse_time, _TIME_HINT),
    "startingOffsetsByTimestamp": (_times, '{"topic":{"0":1714564800000}}'),
    "endingOffsetsByTimestamp": (_times, '{"topic":{"0":1714564800000}}'),
    "startingOffsetsByTimestampStrategy": (_one_of("error", "latest"), "error or latest"),
    "startingGroup": (_string, "a consumer group of this store"),
    "tags": (_tags, "tags, as in a || b"),
    "keys": (_keys, "keys separated by commas, or a JSON list of them"),
    "view": (_one_of("queue", "commitlog"), "queue or commitlog"),
    "failOnDataLoss": (_boolean, "true or false"),
    "splitBytes": (parse_size, "bytes of the log per task, such as 64m"),
    "minPartitions": (_count, "a number from 1 on"),
    "badRecords": (_one_of("fail", "skip", "quarantine"), "fail, skip or quarantine"),
    "verifyCrc": (_boolean, "true or false"),
    "decompress": (_boolean, "true or false"),
    "maxBatchRows": (_count, "a number from 1 on"),
    "maxBatchBytes": (parse_size, "bytes, such as 4m"),
    "pushFilters": (_boolean, "true or false"),
    "includeSystemTopics": (_boolean, "true or false"),
    "maxOffsetsPerTrigger": (_count, "a number from 1 on"),
    "minOffsetsPerTrigger": (_count, "a number from 1 on"),
    "maxTriggerDelay": (parse_duration, "a duration, such as 15m"),
    "maxBytesPerTrigger": (parse_size, "bytes, such as 64m"),
    "stateLocation": (_string, "a directory"),
    "commitGroup": (_string, "a consumer group"),
}
_READERS = {name.lower(): (name, kind[0]) for name, kind in _KINDS.items()}
_HINTS = {name: f"{name} is {kind[1]}" for name, kind in _KINDS.items()}
OPTIONS: tuple[str, ...] = tuple(_KINDS)
"""The names of all options of reading."""

assert {f.name for f in fields(ReadOptions)} == set(OPTIONS)


def _unknown(name: str) -> UsageError:
    near = get_close_matches(name.lower(), list(_READERS), 1, 0.6)
    meant = f"; do you mean {_READERS[near[0]][0]}?" if near else ""
    return UsageError(f"there is no option {name!r}{meant}", hint=f"options are {', '.join(OPTIONS)}")
