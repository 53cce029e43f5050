"""The stage of a scenario: a client's driver, the cluster it talks to, and what is compared afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

Observed = Any

_OF_THIS_RUN = (
    "UNIQ_KEY",
    "CONSUME_START_TIME",
    "MIN_OFFSET",
    "MAX_OFFSET",
    "ORIGIN_MESSAGE_ID",
    "PGROUP",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "__transactionId__",
)


class Driver(Protocol):
    """A client behind JSON lines; Java's and Go's speak alike."""

    def ask(self, do: str, /, **arguments: Any) -> dict[str, Any]: ...


class Cluster(Protocol):
    """A name server and a broker, Penstock's or RocketMQ's."""

    namesrv: str
    address: str

    def start(self) -> None: ...

    def stop(self, *, kill: bool = False) -> None: ...


class Stage:
    """One scenario's clients on one cluster; whatever it started is stopped at the end."""

    def __init__(self, driver: Driver, admin: Driver, cluster: Cluster, word: str) -> None:
        self.driver = driver
        self.admin = admin
        self.cluster = cluster
        self.word = word
        self._started: list[tuple[str, str]] = []
        self._finder: str | None = None

    def name(self, kind: str) -> str:
        return f"{kind}_{self.word}"

    def topic(self, queues: int = 4, kind: str = "T") -> str:
        """A new topic, known to every client that starts from now on."""
        topic = self.name(kind)
        self.create(topic, queues)
        return topic

    def create(self, topic: str, queues: int) -> None:
        where = {"namesrv": self.cluster.namesrv, "broker": self.cluster.address}
        self.admin.ask("create-topic", **where, topic=topic, queues=queues)

    def group(self, kind: str = "G") -> str:
        """A group whose retry topic is known beforehand: clients poll for routes every 30 s only."""
        group = self.name(kind)
        self.create(f"%RETRY%{group}", 1)
        return group

    def producer(self, name: str = "producer", **options: Any) -> str:
        full = self.name(name)
        self.driver.ask("producer", name=full, group=f"P{full}", namesrv=self.cluster.namesrv, **options)
        self._started.append(("stop-producer", full))
        return full

    def consumer(self, topic: str, group: str, name: str = "consumer", **options: Any) -> str:
        full = self.name(name)
        where = {"namesrv": self.cluster.namesrv, "topic": topic, "group": group}
        self.driver.ask("consumer", name=full, **where, **options)
        self._started.append(("stop-consumer", full))
        return full

    def stop(self, full: str) -> dict[str, Any]:
        """Stop one of them now, with its last answer."""
        for entry in self._started:
            if entry[1] == full:
                self._started.remove(entry)
                return self.driver.ask(entry[0], name=full)
        raise AssertionError(f"{full} is not running")

    def received(self, consumer: str, count: int, timeout_ms: int = 120_000) -> list[dict[str, Any]]:
        answer = self.driver.ask("received", name=consumer, count=count, timeout_ms=timeout_ms)
        return list(answer["messages"])

    def send(self, producer: str, messages: list[dict[str, Any]], mode: str = "sync") -> list[dict[str, Any]]:
        answer = self.driver.ask("send", name=producer, messages=messages, mode=mode)
        return list(answer["results"])

    def find(self, topic: str, key: str) -> list[dict[str, Any]]:
        """What the broker finds by a key, asked by a Java client whatever the driver is."""
        if self._finder is None:
            self._finder = self.name("finder")
            where = {"group": f"P{self._finder}", "namesrv": self.cluster.namesrv}
            self.admin.ask("producer", name=self._finder, **where)
        answer = self.admin.ask("find", name=self._finder, topic=topic, key=key)
        return list(answer.get("messages", []))

    def committed(self, topic: str, group: str) -> int:
        """How many messages of the topic the group has committed, as mqadmin is told."""
        arguments = ["consumerProgress", "-n", self.cluster.namesrv, "-g", group]
        lines = self.admin.ask("mqadmin", arguments=arguments)["stdout"].splitlines()
        # Columns: topic, broker, queue, offset of the broker, offset of the consumer, ...
        return sum(int(line.split()[4]) for line in lines if line.split()[:1] == [topic])

    def close(self) -> None:
        if self._finder is not None:
            self.admin.ask("stop-producer", name=self._finder)
            self._finder = None
        for do, full in reversed(self._started):
            self.driver.ask(do, name=full)
        self._started.clear()


def numbered(topic: str, count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "body": f"m{i}", "tags": "ab"[i % 2], "keys": f"k{i}", **more} for i in range(count)
    ]


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return sorted(message["body"] for message in messages)


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """A received message without what belongs to this run: times, ids, offsets in the log, hidden order."""
    kept = {key: value for key, value in message["properties"].items() if key not in _OF_THIS_RUN}
    for key in ("RETRY_TOPIC", "REAL_TOPIC"):
        if key in kept:
            kept[key] = kept[key].rsplit("_", 1)[0]
    return {
        "body": message["body"],
        "tags": message["tags"],
        "keys": message["keys"],
        "reconsume_times": message["reconsume_times"],
        "sys_flag": message["sys_flag"],
        "properties": kept,
    }


def plains(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((plain(message) for message in messages), key=lambda m: (m["body"], m["reconsume_times"]))


def statuses(results: list[dict[str, Any]]) -> list[Any]:
    return [result.get("status") or result for result in results]


def wait_until(what: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


def seen_on_both(
    play: Callable[[Stage], Observed],
    cluster: Callable[[str], Cluster],
    drivers: tuple[Driver, Driver],
    word: Callable[[], str],
) -> dict[str, Observed]:
    """What a scenario observes on our broker and on RocketMQ's; a failed check says on which."""
    seen: dict[str, Observed] = {}
    for side in ("penstock", "rocketmq"):
        stage = Stage(*drivers, cluster(side), word())
        try:
            seen[side] = play(stage)
        except AssertionError as error:
            error.add_note(f"on {side}")
            raise
        finally:
            stage.close()
    return seen
