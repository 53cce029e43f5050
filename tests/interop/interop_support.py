"""The Java side of the interop tests, and the comparison of its answers with ours."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.bench.peer import INTEROP_OPTIONS, Peer, Version
from penstock.config import StoreConfig, load_config

BOTH = (
    "plain",
    "hosts",
    "batches",
    "queue-ext",
    "transactions",
    "delay",
    "index-rolled",
    "transient-pool",
    "killed",
)
ONLY_V5 = ("long-topics", "inner-batches", "prop-crc", "lmq", "killed-everything")
CASES: list[tuple[Version, str]] = [
    *(("5.5.0", scenario) for scenario in (*BOTH, *ONLY_V5)),
    *(("4.9.7", scenario) for scenario in BOTH),
]
SEED = 20260101

Answer = dict[str, Any]


class JavaSide:
    """RocketMQ's store of one version. A command that halts the JVM is followed by a new JVM."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self._peer: Peer | None = None

    def ask(self, do: str, /, **arguments: Any) -> Answer:
        if self._peer is not None and not self._peer.alive:
            self.close()
        if self._peer is None:
            self._peer = Peer("StoreInterop", self.version, INTEROP_OPTIONS)
        return self._peer.ask(do, **arguments)

    def write(self, path: Path, scenario: str) -> Answer:
        """A new directory; for a killed scenario the JVM is gone when this returns."""
        manifest = self.ask("write", dir=str(path), scenario=scenario, seed=SEED)
        if manifest["closed"] == "killed":
            self.wait_killed()
        return manifest

    def open(self, path: Path, config: dict[str, Any], **arguments: Any) -> Answer:
        """What RocketMQ says the directory holds, after whatever recovery it found necessary."""
        return self.ask("open", dir=str(path), config=config, **arguments)

    def wait_killed(self) -> None:
        assert self._peer is not None
        assert self._peer.wait_killed() == 137
        self.close()

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class Written:
    """A directory that RocketMQ wrote. Never opened in place: take a copy."""

    path: Path
    manifest: Answer
    answers: Answer
    """What the directory holds: as RocketMQ said before a clean close, or after it recovered a copy."""

    @property
    def killed(self) -> bool:
        return bool(self.manifest["closed"] == "killed")

    @property
    def config(self) -> StoreConfig:
        return our_config(self.manifest["config"])

    def copy(self, target: Path) -> Path:
        shutil.copytree(self.path, target)
        return target


def our_config(java: dict[str, Any]) -> StoreConfig:
    """RocketMQ's options as our settings; its names are ours too."""
    config, _ = load_config(env={}, flags=java)
    return config


def write_scenario(java: JavaSide, folder: Path, scenario: str) -> Written:
    path = folder / f"{java.version}-{scenario}"
    shutil.rmtree(path, ignore_errors=True)  # what a write that failed left
    manifest = java.write(path, scenario)
    if manifest["closed"] == "clean":
        return Written(path, manifest, manifest["atClose"])
    recovered = folder / f"{java.version}-{scenario}-recovered"
    shutil.copytree(path, recovered)
    lookups = [put["physicalOffset"] for put in manifest["puts"]]
    opened = java.open(
        recovered, manifest["config"], batchQueueTopics=manifest["batchQueueTopics"], lookups=lookups
    )
    return Written(path, manifest, opened["holds"])


def plain_host(text: str) -> str:
    """One spelling for each address: Java does not shorten IPv6."""
    address, _, port = text.rpartition(":")
    return f"{ipaddress.ip_address(address.strip('[]'))}:{port}"


def java_message(message: Answer) -> Answer:
    """A message as Java described it, in the shape of :func:`our_message`."""
    return {
        "topic": message["topic"],
        "queue_id": message["queueId"],
        "queue_offset": message["queueOffset"],
        "physical_offset": message["physicalOffset"],
        "size": message["size"],
        "message_id": message["msgId"],
        "flag": message["flag"],
        "sys_flag": message["sysFlag"],
        "born_timestamp": message["bornTimestamp"],
        "born_host": plain_host(message["bornHost"]),
        "store_timestamp": message["storeTimestamp"],
        "store_host": plain_host(message["storeHost"]),
        "reconsume_times": message["reconsumeTimes"],
        "prepared_transaction_offset": message["preparedTransactionOffset"],
        "properties": dict(message["properties"]),
        "body": base64.b64decode(message["body"]),
    }


_SAME_IN_BOTH = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "message_id",
    "flag",
    "sys_flag",
    "born_timestamp",
    "store_timestamp",
    "reconsume_times",
    "prepared_transaction_offset",
)


def our_message(message: Any) -> Answer:
    """A stored message of ours, or a record of ``format``, as plain values."""
    found = {name: getattr(message, name) for name in _SAME_IN_BOTH}
    found["size"] = message.size if hasattr(message, "size") else message.total_size
    found["born_host"] = plain_host(message.born_host)
    found["store_host"] = plain_host(message.store_host)
    found["properties"] = dict(message.properties)
    found["body"] = bytes(message.body)
    return found


