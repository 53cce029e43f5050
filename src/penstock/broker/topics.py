"""Which topics there are (``config/topics.json``), and how a send makes one (protocol 2.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.broker.configtable import ConfigTable
from penstock.broker.names import topic_fault
from penstock.clock import Clock
from penstock.config import BrokerConfig
from penstock.message.topic import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    BENCHMARK_TOPIC,
    LMQ_PREFIX,
    OFFSET_MOVED_EVENT,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    is_system_topic,
)

PERM_INHERIT, PERM_WRITE, PERM_READ = 1, 2, 4
PERM_READ_WRITE = PERM_READ | PERM_WRITE
MULTI_TAG = "MULTI_TAG"
_NUMBERS = (("readQueueNums", "read_queue_nums"), ("writeQueueNums", "write_queue_nums"), ("perm", "perm"))


def perm_text(perm: int) -> str:
    """``RW-``, as RocketMQ prints a permission."""
    return "".join(
        letter if perm & bit else "-"
        for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", PERM_INHERIT))
    )


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic."""

    name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def queue_nums(self) -> int:
        """One more than the highest queue that may be written to or read from."""
        return max(self.read_queue_nums, self.write_queue_nums)

    def to_json(self) -> dict[str, Any]:
        return {
            "attributes": self.attributes,
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_json(cls, name: str, value: Any) -> TopicConfig:
        """ValueError for anything that is no topic's configuration; unknown keys are passed over."""
        if not isinstance(value, dict):
            raise ValueError(f"topic {name!r} has no object")
        given: dict[str, Any] = {}
        for key, attribute in (*_NUMBERS, ("topicSysFlag", "sys_flag")):
            number = value.get(key)
            if number is not None:
                if type(number) is not int or not 0 <= number < 2**31:
                    raise ValueError(f"topic {name!r}: {key} is {number!r}")
                given[attribute] = number
        attributes = value.get("attributes") or {}
        if not isinstance(attributes, dict):
            raise ValueError(f"topic {name!r}: attributes are no object")
        return cls(
            name,
            filter_type=str(value.get("topicFilterType") or "SINGLE_TAG"),
            order=bool(value.get("order")),
            attributes={str(key): str(each) for key, each in attributes.items()},
            **given,
        )

    def __str__(self) -> str:
        """As RocketMQ writes it in a remark."""
        attributes = ", ".join(f"{key}={value}" for key, value in self.attributes.items())
        return (
            f"TopicConfig [topicName={self.name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={perm_text(self.perm)}, "
            f"topicFilterType={self.filter_type}, topicSysFlag={self.sys_flag}, "
            f"order={'true' if self.order else 'false'}, attributes={{{attributes}}}]"
        )


def boot_topics(config: BrokerConfig, delay_levels: int) -> Iterator[TopicConfig]:
    """The topics every broker has."""
    cluster, name = config.cluster_name, config.broker_name
    yield TopicConfig(SELF_TEST_TOPIC, 1, 1)
    if config.auto_create_topic_enable:
        number = config.default_topic_queue_nums
        yield TopicConfig(AUTO_CREATE_TOPIC_KEY_TOPIC, number, number, PERM_READ_WRITE | PERM_INHERIT)
    yield TopicConfig(BENCHMARK_TOPIC, 1024, 1024)
    yield TopicConfig(cluster, 16, 16, PERM_READ_WRITE | PERM_INHERIT)
    yield TopicConfig(name, 1, 1, PERM_READ_WRITE | PERM_INHERIT)
    yield TopicConfig(OFFSET_MOVED_EVENT, 1, 1)
    yield TopicConfig(SCHEDULE_TOPIC, delay_levels, delay_levels)
    if config.trace_topic_enable:
        yield TopicConfig(TRACE_TOPIC, 1, 1)
    yield TopicConfig(reply_topic(cluster), 1, 1)
    yield TopicConfig(f"rmq_sys_REVIVE_LOG_{cluster}", 8, 8)
    yield TopicConfig(f"rmq_sys_SYNC_BROKER_MEMBER_{name}", 1, 1, PERM_INHERIT)
    yield TopicConfig(TRANS_HALF_TOPIC, 1, 1)
    yield TopicConfig(TRANS_OP_HALF_TOPIC, 1, 1)
    yield TopicConfig(TRANS_CHECK_MAX_TIME_TOPIC, 1, 1)
    yield TopicConfig(TIMER_TOPIC, 1, 1)


def reply_topic(cluster: str) -> str:
    """Where the answers of request-reply go."""
    return f"{cluster}_REPLY_TOPIC"


class Topics(ConfigTable[TopicConfig]):
    """The topics of a broker."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        super().__init__(clock)
        self._config = config
        self.auto_create = config.auto_create_topic_enable
        """Whether producers may make topics; can be changed while the broker runs."""
        self._system: set[str] = set()
        self._light = config.store.enable_lmq
        if self._light:
            self.find = self._find_light

    def _find_light(self, name: str) -> TopicConfig | None:
        """Each light queue is a topic of one queue that nobody has to make."""
        found = self._table.get(name)
        if found is None and name.startswith(LMQ_PREFIX) and topic_fault(name) is None:
            return TopicConfig(name, 1, 1)
        return found

    def load(self, content: Any) -> None:
        """Take over what ``topics.json`` holds. ValueError when it is no table of topics."""
        if content is not None:
            self._load(content, "topicConfigTable", TopicConfig.from_json)

    def add_boot_topics(self, delay_levels: int, queues: Iterable[tuple[str, int]]) -> None:
        """Make sure of the broker's own topics, and of those that the store has queues of."""
        before = len(self._table)
        for topic in boot_topics(self._config, delay_levels):
            self._system.add(topic.name)
            self._table.setdefault(topic.name, topic)
        found: dict[str, int] = {}
        for name, queue_id in queues:
            if self._light and name.startswith(LMQ_PREFIX):
                continue
            if name not in self._table and topic_fault(name) is None and not is_system_topic(name):
                found[name] = max(found.get(name, 0), queue_id + 1)
        for name, number in found.items():
            self._table[name] = TopicConfig(name, number, number)
        if len(self._table) != before:
            self._changed()

    def content(self) -> dict[str, Any]:
        """What the file is to hold."""
        table = {name: topic.to_json() for name, topic in self._table.items()}
        return {"dataVersion": self.version.to_json(), "topicConfigTable": table}

    def is_system(self, name: str) -> bool:
        """Whether the topic is the broker's own, so that nobody may create or delete it."""
        return name in self._system or name in SYSTEM_TOPICS or is_system_topic(name)

    @property
    def system_topics(self) -> list[str]:
        return sorted(self._system | SYSTEM_TOPICS)

    def inherit(
        self, name: str, default_topic: str, queue_nums: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """Make a topic after the template that a producer names; None when it may not be made so.

        With auto-creation switched off the template loses its right to be one, for good: RocketMQ does that.
        """
        template = self._table.get(default_topic)
        if template is None:
            return None
        if default_topic == AUTO_CREATE_TOPIC_KEY_TOPIC and not self.auto_create:
            self.put(replace(template, perm=PERM_READ_WRITE))
            return None
        if not template.perm & PERM_INHERIT:
            return None
        number = max(0, min(queue_nums, template.write_queue_nums))
        return self.put(
            TopicConfig(name, number, number, template.perm & ~PERM_INHERIT, template.filter_type)
        )

    def ensure(self, name: str, queue_nums: int, perm: int = PERM_READ_WRITE) -> TopicConfig:
        """The topic, made with so many queues if there is none: retry and dead-letter topics."""
        return self._table.get(name) or self.put(TopicConfig(name, queue_nums, queue_nums, perm))
