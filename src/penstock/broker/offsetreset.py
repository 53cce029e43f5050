"""Offsets by hand: reset, clone, and the tables as they are (protocol 3.5, 3.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.bodies import java_answer, queue_key
from penstock.broker.header import long_number, optional_long, optional_number, word
from penstock.errors import RequestRefused
from penstock.message.topic import SCHEDULE_TOPIC
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode
from penstock.store.dataversion import DataVersion

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


class OffsetReset:
    """Answers 222, 314, 43 and 45."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.consumer_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.delay_offsets,
        }

    def reset(self, connection: Connection, request: Command) -> Command:
        """Set where a group reads on. Its clients learn of it with their next pull, held ones at once."""
        fields = request.fields
        group, topic = word(fields, "group"), word(fields, "topic")
        queue_id = optional_number(fields, "queueId", -1)
        offset = optional_long(fields, "offset", -1)
        timestamp = long_number(fields, "timestamp")
        broker, store = self._broker, self._broker.store
        config = broker.topics.find(topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if broker.groups.find(group) is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        broker.dispatching.catch_up()
        if queue_id >= 0 and offset != -1:
            low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            if not low <= offset <= high + 1:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {offset} not in consume queue range [{low}-{high}]",
                )
            targets = {queue_id: offset}
        elif queue_id >= 0:
            targets = {queue_id: self._at_time(topic, queue_id, timestamp)}
        else:
            targets = {each: self._at_time(topic, each, timestamp) for each in range(config.read_queue_nums)}
        for each, target in targets.items():
            broker.consumer_offsets.commit(group, topic, each, target)
            broker.resets.put(group, topic, each, target)
            broker.holding.wake(topic, each)
            broker.popping.moved(topic, group, each)
        name = broker.config.broker_name
        table: dict[Any, int] = {queue_key(name, topic, each): value for each, value in targets.items()}
        return java_answer(request, {"offsetTable": table})

    def _at_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        store = self._broker.store
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        if timestamp < 0:
            return high
        return max(low, min(store.offset_by_time(topic, queue_id, timestamp), high))

    def clone(self, connection: Connection, request: Command) -> Command:
        fields = request.fields
        source, target = word(fields, "srcGroup"), word(fields, "destGroup")
        broker = self._broker
        if broker.groups.get(target) is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {target} does not exist")
        only = fields.get("topic")
        for (topic, group), queues in broker.consumer_offsets.table().items():
            if group == source and only in (None, "", topic) and topic in broker.topics:
                for queue_id, offset in queues.items():
                    broker.commit_offset(target, topic, queue_id, offset)
        return request.answer(0)

    def consumer_offsets(self, connection: Connection, request: Command) -> Command:
        offsets = self._broker.consumer_offsets
        table = {f"{topic}@{group}": queues for (topic, group), queues in offsets.table().items()}
        return java_answer(request, {"dataVersion": offsets.version.to_json(), "offsetTable": table})

    def delay_offsets(self, connection: Connection, request: Command) -> Command:
        store = self._broker.store
        # Asking for the service would start it; without a delayed message there is none.
        known = SCHEDULE_TOPIC in store.topics()
        table = store.schedules.delay.offsets if known else {}
        return java_answer(request, {"dataVersion": DataVersion().to_json(), "offsetTable": table})
