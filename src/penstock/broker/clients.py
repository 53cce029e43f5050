"""Clients: heartbeats, leaving, who else is in a group, queue locks (protocol 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.broker.consumers import CLUSTERING, ConsumerGroup
from penstock.broker.header import word
from penstock.broker.locks import QueueName
from penstock.broker.subscription import TAG, Subscription, no_filters, subscription
from penstock.errors import InvalidFilter, RequestRefused
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode
from penstock.store.retry import retry_topic

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


class _SubscriptionData(msgspec.Struct):
    topic: str
    subString: str | None = None
    subVersion: int = 0
    expressionType: str | None = None


class _ConsumerData(msgspec.Struct):
    groupName: str
    consumeType: str | None = None
    messageModel: str | None = None
    consumeFromWhere: str | None = None
    subscriptionDataSet: list[_SubscriptionData] | None = None


class _ProducerData(msgspec.Struct):
    groupName: str


class _Heartbeat(msgspec.Struct):
    clientID: str
    consumerDataSet: list[_ConsumerData] | None = None
    producerDataSet: list[_ProducerData] | None = None
    heartbeatFingerprint: int = 0
    withoutSub: bool = False


class _Queue(msgspec.Struct):
    topic: str
    queueId: int
    brokerName: str = ""


class _LockBatch(msgspec.Struct):
    clientId: str
    consumerGroup: str
    mqSet: list[_Queue] | None = None


class _ClientConfig(msgspec.Struct):
    subscriptionData: _SubscriptionData | None = None


_heartbeat = msgspec.json.Decoder(_Heartbeat).decode
_lock_batch = msgspec.json.Decoder(_LockBatch).decode
_client_config = msgspec.json.Decoder(_ClientConfig).decode
_encode = msgspec.json.Encoder().encode


class Clients:
    """Knows the clients and answers what they ask about each other."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    def heartbeat(self, connection: Connection, request: Command) -> Command:
        beat = read_heartbeat(request)
        changed = True
        for consumer in beat.consumerDataSet or ():
            changed = self._consumer(connection, request, beat, consumer)
        for producer in beat.producerDataSet or ():
            self._broker.producers.register(
                producer.groupName,
                connection,
                beat.clientID,
                language=_language(request),
                version=request.version,
            )
        fields = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if changed else "false"}
        return request.answer(0, fields)

    def _consumer(
        self, connection: Connection, request: Command, beat: _Heartbeat, data: _ConsumerData
    ) -> bool:
        """Take one group of a heartbeat; what is answered as ``IS_SUB_CHANGE``."""
        broker = self._broker
        group = broker.groups.get(data.groupName)
        if group is None:
            return True  # not to be created: this entry is passed over, as RocketMQ does
        broker.topics.ensure(retry_topic(group.name), max(group.retry_queue_nums, 1))
        short = beat.heartbeatFingerprint != 0 and beat.withoutSub
        broker.consumers.register(
            group.name,
            connection,
            beat.clientID,
            language=_language(request),
            version=request.version,
            consume_type=data.consumeType or "CONSUME_PASSIVELY",
            message_model=data.messageModel or CLUSTERING,
            consume_from_where=data.consumeFromWhere or "CONSUME_FROM_LAST_OFFSET",
            subscriptions=None if short else _subscriptions(data.subscriptionDataSet or []),
            notify=group.notify_consumer_ids_changed_enable,
        )
        if beat.heartbeatFingerprint == 0:
            return True
        known = broker.consumers.find(group.name)
        if known is None:
            return True
        before, known.fingerprint = known.fingerprint, beat.heartbeatFingerprint
        return before not in (0, beat.heartbeatFingerprint)

    def unregister(self, connection: Connection, request: Command) -> Command:
        client_id = word(request.fields, "clientID")
        producer, consumer = request.fields.get("producerGroup"), request.fields.get("consumerGroup")
        if producer:
            self._broker.producers.unregister(producer, client_id, connection)
        if consumer:
            self._broker.consumers.unregister(consumer, client_id, connection)
        return request.answer(0)

    def consumer_list(self, connection: Connection, request: Command) -> Command:
        name = word(request.fields, "consumerGroup")
        group = self._broker.consumers.find(name)
        if group is None or not group.members:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        return request.answer(0, body=_encode({"consumerIdList": group.client_ids}))

    def check_config(self, connection: Connection, request: Command) -> Command:
        """Whether a subscription would be served; Java asks for those that are not by tags."""
        data = read_client_config(request).subscriptionData
        if data is None or data.expressionType in (None, "", TAG):
            return request.answer(0)
        wanted = subscription(data.topic, data.subString, data.expressionType)
        if not self._broker.config.enable_property_filter:
            raise no_filters(wanted.expression_type)
        try:
            _ = wanted.filter
        except InvalidFilter as error:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return request.answer(0)

    def lock(self, connection: Connection, request: Command) -> Command:
        batch = read_locks(request)
        owned = self._broker.locks.lock(batch.consumerGroup, batch.clientId, _queues(batch))
        listed = [
            {"brokerName": broker_name, "queueId": queue_id, "topic": topic}
            for topic, broker_name, queue_id in owned
        ]
        return request.answer(0, body=_encode({"lockOKMQSet": listed}))

    def unlock(self, connection: Connection, request: Command) -> Command:
        batch = read_locks(request)
        self._broker.locks.unlock(batch.consumerGroup, batch.clientId, _queues(batch))
        return request.answer(0)

    def notify(self, group: ConsumerGroup) -> None:
        """Tell every consumer of a group that it changed: they share the queues out again now."""
        config = self._broker.groups.find(group.name)
        if config is not None and not config.notify_consumer_ids_changed_enable:
            return
        for connection in group.members:
            fields = {"consumerGroup": group.name}
            connection.send(Command.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields, oneway=True))


def read_heartbeat(request: Command) -> _Heartbeat:
    """What a heartbeat says. Raises RequestRefused."""
    found: _Heartbeat = _parsed(_heartbeat, request)
    return found


def read_client_config(request: Command) -> _ClientConfig:
    """The subscription that a client asks about. Raises RequestRefused."""
    found: _ClientConfig = _parsed(_client_config, request)
    return found


def read_locks(request: Command) -> _LockBatch:
    """The queues to lock or unlock. Raises RequestRefused."""
    found: _LockBatch = _parsed(_lock_batch, request)
    return found


def _parsed(decode: Any, request: Command) -> Any:
    """The body as an object; code 1 when it is none."""
    try:
        return decode(request.body)
    except msgspec.MsgspecError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the body is not understood: {error}") from None


def _subscriptions(data: list[_SubscriptionData]) -> dict[str, Subscription]:
    return {
        each.topic: subscription(each.topic, each.subString, each.expressionType, each.subVersion)
        for each in data
    }


def _queues(batch: _LockBatch) -> list[QueueName]:
    return [(queue.topic, queue.brokerName, queue.queueId) for queue in batch.mqSet or ()]


def _language(request: Command) -> str:
    return request.language if isinstance(request.language, str) else "OTHER"