def body_of(described: Answer) -> bytes:
    """A body of a manifest: the unit repeated and cut to its length."""
    unit, length = base64.b64decode(described["unit"]), described["length"]
    return (unit * (length // len(unit) + 1))[:length]


def puts_in_order(manifest: Answer) -> list[tuple[str, int, int | None, bytes]]:
    """Topic, queue, physical offset (None inside a client batch) and body of every message that was put."""
    found: list[tuple[str, int, int | None, bytes]] = []
    for put in manifest["puts"]:
        if "batch" not in put:
            found.append((put["topic"], put["queueId"], put["physicalOffset"], body_of(put["body"])))
            continue
        for number, part in enumerate(put["batch"]):
            place = put["physicalOffset"] if number == 0 else None
            found.append((put["topic"], put["queueId"], place, body_of(part["body"])))
    return found


def read_queue(store: Any, topic: str, queue_id: int) -> list[Any]:
    """Every message of a queue, 32 a call."""
    found: list[Any] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        result = store.get(topic, queue_id, offset, 32)
        assert result.next_begin_offset > offset, (topic, queue_id, offset, result.status)
        found.extend(result.messages)
        offset = result.next_begin_offset
    return found


def used_queues(answers: Answer) -> dict[tuple[str, int], tuple[int, int]]:
    """Minimum and maximum offset of each queue that holds something."""
    return {
        (queue["topic"], queue["queueId"]): (queue["minOffset"], queue["maxOffset"])
        for queue in answers["queues"]
        if queue["maxOffset"] > 0
    }


def messages_by_queue(answers: Answer) -> dict[tuple[str, int], list[Answer]]:
    """Java's messages under the queue they were read from: for light queues not the record's topic."""
    found: dict[tuple[str, int], list[Answer]] = {}
    for message in answers["messages"]:
        light = message["queue"] != message["topic"]
        queue_id = 0 if light else message["queueId"]
        found.setdefault((message["queue"], queue_id), []).append(message)
    return found


def compare_messages(store: Any, answers: Answer) -> None:
    """Same queues, same offsets, and each message equal in every field and in its bytes."""
    expected_queues = used_queues(answers)
    ours = {
        (topic, queue_id): (store.min_offset(topic, queue_id), store.max_offset(topic, queue_id))
        for topic, queue_id in store.queues()
    }
    assert {queue: ends for queue, ends in ours.items() if ends[1] > 0} == expected_queues
    by_queue = messages_by_queue(answers)
    for topic, queue_id in expected_queues:
        found = read_queue(store, topic, queue_id)
        expected = by_queue[topic, queue_id]
        shaped = [java_message(message) for message in expected]
        if expected[0]["queue"] != expected[0]["topic"]:
            # Read from a light queue: Java's decoder tells the offset in the parent's queue, which is in the
            # record; ours the place in the queue that was read.
            for offset, message in enumerate(shaped, expected_queues[topic, queue_id][0]):
                message["queue_offset"] = offset
        assert [our_message(message) for message in found] == shaped
        digests = [hashlib.md5(bytes(message.raw), usedforsecurity=False).hexdigest() for message in found]
        assert digests == [message["recordMd5"] for message in expected]


def compare_gets(store: Any, answers: Answer) -> None:
    """Status, next offset, ends and records of every question that Java answered."""
    held = used_queues(answers)
    for asked in answers["getMessage"]:
        if (asked["topic"], asked["queueId"]) not in held:
            continue
        result = store.get(asked["topic"], asked["queueId"], asked["offset"], asked["max"])
        answer = {
            "status": result.status,
            "nextBeginOffset": result.next_begin_offset,
            "minOffset": result.min_offset,
            "maxOffset": result.max_offset,
            "physicalOffsets": [message.physical_offset for message in result.messages],
        }
        assert answer == {name: asked[name] for name in answer}, asked


def compare_queries(store: Any, answers: Answer) -> None:
    """Each key finds the same records.

    RocketMQ leaves it to the client to drop records of another key with the same hash, and tells a record
    once per index entry. Ours are the right ones, each once.
    """
    assert answers["queryMessage"]
    keys = {message["physicalOffset"]: keys_of(message) for message in answers["messages"]}
    for asked in answers["queryMessage"]:
        found = [message.physical_offset for message in store.query(asked["topic"], asked["key"], max=64)]
        right = {
            place for place in asked["physicalOffsets"] if asked["key"] in keys.get(place, {asked["key"]})
        }
        assert found == sorted(right), asked


def keys_of(message: Answer) -> set[str]:
    """Everything a message is indexed under."""
    properties = message["properties"]
    return {*properties.get("KEYS", "").split(" "), properties.get("UNIQ_KEY", "")} - {""}


def compare_times(store: Any, answers: Answer) -> None:
    """Offsets by time, both boundaries (4.9.7 answers another question and is not asked)."""
    for asked in answers["offsetByTime"]:
        if "lower" not in asked:
            continue
        for boundary in ("lower", "upper"):
            found = store.offset_by_time(
                asked["topic"], asked["queueId"], asked["timestamp"], boundary=boundary
            )
            assert found == asked[boundary], (boundary, asked)


def compare_lookups(store: Any, manifest: Answer, before: int | None = None) -> None:
    """Every put is at its physical offset, queued or not: half messages have no queue unit."""
    for topic, queue_id, place, body in puts_in_order(manifest):
        if place is None or (before is not None and place >= before):
            continue
        message = store.lookup(place)
        assert message is not None, place
        # 4.9.7 renames a delayed message inside the store: its put result tells the topic it got.
        assert (message.topic, message.queue_id, bytes(message.body)) == (topic, queue_id, body)
