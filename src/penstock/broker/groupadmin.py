"""Consumer groups by hand: create, change, delete, list (protocol 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.bodies import body_object, json_answer
from penstock.broker.groups import GroupConfig
from penstock.broker.header import flag, word
from penstock.broker.names import group_fault, topic_fault
from penstock.broker.paging import page
from penstock.errors import RequestRefused
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


class GroupAdmin:
    """Answers 200, 201, 207, 225, 343, 345, 352 and 353."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.put,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.put_list,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_configs,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.config,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.let_read,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    async def put(self, connection: Connection, request: Command) -> Command:
        await self._store([_group(body_object(request))])
        return request.answer(0)

    async def put_list(self, connection: Connection, request: Command) -> Command:
        given = body_object(request).get("groupConfigList")
        if not isinstance(given, list):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the body has no groupConfigList")
        await self._store([_group(each) for each in given])
        return request.answer(0)

    async def _store(self, configs: list[GroupConfig]) -> None:
        groups = self._broker.groups
        for config in configs:
            groups.put(config)
        if groups.file is not None:
            await groups.file.saved()

    async def delete(self, connection: Connection, request: Command) -> Command:
        name = word(request.fields, "groupName")
        broker = self._broker
        gone = broker.groups.delete(name)
        broker.resets.forget(group=name)
        broker.popping.forget_group(name)
        if flag(request.fields, "cleanOffset"):
            broker.consumer_offsets.remove(group=name)
        if gone and broker.groups.file is not None:
            await broker.groups.file.saved()
        return request.answer(0)

    async def let_read(self, connection: Connection, request: Command) -> Command:
        """Whether a group may read a topic; changed first when the request says how it shall be."""
        name, topic = word(request.fields, "group"), word(request.fields, "topic")
        groups = self._broker.groups
        if "readable" in request.fields:
            for fault in (group_fault(name), topic_fault(topic)):
                if fault is not None:
                    raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
            groups.let_read(name, topic, flag(request.fields, "readable"))
            if groups.file is not None:
                await groups.file.saved()
        readable = groups.may_read(name, topic)
        return json_answer(request, {"group": name, "readable": readable, "topic": topic})

    def config(self, connection: Connection, request: Command) -> Command:
        found = self._broker.groups.get(word(request.fields, "group"))
        if found is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return json_answer(request, found.to_json())

    def all_configs(self, connection: Connection, request: Command) -> Command:
        groups = self._broker.groups
        table: dict[str, Any] = {config.name: config.to_json() for config in groups}
        fields: dict[str, str] | None = None
        if "groupSeq" in request.fields:
            table, fields = page(table, request, "groupSeq", "maxGroupNum", "totalGroupNum")
        body = {
            "dataVersion": groups.version.to_json(),
            "forbiddenTable": groups.forbidden,
            "subscriptionGroupTable": table,
        }
        return json_answer(request, body, fields)

    def topics(self, connection: Connection, request: Command) -> Command:
        name = word(request.fields, "group")
        found = sorted(topic for topic, group in self._broker.consumer_offsets.table() if group == name)
        return json_answer(request, {"brokerAddr": self._broker.address, "topicList": found})

    def subscription(self, connection: Connection, request: Command) -> Command:
        name, topic = word(request.fields, "group"), request.fields.get("topic")
        body: dict[str, Any] = {"group": name}
        if topic is not None:
            body["topic"] = topic
            group = self._broker.consumers.find(name)
            if group is not None and topic in group.subscriptions:
                body["subscriptionData"] = group.subscriptions[topic].to_json()
        return json_answer(request, body)


def _group(value: Any) -> GroupConfig:
    name = str(value.get("groupName") or "") if isinstance(value, dict) else ""
    fault = group_fault(name)
    if fault is not None:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
    try:
        config = GroupConfig.from_json(name, value)
    except ValueError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from None
    if not 0 <= config.retry_queue_nums <= 1024:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, "retryQueueNums is not between 0 and 1024")
    return config
