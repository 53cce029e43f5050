"""Who consumes and produces, how far they are, and questions passed on to them (protocol 3.5, 3.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.broker.bodies import java_answer, json_answer, queue_key
from penstock.broker.consumers import Member
from penstock.broker.header import word
from penstock.broker.producers import Producer
from penstock.broker.rates import Rates
from penstock.errors import ConnectionLost, RemotingTimeout, RequestRefused
from penstock.message.ids import decode_message_id
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

RELAY_SECONDS = 10.0
LOWEST_RELAY_VERSION = 62


class ConsumerAdmin:
    """Answers 203, 204, 208, 223, 303, 307, 309, 317 and 328."""

    def __init__(self, broker: Broker, rates: Rates) -> None:
        self._broker = broker
        self._rates = rates

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.broker_consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_span,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
        }

    # -- connections --------------------------------------------------------------------------------------

    def consumer_connections(self, connection: Connection, request: Command) -> Command:
        name = word(request.fields, "consumerGroup")
        group = self._broker.consumers.find(name)
        if group is None:
            raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        return json_answer(
            request,
            {
                "connectionSet": _connections(group.members.values()),
                "consumeFromWhere": group.consume_from_where,
                "consumeType": group.consume_type,
                "messageModel": group.message_model,
                "subscriptionTable": {topic: each.to_json() for topic, each in group.subscriptions.items()},
            },
        )

    def producer_connections(self, connection: Connection, request: Command) -> Command:
        name = word(request.fields, "producerGroup")
        members = self._broker.producers.members(name)
        if not members:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return json_answer(request, {"connectionSet": _connections(members)})

    def all_producers(self, connection: Connection, request: Command) -> Command:
        now_ms, now = self._broker.clock.now_ms(), asyncio.get_running_loop().time()
        data = {
            group: [
                {
                    "clientId": member.client_id,
                    "language": member.language,
                    "lastUpdateTimestamp": now_ms - int((now - member.seen) * 1000),
                    "remoteIP": f"/{member.connection.peer_text}",
                    "version": member.version,
                }
                for member in members
            ]
            for group, members in self._broker.producers
        }
        return json_answer(request, {"data": data})

    # -- progress -----------------------------------------------------------------------------------------

    def consume_stats(self, connection: Connection, request: Command) -> Command:
        fields = request.fields
        group = word(fields, "consumerGroup")
        wanted = [name for name in (fields.get("topic") or fields.get("topicList", "")).split(";") if name]
        self._broker.dispatching.catch_up()
        table: dict[Any, Any] = {}
        tps = 0.0
        for topic in wanted or self._topics_of(group):
            tps += self._progress(group, topic, table)
        return java_answer(request, {"consumeTps": tps, "offsetTable": table})

    def broker_consume_stats(self, connection: Connection, request: Command) -> Command:
        order = request.fields.get("isOrder", "").lower() == "true"
        broker = self._broker
        broker.dispatching.catch_up()
        groups: dict[str, list[Any]] = {config.name: [] for config in broker.groups}
        behind = inflight = 0
        for topic, group in broker.consumer_offsets.table():
            config = broker.topics.find(topic)
            if group not in groups or config is None or (order and not config.order):
                continue
            table: dict[Any, Any] = {}
            tps = self._progress(group, topic, table)
            groups[group].append({"consumeTps": tps, "offsetTable": table})
            for row in table.values():
                behind += max(row["brokerOffset"] - row["consumerOffset"], 0)
                inflight += max(row["pullOffset"] - row["consumerOffset"], 0)
        return java_answer(
            request,
            {
                "brokerAddr": broker.address,
                "consumeStatsList": [{group: rows} for group, rows in groups.items()],
                "totalDiff": behind,
                "totalInflightDiff": inflight,
            },
        )

    def _topics_of(self, group: str) -> list[str]:
        """Topics with offsets of the group; while it is online only those it still subscribes to."""
        found = sorted(topic for topic, name in self._broker.consumer_offsets.table() if name == group)
        online = self._broker.consumers.find(group)
        if online is None or not online.subscriptions:
            return found
        return [topic for topic in found if topic in online.subscriptions]

    def _progress(self, group: str, topic: str, table: dict[Any, Any]) -> float:
        """Add a row for each queue; the rate at which the group consumes the topic."""
        broker, store = self._broker, self._broker.store
        config = broker.topics.find(topic)
        if config is None:
            return 0.0
        offsets = broker.consumer_offsets.offsets(group, topic)
        for queue_id in range(config.read_queue_nums):
            consumed = max(offsets.get(queue_id, 0), 0)
            last = store.store_timestamp_at(topic, queue_id, consumed - 1) if consumed else 0
            table[queue_key(broker.config.broker_name, topic, queue_id)] = {
                "brokerOffset": max(store.max_offset(topic, queue_id), 0),
                "consumerOffset": consumed,
                "lastTimestamp": max(last, 0),
                "pullOffset": max(broker.pull_offsets.get((topic, group, queue_id), 0), 0),
            }
        return self._rates.get_tps(topic, group)

    def time_span(self, connection: Connection, request: Command) -> Command:
        topic, group = word(request.fields, "topic"), word(request.fields, "group")
        broker, store = self._broker, self._broker.store
        config = broker.topics.find(topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        broker.dispatching.catch_up()
        spans = []
        for queue_id in range(config.read_queue_nums):
            low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            first = store.store_timestamp_at(topic, queue_id, low)
            last = store.store_timestamp_at(topic, queue_id, high - 1)
            consumed = broker.consumer_offsets.query(group, topic, queue_id)
            at = first if consumed <= 0 else store.store_timestamp_at(topic, queue_id, consumed - 1)
            if consumed < high:
                waiting = store.store_timestamp_at(topic, queue_id, max(consumed, low))
                delay = broker.clock.now_ms() - waiting if waiting >= 0 else 0
            else:
                delay = 0
            spans.append(
                {
                    "consumeTimeStamp": at,
                    "delayTime": max(delay, 0),
                    "maxTimeStamp": last,
                    "messageQueue": dict(queue_key(broker.config.broker_name, topic, queue_id)),
                    "minTimeStamp": first,
                }
            )
        return json_answer(request, {"consumeTimeSpanSet": spans})

    # -- passed on ----------------------------------------------------------------------------------------

    async def running_info(self, connection: Connection, request: Command) -> Command:
        return await self._relay(request, dict(request.fields), b"")

    async def consume_directly(self, connection: Connection, request: Command) -> Command:
        fields = request.fields
        self._member(fields.get("consumerGroup", ""), fields.get("clientId"))
        try:
            place = decode_message_id(word(fields, "msgId"))[1]
        except ValueError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no message id: {error}") from None
        message = self._broker.store.lookup(place) if place >= 0 else None
        if message is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {place}")
        group = self._broker.groups.find(fields.get("consumerGroup", ""))
        topic = self._broker.topics.find(message.topic)
        extra = {
            "brokerName": self._broker.config.broker_name,
            "topicSysFlag": str(0 if topic is None else topic.sys_flag),
            "groupSysFlag": str(0 if group is None else group.group_sys_flag),
        }
        return await self._relay(request, {**fields, **extra}, bytes(message.raw))

    async def consumer_status(self, connection: Connection, request: Command) -> Command:
        """What each member of a group says of its queues. The members' bodies are no strict JSON: passed on
        as bytes.
        """
        topic, name = word(request.fields, "topic"), word(request.fields, "group")
        only = request.fields.get("clientAddr") or request.fields.get("clientId")
        group = self._broker.consumers.find(name)
        if group is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the consumer group[{name}] not online")
        rows: list[bytes] = []
        for member in list(group.members.values()):
            if only and only not in (member.client_id, member.connection.peer_text):
                continue
            question = Command.request(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": topic, "group": name}
            )
            try:
                answer = await member.connection.call(question, RELAY_SECONDS)
            except (RemotingTimeout, ConnectionLost):
                continue
            table = _inside(bytes(answer.body), b'"messageQueueTable":')
            if answer.code == 0 and table is not None:
                client = member.client_id.replace("\\", "").replace('"', "").encode()
                rows.append(b'"' + client + b'":' + table)
        return request.answer(0, None, b'{"consumerTable":{' + b",".join(rows) + b"}}")

    def _member(self, name: str, client_id: str | None) -> Member:
        group = self._broker.consumers.find(name)
        members = [] if group is None else list(group.members.values())
        found = next((each for each in members if each.client_id == client_id), None)
        if found is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{name}> <{client_id or 'null'}> not online"
            )
        if found.version < LOWEST_RELAY_VERSION:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{found.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        return found

    async def _relay(self, request: Command, fields: dict[str, str], body: bytes) -> Command:
        """Ask the client and give its answer as it is: code, remark and body (protocol 1.8)."""
        name, client_id = word(fields, "consumerGroup"), fields.get("clientId")
        member = self._member(name, client_id)
        try:
            answer = await member.connection.call(Command.request(request.code, fields, body), RELAY_SECONDS)
        except RemotingTimeout as error:
            raise RequestRefused(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{name}> <{client_id}> Timeout: {error}"
            ) from None
        except ConnectionLost as error:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{name}> <{client_id}> Exception: {error}"
            ) from None
        return request.answer(answer.code, dict(answer.fields), bytes(answer.body), answer.remark)


def _connections(members: Iterable[Member | Producer]) -> list[dict[str, Any]]:
    return [
        {
            "clientAddr": member.connection.peer_text,
            "clientId": member.client_id,
            "language": member.language,
            "version": member.version,
        }
        for member in members
    ]


def _inside(body: bytes, name: bytes) -> bytes | None:
    """The object behind a name, by counting braces outside of strings."""
    start = body.find(name)
    if start < 0:
        return None
    start += len(name)
    depth, quoted, escaped = 0, False, False
    for at in range(start, len(body)):
        mark = body[at : at + 1]
        if quoted:
            if escaped:
                escaped = False
            elif mark == b"\\":
                escaped = True
            elif mark == b'"':
                quoted = False
        elif mark == b'"':
            quoted = True
        elif mark == b"{":
            depth += 1
        elif mark == b"}":
            depth -= 1
            if depth == 0:
                return body[start : at + 1]
        elif depth == 0 and mark not in b" \t\r\n":
            return None
    return None
