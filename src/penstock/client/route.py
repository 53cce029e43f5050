"""Where a topic lives: its queues and the addresses of their brokers (protocol 2.2 and 2.3)."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from penstock.client.queue import MessageQueue
from penstock.client.wirejson import decode

PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1
MASTER_ID = 0


class BrokerData(msgspec.Struct, rename="camel"):
    """A broker and the addresses of its master (0) and slaves."""

    broker_name: str
    broker_addrs: dict[int, str] = {}
    cluster: str = ""


class QueueData(msgspec.Struct, rename="camel"):
    """How many queues of a topic a broker has, and what may be done with them."""

    broker_name: str
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 6
    topic_sys_flag: int = 0


class RouteData(msgspec.Struct, rename="camel"):
    """The name server's answer."""

    broker_datas: list[BrokerData] = []
    queue_datas: list[QueueData] = []
    order_topic_conf: str | None = None


class ClusterData(msgspec.Struct, rename="camel"):
    """Every broker the name server knows, and which cluster it belongs to."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


@dataclass(frozen=True)
class TopicRoute:
    """A route as clients use it. ``template`` is the topic it was borrowed from, if it was."""

    topic: str
    data: RouteData
    template: str = ""
    publish_queues: tuple[MessageQueue, ...] = field(init=False)
    subscribe_queues: tuple[MessageQueue, ...] = field(init=False)

    def __post_init__(self) -> None:
        masters = {
            broker.broker_name for broker in self.data.broker_datas if MASTER_ID in broker.broker_addrs
        }
        parts = sorted(self.data.queue_datas, key=lambda part: part.broker_name)
        publish = (
            MessageQueue(self.topic, part.broker_name, number)
            for part in parts
            if part.perm & PERM_WRITE and part.broker_name in masters
            for number in range(part.write_queue_nums)
        )
        subscribe = (
            MessageQueue(self.topic, part.broker_name, number)
            for part in parts
            if part.perm & PERM_READ
            for number in range(part.read_queue_nums)
        )
        object.__setattr__(self, "publish_queues", tuple(publish))
        object.__setattr__(self, "subscribe_queues", tuple(subscribe))

    @property
    def addresses(self) -> dict[str, dict[int, str]]:
        """By broker name: its addresses by id."""
        return {broker.broker_name: broker.broker_addrs for broker in self.data.broker_datas}

    @classmethod
    def parse(cls, topic: str, body: bytes | memoryview) -> TopicRoute:
        return cls(topic, decode(body, RouteData))

    def lent_to(self, topic: str, queues: int) -> TopicRoute:
        """The route of a topic that the first send will make after this one (protocol 2.5)."""
        parts = [
            QueueData(
                part.broker_name,
                min(queues, part.read_queue_nums),
                min(queues, part.read_queue_nums),
                part.perm,
                part.topic_sys_flag,
            )
            for part in self.data.queue_datas
        ]
        return TopicRoute(topic, RouteData(self.data.broker_datas, parts), template=self.topic)
