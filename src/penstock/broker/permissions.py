"""What each request of a broker needs (protocol 9.2, 9.3). A code without a row is refused to everybody.

Names inside of bodies are read by the same readers that the handlers use: what is judged is what is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.broker.bodies import body_object
from penstock.broker.clients import read_client_config, read_heartbeat, read_locks
from penstock.broker.header import long_number
from penstock.broker.sendheader import LONG, SHORT
from penstock.message.ids import decode_message_id
from penstock.message.properties import PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_REAL_TOPIC
from penstock.message.recall import decode_handle
from penstock.message.topic import RETRY_TOPIC_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from penstock.remoting import Command, RequestCode
from penstock.security.actions import Action
from penstock.security.rules import (
    ACCOUNT,
    SUPER,
    SUPER_READ,
    Need,
    Needs,
    Rule,
    fields,
    group_need,
    rights,
    topic_need,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_REDIRECTED = (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC)
_PUB, _SUB, _GET, _UPDATE = Action.PUB, Action.SUB, Action.GET, Action.UPDATE
_READ = _SUB | _GET


def permissions(broker: Broker) -> dict[int, Rule]:
    """The rules of a broker's own requests."""
    stored = _Stored(broker)
    code = RequestCode
    table = {
        # -- sending ------------------------------------------------------------------------------------
        code.SEND_MESSAGE: rights(_sends(LONG)),
        code.SEND_MESSAGE_V2: rights(_sends(SHORT)),
        code.SEND_BATCH_MESSAGE: rights(_sends(SHORT)),
        code.SEND_REPLY_MESSAGE: rights(_sends(LONG)),
        code.SEND_REPLY_MESSAGE_V2: rights(_sends(SHORT)),
        code.END_TRANSACTION: rights(stored.half),
        code.RECALL_MESSAGE: rights(_recalled),
        # -- consuming ----------------------------------------------------------------------------------
        code.PULL_MESSAGE: rights(_consumed(_SUB)),
        code.LITE_PULL_MESSAGE: rights(_consumed(_SUB)),
        code.CONSUMER_SEND_MSG_BACK: rights(stored.sent_back),
        code.QUERY_CONSUMER_OFFSET: rights(_consumed(_READ)),
        code.UPDATE_CONSUMER_OFFSET: rights(_consumed(_SUB | _UPDATE)),
        code.HEART_BEAT: rights(_registered),
        code.UNREGISTER_CLIENT: rights(fields(optional=[("Group", "consumerGroup", _SUB)])),
        code.GET_CONSUMER_LIST_BY_GROUP: rights(fields(("Group", "consumerGroup", _READ))),
        code.CHECK_CLIENT_CONFIG: rights(_checked),
        code.LOCK_BATCH_MQ: rights(_locked),
        code.UNLOCK_BATCH_MQ: rights(_locked),
        code.POP_MESSAGE: rights(_consumed(_SUB)),
        code.PEEK_MESSAGE: rights(_consumed(_SUB)),
        code.ACK_MESSAGE: rights(_consumed(_SUB)),
        code.BATCH_ACK_MESSAGE: rights(_acked),
        code.CHANGE_MESSAGE_INVISIBLETIME: rights(_consumed(_SUB)),
        code.NOTIFICATION: rights(_consumed(_SUB)),
        code.POLLING_INFO: rights(_consumed(_READ)),
        code.QUERY_ASSIGNMENT: rights(_assigned),
        # -- finding ------------------------------------------------------------------------------------
        code.SEARCH_OFFSET_BY_TIMESTAMP: rights(_topic(_READ)),
        code.GET_MAX_OFFSET: rights(_topic(_READ)),
        code.GET_MIN_OFFSET: rights(_topic(_READ)),
        code.GET_EARLIEST_MSG_STORETIME: rights(_topic(_READ)),
        # The messages themselves: what tells about a topic is not enough.
        code.QUERY_MESSAGE: rights(_topic(_SUB)),
        code.VIEW_MESSAGE_BY_ID: rights(stored.viewed),
        code.QUERY_CONSUME_QUEUE: rights(_topic(_SUB, ("Group", "consumerGroup", _READ))),
        # -- topics -------------------------------------------------------------------------------------
        code.UPDATE_AND_CREATE_TOPIC: rights(_topic(Action.CREATE), admin=True),
        code.UPDATE_AND_CREATE_TOPIC_LIST: rights(_topic_list, admin=True),
        code.DELETE_TOPIC_IN_BROKER: rights(_topic(Action.DELETE), admin=True),
        code.GET_TOPIC_STATS_INFO: rights(_topic(_GET)),
        code.GET_TOPIC_CONFIG: rights(_topic(_GET)),
        code.QUERY_TOPIC_CONSUME_BY_WHO: rights(_topic(_GET)),
        code.GET_ALL_TOPIC_CONFIG: SUPER_READ,
        code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: ACCOUNT,
        code.CLEAN_UNUSED_TOPIC: SUPER,
        # -- groups -------------------------------------------------------------------------------------
        code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: rights(_group_body, admin=True),
        code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: rights(_group_list, admin=True),
        code.DELETE_SUBSCRIPTIONGROUP: rights(fields(("Group", "groupName", Action.DELETE)), admin=True),
        code.GET_SUBSCRIPTIONGROUP_CONFIG: rights(fields(("Group", "group", _GET))),
        code.UPDATE_AND_GET_GROUP_FORBIDDEN: rights(_topic(_UPDATE, group="group"), admin=True),
        code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SUPER_READ,
        code.QUERY_TOPICS_BY_CONSUMER: rights(fields(("Group", "group", _GET))),
        code.QUERY_SUBSCRIPTION_BY_CONSUMER: rights(
            fields(("Group", "group", _GET), optional=[("Topic", "topic", _GET)])
        ),
        code.GET_CONSUMER_CONNECTION_LIST: rights(fields(("Group", "consumerGroup", _GET))),
        code.GET_PRODUCER_CONNECTION_LIST: SUPER_READ,
        code.GET_ALL_PRODUCER_INFO: SUPER_READ,
        code.GET_CONSUME_STATS: rights(_progress),
        code.QUERY_CONSUME_TIME_SPAN: rights(_topic(_GET, group="group")),
        code.GET_CONSUMER_RUNNING_INFO: rights(fields(("Group", "consumerGroup", _GET))),
        code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: rights(_topic(_GET, group="group")),
        code.INVOKE_BROKER_TO_RESET_OFFSET: rights(_topic(_UPDATE, group="group"), admin=True),
        code.CLONE_GROUP_OFFSET: rights(_cloned, admin=True),
        code.CONSUME_MESSAGE_DIRECTLY: rights(stored.direct, admin=True),
        code.SET_MESSAGE_REQUEST_MODE: rights(_request_mode, admin=True),
        code.GET_ALL_MESSAGE_REQUEST_MODE: SUPER_READ,
        # -- the broker ---------------------------------------------------------------------------------
        code.UPDATE_BROKER_CONFIG: SUPER,
        code.GET_BROKER_CONFIG: SUPER_READ,
        code.GET_BROKER_RUNTIME_INFO: SUPER_READ,
        code.GET_ALL_CONSUMER_OFFSET: SUPER_READ,
        code.GET_ALL_DELAY_OFFSET: SUPER_READ,
        code.GET_TIMER_CHECK_POINT: SUPER_READ,
        code.GET_TIMER_METRICS: SUPER_READ,
        code.GET_BROKER_CONSUME_STATS: SUPER_READ,
        code.VIEW_BROKER_STATS_DATA: SUPER_READ,
        code.CLEAN_EXPIRED_CONSUMEQUEUE: SUPER,
        code.DELETE_EXPIRED_COMMITLOG: SUPER,
        code.GET_BROKER_HA_STATUS: SUPER_READ,
        code.GET_COLD_DATA_FLOW_CTR_INFO: SUPER_READ,
        # -- accounts -----------------------------------------------------------------------------------
        **dict.fromkeys((code.AUTH_CREATE_USER, code.AUTH_UPDATE_USER, code.AUTH_DELETE_USER), SUPER),
        **dict.fromkeys((code.AUTH_CREATE_ACL, code.AUTH_UPDATE_ACL, code.AUTH_DELETE_ACL), SUPER),
        **dict.fromkeys((code.AUTH_GET_USER, code.AUTH_LIST_USER), SUPER),
        **dict.fromkeys((code.AUTH_GET_ACL, code.AUTH_LIST_ACL), SUPER),
    }
    return {int(code): rule for code, rule in table.items()}


