"""Which consumer groups there are (``config/subscriptionGroup.json``) and what each may do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.broker.configtable import ConfigTable, object_of
from penstock.broker.names import group_fault
from penstock.clock import Clock
from penstock.message.topic import LMQ_PREFIX

BOOT_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
"""Groups every broker has."""

READING = 1 << 2
"""The bit of reading in what is forbidden: the place of the read permission."""

_FLAGS = {
    "consumeEnable": "consume_enable",
    "consumeFromMinEnable": "consume_from_min_enable",
    "consumeBroadcastEnable": "consume_broadcast_enable",
    "consumeMessageOrderly": "consume_message_orderly",
    "notifyConsumerIdsChangedEnable": "notify_consumer_ids_changed_enable",
}
_NUMBERS = {
    "retryQueueNums": "retry_queue_nums",
    "retryMaxTimes": "retry_max_times",
    "brokerId": "broker_id",
    "whichBrokerWhenConsumeSlowly": "which_broker_when_consume_slowly",
    "groupSysFlag": "group_sys_flag",
    "consumeTimeoutMinute": "consume_timeout_minute",
}


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One group (RocketMQ's SubscriptionGroupConfig)."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    retry_policy: dict[str, Any] = field(default_factory=lambda: {"type": "CUSTOMIZED"})
    attributes: dict[str, str] = field(default_factory=dict)
    subscriptions: list[Any] | None = None

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "attributes": self.attributes,
            "groupName": self.name,
            "groupRetryPolicy": self.retry_policy,
        }
        for key, attribute in (*_FLAGS.items(), *_NUMBERS.items()):
            content[key] = getattr(self, attribute)
        if self.subscriptions is not None:
            content["subscriptionDataSet"] = self.subscriptions
        return dict(sorted(content.items()))

    @classmethod
    def from_json(cls, name: str, value: Any) -> GroupConfig:
        """ValueError for anything that is no group's configuration; unknown keys are passed over."""
        if not isinstance(value, dict):
            raise ValueError(f"group {name!r} has no object")
        given: dict[str, Any] = {}
        for key, attribute in _FLAGS.items():
            if value.get(key) is not None:
                if not isinstance(value[key], bool):
                    raise ValueError(f"group {name!r}: {key} is {value[key]!r}")
                given[attribute] = value[key]
        for key, attribute in _NUMBERS.items():
            number = value.get(key)
            if number is not None:
                if type(number) is not int or not -(2**31) <= number < 2**31:
                    raise ValueError(f"group {name!r}: {key} is {number!r}")
                given[attribute] = number
        if isinstance(value.get("groupRetryPolicy"), dict):
            given["retry_policy"] = value["groupRetryPolicy"]
        if isinstance(value.get("attributes"), dict):
            given["attributes"] = {str(key): str(each) for key, each in value["attributes"].items()}
        if isinstance(value.get("subscriptionDataSet"), list):
            given["subscriptions"] = value["subscriptionDataSet"]
        return cls(name, **given)


class Groups(ConfigTable[GroupConfig]):
    """The consumer groups of a broker."""

    def __init__(self, *, auto_create: bool, clock: Clock, light: bool = False) -> None:
        """``light``: a group of a light queue is there without anybody having made it."""
        super().__init__(clock)
        if light:
            self.find = self._find_light
        self.auto_create = auto_create
        """Whether consumers may make groups; can be changed while the broker runs."""
        self._forbidden: dict[str, dict[str, int]] = {}

    def load(self, content: Any) -> None:
        """Take over what the file holds. ValueError when it is no table of groups."""
        if content is None:
            return
        for group, topics in object_of(content, "forbiddenTable").items():
            if isinstance(topics, dict):
                self._forbidden[str(group)] = {
                    str(topic): bits for topic, bits in topics.items() if type(bits) is int
                }
        self._load(content, "subscriptionGroupTable", GroupConfig.from_json)

    def add_boot_groups(self) -> None:
        missing = [name for name in BOOT_GROUPS if name not in self._table]
        for name in missing:
            self._table[name] = GroupConfig(name)
        if missing:
            self._changed()

    def content(self) -> dict[str, Any]:
        """What the file is to hold."""
        table = {name: group.to_json() for name, group in self._table.items()}
        return {
            "dataVersion": self.version.to_json(),
            "forbiddenTable": self._forbidden,
            "subscriptionGroupTable": table,
        }

    @property
    def forbidden(self) -> dict[str, dict[str, int]]:
        """By group and topic: bits of what the group may not do there."""
        return self._forbidden

    def may_read(self, group: str, topic: str) -> bool:
        """Whether nobody forbade the group this topic."""
        return not self._forbidden.get(group, {}).get(topic, 0) & READING

    def let_read(self, group: str, topic: str, allowed: bool) -> None:
        """Forbid a group a topic, or allow it again. Other bits stay as they are."""
        topics = dict(self._forbidden.get(group, {}))
        before = topics.get(topic, 0)
        bits = before & ~READING if allowed else before | READING
        if bits == before:
            return
        topics[topic] = bits
        self._forbidden[group] = {name: each for name, each in topics.items() if each}
        if not self._forbidden[group]:
            del self._forbidden[group]
        self._changed()

    def get(self, name: str) -> GroupConfig | None:
        """The group; made with the defaults if there is none, it may be made, and its name is legal."""
        found = self.find(name)
        if found is None and self.auto_create and group_fault(name) is None:
            found = self.put(GroupConfig(name))
        return found

    def _find_light(self, name: str) -> GroupConfig | None:
        found = self._table.get(name)
        if found is None and name.startswith(LMQ_PREFIX) and group_fault(name) is None:
            return GroupConfig(name)
        return found
