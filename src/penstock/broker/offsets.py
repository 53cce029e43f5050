"""Where groups stand and where queues begin and end: codes 14, 15 and 29 to 32 (protocol 7.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.header import flag, long_number, number, word
from penstock.errors import RequestRefused
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


class Offsets:
    """Answers questions about offsets, and takes commits."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.store

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.by_time,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest,
        }

    def query(self, connection: Connection, request: Command) -> Command:
        fields = request.fields
        group, topic = word(fields, "consumerGroup"), word(fields, "topic")
        queue_id = number(fields, "queueId")
        offset = self._broker.resets.get(group, topic, queue_id)
        if offset is None:
            offset = self._broker.consumer_offsets.query(group, topic, queue_id)
        if offset >= 0:
            return request.answer(0, {"offset": str(offset)})
        if not flag(fields, "setZeroIfNotFound", otherwise=True):
            raise RequestRefused(
                ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first"
            )
        self._broker.dispatching.catch_up()
        # A new group on a young topic starts from the beginning, whatever its clients are set to.
        begin = self._broker.deleted_topics.begins(topic).get(queue_id, 0)
        young = self._store.min_offset(topic, queue_id) <= begin
        if young and self._store.is_in_memory(topic, queue_id, begin):
            return request.answer(0, {"offset": str(begin)})
        raise RequestRefused(
            ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        )

    def update(self, connection: Connection, request: Command) -> Command:
        fields = request.fields
        group, topic = word(fields, "consumerGroup"), word(fields, "topic")
        broker = self._broker
        if broker.groups.find(group) is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if broker.topics.find(topic) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if "queueId" not in fields:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {topic}")
        if "commitOffset" not in fields:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}")
        queue_id, offset = number(fields, "queueId"), long_number(fields, "commitOffset")
        if broker.resets and broker.resets.get(group, topic, queue_id) is not None:
            return request.answer(0, remark="Offset has been previously reset")
        broker.commit_offset(group, topic, queue_id, offset)
        return request.answer(0)

    def by_time(self, connection: Connection, request: Command) -> Command:
        fields = request.fields
        topic, queue_id = word(fields, "topic"), number(fields, "queueId")
        timestamp = long_number(fields, "timestamp")
        boundary = "upper" if fields.get("boundaryType", "").lower() == "upper" else "lower"
        self._broker.dispatching.catch_up()
        offset = self._store.offset_by_time(topic, queue_id, timestamp, boundary)
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        return request.answer(0, {"offset": str(max(low, min(offset, high)))})

    def max_offset(self, connection: Connection, request: Command) -> Command:
        topic, queue_id = word(request.fields, "topic"), number(request.fields, "queueId")
        self._broker.dispatching.catch_up()
        return request.answer(0, {"offset": str(self._store.max_offset(topic, queue_id))})

    def min_offset(self, connection: Connection, request: Command) -> Command:
        topic, queue_id = word(request.fields, "topic"), number(request.fields, "queueId")
        return request.answer(0, {"offset": str(self._store.min_offset(topic, queue_id))})

    def earliest(self, connection: Connection, request: Command) -> Command:
        topic, queue_id = word(request.fields, "topic"), number(request.fields, "queueId")
        self._broker.dispatching.catch_up()
        timestamp = self._store.store_timestamp_at(topic, queue_id, self._store.min_offset(topic, queue_id))
        return request.answer(0, {"timestamp": str(timestamp)})