# -- header fields -----------------------------------------------------------------------------------------


def _topic(actions: Action, *more: tuple[Any, str, Action], group: str = "") -> Needs:
    needed = [("Group", group, actions)] if group else []
    return fields(("Topic", "topic", actions), *needed, optional=more)  # type: ignore[arg-type]


def _consumed(actions: Action) -> Needs:
    """A group reads a topic; what pop consumers retry is named by a topic of the group's own."""

    def needs(request: Command) -> Iterable[Need]:
        group, topic = request.fields.get("consumerGroup"), request.fields.get("topic")
        yield group_need(group, actions)
        if group and topic is not None and topic.startswith(RETRY_TOPIC_PREFIX):
            rest = topic[len(RETRY_TOPIC_PREFIX) :]
            if rest[: len(group) + 1] in (f"{group}+", f"{group}_"):
                yield topic_need(rest[len(group) + 1 :], actions)
                return
        yield topic_need(topic, actions)

    return needs


def _sends(names: tuple[str, ...]) -> Needs:
    topic_key, properties_key = names[1], names[8]

    def needs(request: Command) -> Iterable[Need]:
        topic = request.fields.get(topic_key)
        if topic != TRACE_TOPIC:  # everybody's, as in RocketMQ: what clients tell of themselves
            yield topic_need(topic, _PUB)
        properties = request.fields.get(properties_key, "")
        if PROPERTY_INNER_MULTI_DISPATCH in properties:
            yield from _light_queues(properties)
        if request.code == RequestCode.SEND_BATCH_MESSAGE and _MULTI in bytes(request.body):
            raise ValueError("a batch that also goes to light queues")

    return needs


