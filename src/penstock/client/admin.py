"""What operators ask of brokers and name servers (protocol 3.5): topics, groups, brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from penstock.client.errors import ConsumerNotOnline, refusal
from penstock.client.instance import ClientInstance
from penstock.client.offsets import BrokerOffsets
from penstock.client.queue import MessageQueue
from penstock.client.queueplaces import QueuePlaces
from penstock.client.route import MASTER_ID, BrokerData
from penstock.client.settings import ClientSettings
from penstock.client.wirejson import decode_any, encode
from penstock.errors import UsageError
from penstock.message import validate_topic
from penstock.message.topic import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    DLQ_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
)
from penstock.remoting import Command, RequestCode, ResponseCode

READ_WRITE = 6
EARLIEST, LATEST = 0, -1

SYSTEM_GROUPS = frozenset(
    {
        *("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_RMQ_SYS_TRANS"),
        *("CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER"),
    }
)
"""Groups that every broker has from its start (protocol 3.5)."""


@dataclass(frozen=True)
class QueueState:
    """One queue of a topic as its broker has it. ``last_update`` is when the last message came, or 0."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_update: int


@dataclass(frozen=True)
class QueueProgress:
    """How far a group is in one queue. ``lag`` messages wait."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_timestamp: int

    @property
    def lag(self) -> int:
        return self.broker_offset - self.consumer_offset


@dataclass(frozen=True)
class GroupMembers:
    """The clients of a group that are connected, and what they read."""

    clients: list[dict[str, Any]]
    message_model: str
    consume_type: str
    subscriptions: dict[str, str]


class Admin:
    """Asks and tells brokers, Penstock's or RocketMQ's. A context manager.

    What concerns the whole cluster goes to the master of every broker that the name servers know.
    """

    def __init__(
        self, namesrv: str | Sequence[str] | None = None, *, settings: ClientSettings | None = None
    ) -> None:
        names = namesrv if namesrv is None or isinstance(namesrv, str) else list(namesrv)
        self.instance = ClientInstance(names, settings)
        self.places = QueuePlaces(self.instance)

    async def __aenter__(self) -> Self:
        await self.instance.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.instance.close()

    # -- brokers ------------------------------------------------------------------------------------------

    async def brokers(self) -> list[BrokerData]:
        """Every broker, by name."""
        table = (await self.instance.name_servers.cluster()).broker_addr_table
        return [table[name] for name in sorted(table)]

    async def masters(self) -> dict[str, str]:
        """Address of each broker's master, by the broker's name. UsageError when there is none."""
        found = {
            broker.broker_name: broker.broker_addrs[MASTER_ID]
            for broker in await self.brokers()
            if MASTER_ID in broker.broker_addrs
        }
        if not found:
            raise UsageError("the name server knows no broker", hint="is one running and registered there?")
        return found

    async def runtime(self, address: str) -> dict[str, str]:
        """What a broker says of itself: version, rates, disk, offsets of its log."""
        answer = await self.instance.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        table = decode_any(answer.body).get("table") or {}
        return {str(name): str(value) for name, value in sorted(table.items())}

    # -- topics -------------------------------------------------------------------------------------------

    async def topics(self) -> list[str]:
        """Every topic, those of the system included."""
        return await self.instance.name_servers.topics()

    async def create_topic(
        self, topic: str, *, queues: int = 8, perm: int = READ_WRITE, order: bool = False
    ) -> None:
        """Make a topic on every broker, or change the one that is there."""
        if reason := validate_topic(topic):
            raise UsageError(reason)
        fields = {
            "topic": topic,
            "defaultTopic": AUTO_CREATE_TOPIC_KEY_TOPIC,
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(perm),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": str(order).lower(),
        }
        for address in (await self.masters()).values():
            await self.instance.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

    async def delete_topic(self, topic: str) -> None:
        """Remove a topic from every broker and name server; its messages go with their files."""
        for address in (await self.masters()).values():
            await self.instance.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        await self._tell_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})

    async def topic_state(self, topic: str) -> list[QueueState]:
        """Every queue of a topic with its ends. Raises RouteNotFound."""
        route = await self.instance.route(topic)
        found: list[QueueState] = []
        for name in sorted(route.addresses):
            answer = await self.instance.call(
                self.instance.broker_address(name),
                RequestCode.GET_TOPIC_STATS_INFO,
                {"topic": topic},
                also=(ResponseCode.TOPIC_NOT_EXIST,),
            )
            if answer.code != ResponseCode.SUCCESS:
                continue
            for key, state in (decode_any(answer.body).get("offsetTable") or {}).items():
                found.append(
                    QueueState(
                        MessageQueue.from_json(dict(key)),
                        int(state["minOffset"]),
                        int(state["maxOffset"]),
                        int(state.get("lastUpdateTimestamp", 0)),
                    )
                )
        return sorted(found, key=lambda state: state.queue)

    async def topic_groups(self, topic: str) -> list[str]:
        """The groups that read a topic, or did."""
        route = await self.instance.route(topic)
        found: set[str] = set()
        for name in route.addresses:
            address = self.instance.broker_address(name)
            answer = await self.instance.call(
                address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic}
            )
            found.update(str(group) for group in decode_any(answer.body).get("groupList") or [])
        return sorted(found)

    # -- groups -------------------------------------------------------------------------------------------

    async def groups(self) -> dict[str, dict[str, Any]]:
        """Every group with its settings, as the brokers have them."""
        found: dict[str, dict[str, Any]] = {}
        for address in (await self.masters()).values():
            answer = await self.instance.call(
                address,
                RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                {"groupSeq": "0", "maxGroupNum": "100000"},
            )
            table = decode_any(answer.body).get("subscriptionGroupTable") or {}
            found.update({str(name): dict(settings) for name, settings in table.items()})
        return dict(sorted(found.items()))

    async def create_group(self, group: str, **settings: Any) -> None:
        """Make a group on every broker, or change it. ``settings`` are RocketMQ's SubscriptionGroupConfig."""
        if reason := validate_topic(group):
            raise UsageError(reason.replace("topic", "group"))
        body = encode(
            {
                "groupName": group,
                "consumeEnable": True,
                "consumeFromMinEnable": True,
                "consumeBroadcastEnable": True,
                "consumeMessageOrderly": False,
                "retryQueueNums": 1,
                "retryMaxTimes": 16,
                "brokerId": 0,
                "whichBrokerWhenConsumeSlowly": 1,
                "notifyConsumerIdsChangedEnable": True,
                "groupSysFlag": 0,
                "consumeTimeoutMinute": 15,
                "attributes": {},
                **settings,
            }
        )
        for address in (await self.masters()).values():
            await self.instance.call(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)

    async def delete_group(self, group: str, *, keep_offsets: bool = False) -> None:
        """Remove a group from every broker, with its retry and dead-letter topics."""
        fields = {"groupName": group, "cleanOffset": str(not keep_offsets).lower()}
        for address in (await self.masters()).values():
            await self.instance.call(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
        for topic in (f"{RETRY_TOPIC_PREFIX}{group}", f"{DLQ_TOPIC_PREFIX}{group}"):
            await self.delete_topic(topic)

    async def progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        """How far a group is, queue by queue; empty for one that never read anything."""
        fields = {"consumerGroup": group, **({} if topic is None else {"topic": topic})}
        found: list[QueueProgress] = []
        for address in (await self.masters()).values():
            answer = await self.instance.call(address, RequestCode.GET_CONSUME_STATS, fields)
            for key, state in (decode_any(answer.body).get("offsetTable") or {}).items():
                found.append(
                    QueueProgress(
                        MessageQueue.from_json(dict(key)),
                        int(state["brokerOffset"]),
                        int(state["consumerOffset"]),
                        int(state.get("lastTimestamp", 0)),
                    )
                )
        return sorted(found, key=lambda state: state.queue)

    async def members(self, group: str) -> GroupMembers | None:
        """Who is connected, or None when nobody is."""
        clients: dict[str, dict[str, Any]] = {}
        body: dict[str, Any] = {}
        for address in (await self.masters()).values():
            try:
                answer = await self.instance.call(
                    address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}
                )
            except ConsumerNotOnline:
                continue
            body = decode_any(answer.body)
            for client in body.get("connectionSet") or []:
                clients[str(client["clientId"])] = {
                    "client_id": str(client["clientId"]),
                    "address": str(client.get("clientAddr", "")),
                    "language": str(client.get("language", "")),
                    "version": int(client.get("version", 0)),
                }
        if not clients:
            return None
        table = body.get("subscriptionTable") or {}
        return GroupMembers(
            [clients[name] for name in sorted(clients)],
            str(body.get("messageModel", "")),
            str(body.get("consumeType", "")),
            {str(topic): str(wanted.get("subString", "*")) for topic, wanted in sorted(table.items())},
        )

    async def reset_offset(
        self,
        group: str,
        topic: str,
        *,
        time_ms: int = EARLIEST,
        queue: MessageQueue | None = None,
        offset: int | None = None,
    ) -> dict[MessageQueue, int]:
        """Move a group: every queue of a topic to a time (EARLIEST, LATEST), or one queue to an offset.

        Members that are connected follow at once. The new offsets.
        """
        route = await self.instance.route(topic)
        found: dict[MessageQueue, int] = {}
        for name in sorted(route.addresses):
            if queue is not None and queue.broker_name != name:
                continue
            fields = {
                "group": group,
                "topic": topic,
                "timestamp": str(time_ms),
                "isForce": "true",
                "queueId": "-1" if queue is None else str(queue.queue_id),
                "offset": "-1" if offset is None else str(offset),
            }
            address = self.instance.broker_address(name)
            try:
                answer = await self.instance.call(
                    address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields, timeout=10.0
                )
            except ConsumerNotOnline:
                # An older broker only tells clients; with none connected the offsets can simply be written.
                found.update(
                    await self._write_offsets(group, route.subscribe_queues, name, time_ms, queue, offset)
                )
                continue
            table = decode_any(answer.body).get("offsetTable") or {} if answer.body else {}
            found.update({MessageQueue.from_json(dict(key)): int(place) for key, place in table.items()})
        return dict(sorted(found.items()))

    async def _write_offsets(
        self,
        group: str,
        queues: Sequence[MessageQueue],
        broker_name: str,
        time_ms: int,
        queue: MessageQueue | None,
        offset: int | None,
    ) -> dict[MessageQueue, int]:
        places: dict[MessageQueue, int] = {}
        for each in [each for each in queues if each.broker_name == broker_name and queue in (None, each)]:
            if offset is not None:
                places[each] = offset
            elif time_ms == LATEST:
                places[each] = await self.places.max_offset(each)
            else:
                places[each] = await self.places.offset_by_time(each, time_ms)
        await BrokerOffsets(self.instance, group).write(places, wait=True)
        return places

    async def _tell_name_servers(self, code: int, fields: dict[str, str]) -> None:
        for address in self.instance.addresses:
            connection = await self.instance.connection(address)
            answer = await connection.call(Command.request(code, fields), self.instance.settings.call_timeout)
            if answer.code:
                raise refusal(answer, address)
