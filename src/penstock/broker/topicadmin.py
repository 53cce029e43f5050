"""Topics by hand: create, change, delete, list, and what is in them (protocol 3.5)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.broker.bodies import body_object, java_answer, json_answer, queue_key
from penstock.broker.header import flag, number, optional_number, word
from penstock.broker.names import topic_fault
from penstock.broker.paging import page
from penstock.broker.rates import Rates
from penstock.broker.topics import TopicConfig
from penstock.errors import RequestRefused
from penstock.message.topic import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

NOT_SET = "not set any response code"
"""RocketMQ's remark on requests that went well and said nothing."""
MAX_QUEUES = 65536
CHANGEABLE = {"message.type": ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED")}
FIXED = {"queue.type": ("SimpleCQ", "BatchCQ"), "cleanup.policy": ("DELETE", "COMPACTION")}
NUMBERS = ("reserve.time",)


class TopicAdmin:
    """Answers 17, 18, 21, 202, 215, 300, 305, 316 and 351."""

    def __init__(self, broker: Broker, rates: Rates) -> None:
        self._broker = broker
        self._rates = rates
        broker.topics.on_change.append(self._topic_changed)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.put,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.put_list,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_configs,
            RequestCode.GET_TOPIC_CONFIG: self.config,
            RequestCode.GET_TOPIC_STATS_INFO: self.stats,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.consumed_by,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused,
        }

    # -- making -------------------------------------------------------------------------------------------

    async def put(self, connection: Connection, request: Command) -> Command:
        fields = request.fields
        name = word(fields, "topic")
        self._check_name(name)
        attributes = self._attributes(name, fields.get("attributes", ""))
        config = TopicConfig(
            name,
            _queues(number(fields, "readQueueNums"), name),
            _queues(number(fields, "writeQueueNums"), name),
            _perm(number(fields, "perm")),
            _filter_type(fields.get("topicFilterType", "")),
            optional_number(fields, "topicSysFlag", 0),
            flag(fields, "order"),
            attributes,
        )
        await self._store([config])
        return request.answer(0, remark=NOT_SET)

    async def put_list(self, connection: Connection, request: Command) -> Command:
        given = body_object(request).get("topicConfigList")
        if not isinstance(given, list):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the body has no topicConfigList")
        configs: list[TopicConfig] = []
        for each in given:
            name = str(each.get("topicName", "")) if isinstance(each, dict) else ""
            self._check_name(name)
            try:
                config = TopicConfig.from_json(name, each)
            except ValueError as error:
                raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from None
            _queues(config.read_queue_nums, name)
            _queues(config.write_queue_nums, name)
            _perm(config.perm)
            known = self._broker.topics.find(name)
            had = {} if known is None else known.attributes
            asked = {key.removeprefix("+"): value for key, value in config.attributes.items()}
            changes = [f"+{key}={value}" for key, value in asked.items() if had.get(key) != value]
            configs.append(replace(config, attributes=self._attributes(name, ",".join(changes))))
        await self._store(configs)
        return request.answer(0, remark=NOT_SET)

    async def _store(self, configs: list[TopicConfig]) -> None:
        """Acked means on disk: a topic that was created survives a kill."""
        topics = self._broker.topics
        for config in configs:
            if config.attributes.get("queue.type") == "BatchCQ" and config.name not in topics:
                self._broker.store.make_batch_topic(config.name, save=False)
            topics.put(config)
        if topics.file is not None:
            await topics.file.saved()

    def _check_name(self, name: str) -> None:
        fault = topic_fault(name)
        if fault is None and self._broker.topics.is_system(name):
            fault = f"The topic[{name}] is conflict with system topic."
        if fault is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)

    def _attributes(self, name: str, text: str) -> dict[str, str]:
        """``+key=value,-key`` applied to what the topic has."""
        known = self._broker.topics.find(name)
        attributes = {} if known is None else dict(known.attributes)
        for change in (part.strip() for part in text.split(",") if part.strip()):
            key, _, value = change[1:].partition("=")
            if change[0] not in "+-" or key not in {*CHANGEABLE, *FIXED, *NUMBERS}:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"unsupported key: {key or change}")
            if key == "message.type" and value == "MIXED":
                raise RequestRefused(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
            if change[0] == "-" and known is None:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"only add attribute is supported while creating topic. key: {key}",
                )
            if change[0] == "-" and key not in attributes:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"attempt to delete a nonexistent key: {key}")
            # The kind of its queues is a topic's for life, named at its making or not.
            if known is not None and key in FIXED:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR, f"attempt to update an unchangeable attribute. key: {key}"
                )
            if change[0] == "-":
                attributes.pop(key)
                continue
            allowed = CHANGEABLE.get(key) or FIXED.get(key)
            if (allowed and value not in allowed) or (key in NUMBERS and not _whole(value)):
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"value of {key} is illegal: {value}")
            attributes[key] = value
        return attributes

    # -- deleting -----------------------------------------------------------------------------------------

    async def delete(self, connection: Connection, request: Command) -> Command:
        """The topic and what belongs to it. Its messages stay in the log until that expires, unseen."""
        name = request.fields.get("topic", "")
        if not name.strip():
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        broker = self._broker
        if broker.topics.is_system(name):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic."
            )
        config = broker.topics.find(name)
        if config is not None:
            broker.topics.delete(name)
        broker.consumer_offsets.remove(topic=name)
        broker.resets.forget(topic=name)
        broker.stats.forget_topic(name)
        for key in [key for key in broker.pull_offsets if key[0] == name]:
            del broker.pull_offsets[key]
        for queue_id in range(0 if config is None else config.queue_nums):
            broker.holding.wake(name, queue_id)
        await broker.write_beside(lambda: self._hide(name))
        for file in (broker.topics.file, broker.deleted_topics.file):
            if file is not None:
                await file.saved()
        return request.answer(0)

    def _hide(self, name: str) -> None:
        """Nobody sees the messages of a deleted topic, also when it is created again. Waits for the disk."""
        broker = self._broker
        begins = broker.deleted_topics.begins(name)
        if any(broker.store.max_offset(name, queue_id) < begin for queue_id, begin in begins.items()):
            broker.store.flush()
            broker.store.dispatch()
        for queue_id, begin in begins.items():
            broker.store.hide_before(name, queue_id, begin)

    def _topic_changed(self, name: str, config: TopicConfig | None) -> None:
        broker = self._broker
        if config is not None:
            broker.deleted_topics.discard(name)
            return
        begins = {
            queue_id: broker.store.next_offset(name, queue_id) for queue_id in broker.store.queue_ids(name)
        }
        if any(begins.values()):
            broker.deleted_topics.add(name, begins)

    async def clean_unused(self, connection: Connection, request: Command) -> Command:
        """Remove the queue files of deleted topics. Those that the log still has messages of stay: recovery
        would bring them back.
        """
        names = list(self._broker.deleted_topics)
        await self._broker.write_beside(
            lambda: [self._broker.store.remove_expired_queues(name) for name in names]
        )
        return request.answer(0)

    # -- looking ------------------------------------------------------------------------------------------

    def config(self, connection: Connection, request: Command) -> Command:
        name = word(request.fields, "topic")
        config = self._broker.topics.find(name)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        return json_answer(request, config.to_json())

    def all_configs(self, connection: Connection, request: Command) -> Command:
        topics = self._broker.topics
        table = {config.name: config.to_json() for config in topics}
        fields: dict[str, str] | None = None
        if "topicSeq" in request.fields:
            table, fields = page(table, request, "topicSeq", "maxTopicNum", "totalTopicNum")
        return json_answer(
            request,
            {
                "dataVersion": topics.version.to_json(),
                "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0},
                "topicConfigTable": table,
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {},
            },
            fields,
        )

    def stats(self, connection: Connection, request: Command) -> Command:
        name = word(request.fields, "topic")
        broker = self._broker
        config = broker.topics.find(name)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        broker.dispatching.catch_up()
        store = broker.store
        table: dict[Any, Any] = {}
        for queue_id in range(config.queue_nums):
            low, high = store.min_offset(name, queue_id), store.max_offset(name, queue_id)
            last = store.store_timestamp_at(name, queue_id, high - 1) if high > low else 0
            table[queue_key(broker.config.broker_name, name, queue_id)] = {
                "lastUpdateTimestamp": max(last, 0),
                "maxOffset": high,
                "minOffset": low,
            }
        return java_answer(request, {"offsetTable": table, "topicPutTps": self._rates.put_tps(name)})

    def consumed_by(self, connection: Connection, request: Command) -> Command:
        name = word(request.fields, "topic")
        groups = dict.fromkeys(
            [*self._broker.consumers.subscribers(name), *self._broker.consumer_offsets.groups(name)]
        )
        return json_answer(request, {"groupList": list(groups)})

    def system_topics(self, connection: Connection, request: Command) -> Command:
        return json_answer(request, {"topicList": self._broker.topics.system_topics})


def _queues(count: int, topic: str) -> int:
    """Zero is how a topic is closed for one side; the rest is a bound on what one request may cost."""
    low = 1 if topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX)) else 0
    if not low <= count <= MAX_QUEUES:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER, f"{count} queues; a topic has {low} to {MAX_QUEUES}"
        )
    return count


def _perm(perm: int) -> int:
    if not 0 <= perm <= 7:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"the permission {perm} is not between 0 and 7")
    return perm


def _filter_type(text: str) -> str:
    if text not in ("", "SINGLE_TAG", "MULTI_TAG"):
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"unknown topicFilterType {text[:40]}")
    return text or "SINGLE_TAG"


def _whole(text: str) -> bool:
    return text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < 19
