"""Routes: brokers, their addresses, their topics, and when each was last heard of (protocol section 2).

No network and no files here: a broker in the same process calls these methods as the requests do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.clock import Clock, SystemClock
from penstock.namesrv.kv import KvConfig
from penstock.namesrv.settings import NameServerSettings
from penstock.store.dataversion import DataVersion

PERM_READ, PERM_WRITE = 4, 2
DEFAULT_EXPIRY_MS = 120_000
MASTER = 0


@dataclass(slots=True)
class QueueData:
    """How many queues one broker has of a topic, and what may be done with them."""

    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> QueueData:
        """Of a TopicConfig or QueueData object. ValueError when it is neither."""
        numbers = [
            value.get(name, default)
            for name, default in (
                ("readQueueNums", 16),
                ("writeQueueNums", 16),
                ("perm", PERM_READ | PERM_WRITE),
                ("topicSysFlag", 0),
            )
        ]
        if not all(type(number) is int and 0 <= number < 2**31 for number in numbers):
            raise ValueError(f"no configuration of a topic: {dict(value)}")
        return cls(*numbers)


@dataclass(slots=True)
class BrokerData:
    """The brokers of one name: a master and its slaves, by id."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    acting_master: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            # Quoted keys and no blanks: Go's client cuts this out as text (protocol 1.8).
            "brokerAddrs": {str(number): self.addresses[number] for number in sorted(self.addresses)},
            "brokerName": self.name,
            "cluster": self.cluster,
            "enableActingMaster": self.acting_master,
        }


@dataclass(slots=True)
class _Life:
    """One broker process: when it was last heard of, and its topics' version."""

    name: str
    broker_id: int
    seen_ms: int
    expiry_ms: int | None
    version: DataVersion
    ha_address: str
    owner: object