_MULTI = PROPERTY_INNER_MULTI_DISPATCH.encode()


def _light_queues(properties: str) -> Iterable[Need]:
    """Queues beside the topic's own that a message is to appear in."""
    for line in properties.split("\x02"):
        name, _, value = line.partition("\x01")
        if name == PROPERTY_INNER_MULTI_DISPATCH:
            yield from (topic_need(each, _PUB) for each in value.split(","))


def _progress(request: Command) -> Iterable[Need]:
    yield group_need(request.fields.get("consumerGroup"), _GET)
    named = request.fields.get("topic") or request.fields.get("topicList", "")
    yield from (topic_need(name, _GET) for name in named.split(";") if name)


def _cloned(request: Command) -> Iterable[Need]:
    yield group_need(request.fields.get("srcGroup"), _GET)
    yield group_need(request.fields.get("destGroup"), _UPDATE)


def _recalled(request: Command) -> Iterable[Need]:
    yield topic_need(request.fields.get("topic"), _PUB)
    handle = decode_handle(request.fields.get("recallHandle", ""))
    if handle is not None:
        yield topic_need(handle.topic, _PUB)


# -- bodies ------------------------------------------------------------------------------------------------


def _registered(request: Command) -> Iterable[Need]:
    beat = read_heartbeat(request)
    for consumer in beat.consumerDataSet or ():
        yield group_need(consumer.groupName, _SUB)
        for subscription in consumer.subscriptionDataSet or ():
            # A group's own retries come with it; somebody else's do not.
            yield topic_need(subscription.topic, _SUB)


def _checked(request: Command) -> Iterable[Need]:
    data = read_client_config(request)
    if data.subscriptionData is not None:
        yield topic_need(data.subscriptionData.topic, _SUB)


def _locked(request: Command) -> Iterable[Need]:
    batch = read_locks(request)
    yield group_need(batch.consumerGroup, _SUB)
    yield from (topic_need(queue.topic, _SUB) for queue in batch.mqSet or ())


def _acked(request: Command) -> Iterable[Need]:
    for entry in _entries(request, "acks") if request.body else ():
        yield group_need(str(entry.get("c") or ""), _SUB)
        yield topic_need(str(entry.get("t") or ""), _SUB)


def _assigned(request: Command) -> Iterable[Need]:
    wanted = body_object(request)
    yield topic_need(str(wanted.get("topic") or ""), _SUB)
    yield group_need(str(wanted.get("consumerGroup") or ""), _SUB)


def _request_mode(request: Command) -> Iterable[Need]:
    wanted = body_object(request)
    yield topic_need(str(wanted.get("topic") or ""), _GET)
    yield group_need(str(wanted.get("consumerGroup") or ""), _UPDATE)


def _topic_list(request: Command) -> Iterable[Need]:
    return (
        topic_need(_named(entry, "topicName"), Action.CREATE)
        for entry in _entries(request, "topicConfigList")
    )


def _group_body(request: Command) -> Iterable[Need]:
    yield group_need(_named(body_object(request), "groupName"), Action.CREATE)


def _group_list(request: Command) -> Iterable[Need]:
    return (
        group_need(_named(entry, "groupName"), Action.CREATE)
        for entry in _entries(request, "groupConfigList")
    )


def _entries(request: Command, key: str) -> list[dict[str, Any]]:
    found = body_object(request).get(key)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError(f"{key} is no list of objects")
    return found


def _named(entry: dict[str, Any], key: str) -> str | None:
    name = entry.get(key)
    return name if isinstance(name, str) else None


# -- messages by their place -------------------------------------------------------------------------------


class _Stored:
    """Requests that name a place in the log: whose it is, the record says, not the request."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def viewed(self, request: Command) -> Iterable[Need]:
        yield from self._record(lambda: long_number(request.fields, "offset"))

    def sent_back(self, request: Command) -> Iterable[Need]:
        yield group_need(request.fields.get("group"), _SUB)
        yield from self._record(lambda: long_number(request.fields, "offset"))

    def direct(self, request: Command) -> Iterable[Need]:
        yield group_need(request.fields.get("consumerGroup"), _UPDATE)
        yield from self._record(lambda: decode_message_id(request.fields.get("msgId", ""))[1])

    def half(self, request: Command) -> Iterable[Need]:
        yield from self._record(lambda: long_number(request.fields, "commitLogOffset"), _PUB)
        if request.fields.get("topic"):
            yield topic_need(request.fields["topic"], _PUB)

    def _record(self, place: Callable[[], int], actions: Action = _SUB) -> Iterable[Need]:
        """The topic of the message there, as it was sent; where there is none the handler says so."""
        offset = place()
        message = self._broker.store.lookup(offset) if offset >= 0 else None
        if message is not None:
            sent_to = message.properties.get(PROPERTY_REAL_TOPIC) if message.topic in _REDIRECTED else None
            yield topic_need(sent_to or message.topic, actions)
