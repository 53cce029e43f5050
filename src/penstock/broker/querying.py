"""Finding messages: by key, by unique key, by place; and looking into a queue (protocol 3.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.bodies import json_answer
from penstock.broker.header import flag, long_number, number, word
from penstock.errors import RequestRefused
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

UNIQUE_KEY_RESULTS = 32
MAX_RESULTS = 64
MAX_BODY = 8 << 20
MAX_UNITS = 1000


class Querying:
    """Answers 12, 33 and 321. Everything asked for here is small: it is read on the loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: self.by_key,
            RequestCode.VIEW_MESSAGE_BY_ID: self.by_place,
            RequestCode.QUERY_CONSUME_QUEUE: self.queue_units,
        }

    def by_key(self, connection: Connection, request: Command) -> Command | None:
        fields = request.fields
        topic, key = word(fields, "topic"), word(fields, "key")
        limit = number(fields, "maxNum")
        if flag(fields, "_UNIQUE_KEY_QUERY"):
            limit = UNIQUE_KEY_RESULTS
        begin, end = long_number(fields, "beginTimestamp"), long_number(fields, "endTimestamp")
        # K and U are how 5.5 says key and unique key, which share one kind of entry; T asks for tags.
        kind = "T" if fields.get("indexType") == "T" else None
        self._broker.dispatching.catch_up()
        found = self._broker.store.query(
            topic, key, max=max(min(limit, MAX_RESULTS), 0), begin=begin, end=end, index_type=kind
        )
        parts: list[Any] = []
        size = 0
        for message in found:
            if parts and size + message.size > MAX_BODY:
                break
            parts.append(message.raw)
            size += message.size
        if not parts:
            nothing = {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"}
            remark = "can not find message, maybe time range not correct"
            return request.answer(ResponseCode.QUERY_NOT_FOUND, nothing, remark=remark)
        updated, place = self._broker.store.index_last_update
        header = {"indexLastUpdatePhyoffset": str(place), "indexLastUpdateTimestamp": str(updated)}
        connection.reply_parts(request, request.answer(0, header), parts)
        return None

    def by_place(self, connection: Connection, request: Command) -> Command | None:
        offset = long_number(request.fields, "offset")
        message = self._broker.store.lookup(offset) if offset >= 0 else None
        if message is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        connection.reply_parts(request, request.answer(0), [message.raw])
        return None

    def queue_units(self, connection: Connection, request: Command) -> Command:
        fields = request.fields
        topic, queue_id = word(fields, "topic"), number(fields, "queueId")
        index, count = long_number(fields, "index"), min(number(fields, "count"), MAX_UNITS)
        broker = self._broker
        broker.dispatching.catch_up()
        store = broker.store
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        units: list[dict[str, Any]] = []
        group = broker.consumers.find(fields.get("consumerGroup", ""))
        wanted = None if group is None else group.subscriptions.get(topic)
        for offset in range(max(index, low), min(max(index, low) + max(count, 0), high)):
            unit = store.queue_unit(topic, queue_id, offset)
            if unit is None:
                break
            units.append(
                {
                    "eval": wanted is not None and wanted.takes(unit[2]),
                    "physicOffset": unit[0],
                    "physicSize": unit[1],
                    "tagsCode": unit[2],
                }
            )
        body: dict[str, Any] = {"maxQueueIndex": high, "minQueueIndex": low, "queueData": units}
        if wanted is not None:
            body |= {"subscriptionData": wanted.to_json(), "filterData": "null"}
        return json_answer(request, body)