class NameServer:
    """Takes registrations and answers which brokers have a topic.

    ``owner`` of a registration is the connection it came over: ``lost(owner)`` takes the broker out. A broker
    of the same process has none, and with ``expiry_ms=None`` never expires.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._lives: dict[tuple[str, str], _Life] = {}
        self.kv = KvConfig()
        self.settings = NameServerSettings()

    # -- brokers come and go ------------------------------------------------------------------------------

    def register(
        self,
        *,
        cluster: str,
        name: str,
        address: str,
        topics: Mapping[str, Mapping[str, Any]],
        broker_id: int = MASTER,
        version: DataVersion | None = None,
        ha_address: str = "",
        expiry_ms: int | None = DEFAULT_EXPIRY_MS,
        acting_master: bool = False,
        owner: object = None,
    ) -> bool:
        """Take over a broker's table of topics (TopicConfig objects), all of them or those that changed.

        False for one topic alone from a broker that is not known: its whole table has to come first.
        ValueError for a table that is none; then nothing is taken over.
        """
        queues = {topic: QueueData.from_json(config) for topic, config in topics.items()}
        broker = self._brokers.get(name)
        if len(queues) == 1 and (broker is None or broker_id not in broker.addresses):
            return False
        if broker is None:
            broker = self._brokers[name] = BrokerData(cluster, name)
        broker.cluster = cluster
        broker.acting_master = acting_master
        # A slave that became the master comes under another id and leaves the old one.
        for number in [each for each, known in broker.addresses.items() if known == address]:
            del broker.addresses[number]
        broker.addresses[broker_id] = address
        self._lives[cluster, address] = _Life(
            name,
            broker_id,
            self._clock.now_ms(),
            expiry_ms,
            version or DataVersion(),
            ha_address,
            owner,
        )
        # Only the master says what topics there are; so does a slave of a name that has no master.
        if broker_id == MASTER or MASTER not in broker.addresses:
            for topic, queue in queues.items():
                self._topics.setdefault(topic, {})[name] = queue
        return True

    def unregister(self, *, cluster: str, name: str, address: str, broker_id: int) -> None:
        """A broker leaves. One that is not known may leave too."""
        self._lives.pop((cluster, address), None)
        broker = self._brokers.get(name)
        if broker is None or broker.addresses.get(broker_id) != address:
            return
        del broker.addresses[broker_id]
        if not broker.addresses:
            del self._brokers[name]
            for topic in [topic for topic, queues in self._topics.items() if name in queues]:
                del self._topics[topic][name]
                if not self._topics[topic]:
                    del self._topics[topic]

    def heartbeat(self, *, cluster: str, address: str) -> None:
        """A broker lives, without a word about its topics."""
        if (life := self._lives.get((cluster, address))) is not None:
            life.seen_ms = self._clock.now_ms()

    def lost(self, owner: object) -> None:
        """The connection of some brokers is gone, and so are they."""
        self._drop(key for key, life in self._lives.items() if life.owner is owner and owner is not None)

    def expire(self) -> list[str]:
        """Take out brokers that were silent for too long; their addresses."""
        now = self._clock.now_ms()
        return self._drop(
            key
            for key, life in self._lives.items()
            if life.expiry_ms is not None and now - life.seen_ms > life.expiry_ms
        )

    def _drop(self, keys: Iterable[tuple[str, str]]) -> list[str]:
        gone = [(key, self._lives[key]) for key in list(keys)]
        for (cluster, address), life in gone:
            self.unregister(cluster=cluster, name=life.name, address=address, broker_id=life.broker_id)
        return [address for (_, address), _ in gone]

    # -- what is known ------------------------------------------------------------------------------------

    def version_of(self, cluster: str, address: str) -> DataVersion | None:
        """The version of the topics that a broker registered last."""
        life = self._lives.get((cluster, address))
        return None if life is None else life.version

    def master_of(self, cluster: str, name: str) -> tuple[str, str] | None:
        """Address and HA address of the master of that name."""
        broker = self._brokers.get(name)
        address = None if broker is None else broker.addresses.get(MASTER)
        life = None if address is None else self._lives.get((cluster, address))
        return None if address is None or life is None else (address, life.ha_address)

    def route(self, topic: str) -> dict[str, Any] | None:
        """RocketMQ's TopicRouteData, or None when no broker has the topic."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        return {
            "brokerDatas": [self._brokers[name].to_json() for name in sorted(queues)],
            "filterServerTable": {},
            "queueDatas": [
                {
                    "brokerName": name,
                    "perm": queues[name].perm,
                    "readQueueNums": queues[name].read_queue_nums,
                    "topicSysFlag": queues[name].topic_sys_flag,
                    "writeQueueNums": queues[name].write_queue_nums,
                }
                for name in sorted(queues)
            ],
        }

    def clusters(self) -> dict[str, list[str]]:
        """Names of the brokers of each cluster."""
        found: dict[str, list[str]] = {}
        for name in sorted(self._brokers):
            found.setdefault(self._brokers[name].cluster, []).append(name)
        return found

    def brokers(self) -> dict[str, BrokerData]:
        """All brokers by name."""
        return dict(self._brokers)

    def topic_names(self, cluster: str | None = None) -> list[str]:
        """All topics, or those that some broker of the cluster has."""
        if cluster is None:
            return list(self._topics)
        members = {name for name, broker in self._brokers.items() if broker.cluster == cluster}
        return [topic for topic, queues in self._topics.items() if members & queues.keys()]

    def unit_topics(self, flag: int, without: int = 0) -> list[str]:
        """Topics whose flags have one of these bits and none of those."""
        found = (
            topic
            for topic, queues in self._topics.items()
            for queue in queues.values()
            if queue.topic_sys_flag & flag and not queue.topic_sys_flag & without
        )
        return list(dict.fromkeys(found))

    # -- topics and permissions ---------------------------------------------------------------------------

    def delete_topic(self, topic: str, cluster: str | None = None, name: str | None = None) -> None:
        """Forget a topic: everywhere, on the brokers of one cluster, or of one name.

        One that is not known may go too.
        """
        queues = self._topics.get(topic, {})
        for each in list(queues):
            if cluster in (None, self._brokers[each].cluster) and name in (None, each):
                del queues[each]
        if not queues:
            self._topics.pop(topic, None)

    def add_topic(self, topic: str, queues: Mapping[str, Mapping[str, Any]]) -> None:
        """Add queues of known brokers to a topic by hand; by broker name."""
        made = {name: QueueData.from_json(value) for name, value in queues.items() if name in self._brokers}
        if made:
            self._topics.setdefault(topic, {}).update(made)

    def set_writable(self, name: str, writable: bool) -> int:
        """Let producers send to a broker or not, until it registers again; how many topics it has."""
        found = [queues[name] for queues in self._topics.values() if name in queues]
        for queue in found:
            queue.perm = queue.perm | PERM_WRITE if writable else queue.perm & ~PERM_WRITE
        return len(found)
