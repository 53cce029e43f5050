"""Batches: many messages of one send, each a record of its own (protocol 4.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._native.batchbody import split_batch
from penstock.broker.properties import parse_text
from penstock.broker.sendheader import SendHeader
from penstock.broker.topics import MULTI_TAG, TopicConfig
from penstock.errors import RequestRefused
from penstock.message import Message, encode_properties
from penstock.message.properties import PROPERTY_DELAY_TIME_LEVEL, PROPERTY_INNER_NUM, PROPERTY_UNIQUE_KEY
from penstock.message.sysflag import INNER_BATCH_FLAG, MULTI_TAGS_FLAG, NEED_UNWRAP_FLAG, TRANSACTION_MASK
from penstock.message.topic import RETRY_TOPIC_PREFIX, TOPIC_MAX_LENGTH
from penstock.remoting import Command, Connection, ResponseCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.sending import Sending


class TooLarge:
    """The result of a batch that is larger than a message may be."""

    status = "MESSAGE_ILLEGAL"
    reason = "the batch is too large"


class Batching:
    """Takes batches from producers. The checks of a send are behind it."""

    def __init__(self, sending: Sending, broker: Broker) -> None:
        self._sending = sending
        self._broker = broker
        self._store = broker.store
        self._read: tuple[str, dict[str, str]] = ("", {})

    def put(
        self, connection: Connection, request: Command, header: SendHeader, topic: TopicConfig
    ) -> Command | None:
        name = header.topic
        common = self._common(header.properties)
        if len(name) > TOPIC_MAX_LENGTH:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(name)}")
        if name.startswith(RETRY_TOPIC_PREFIX):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {name}"
            )
        if header.sys_flag & TRANSACTION_MASK or PROPERTY_DELAY_TIME_LEVEL in common:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL, "a batch can be neither delayed nor part of a transaction"
            )
        sys_flag = header.sys_flag | (MULTI_TAGS_FLAG if topic.filter_type == MULTI_TAG else 0)
        message = Message(
            name,
            b"",
            queue_id=header.queue_id,
            sys_flag=sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=connection.context.get("born_host") or self._broker.born_host(connection),
            reconsume_times=header.reconsume_times,
        )
        key = common.get(PROPERTY_UNIQUE_KEY)
        if topic.attributes.get("queue.type") == "BatchCQ" and key:
            return self._put_inner_batch(connection, request, header, common, message)
        if len(request.body) > self._store.config.max_message_size:
            return self._sending.refused(request, TooLarge())
        try:
            results = self._store.append_batch(message, request.body)
        except ValueError as error:
            raise _damaged(error) from None
        count = len(results)
        if not count:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
        if not results.ok:
            return self._sending.refused(request, next(each for each in results if not each.ok))
        queue_id = header.queue_id
        self._broker.dispatching.appended((name, queue_id), count)
        self._broker.stats.count_put(name, count, len(request.body))
        waits = common.get("WAIT", "").lower() != "false"
        offset, end, ids = results.queue_offset, results.end_offset, results.message_ids()
        self._sending.answer_stored(connection, request, ids, queue_id, offset, key or None, end, waits)
        return None

    def _common(self, text: str) -> dict[str, str]:
        """The properties of a batch as a whole, which are nearly always those of the one before."""
        if text != self._read[0]:
            self._read = text, parse_text(text)
        return self._read[1]

    def _put_inner_batch(
        self,
        connection: Connection,
        request: Command,
        header: SendHeader,
        common: dict[str, str],
        common_fields: Message,
    ) -> Command | None:
        """A batch for a topic with batch queues is one record, which consumers take apart."""
        try:
            count = len(split_batch(request.body))
        except ValueError as error:
            raise _damaged(error) from None
        properties = {**common, **parse_text(self._sending.rules.finish("")[0].decode())}
        properties[PROPERTY_UNIQUE_KEY] = common[PROPERTY_UNIQUE_KEY]
        properties[PROPERTY_INNER_NUM] = str(count)
        message = Message(
            header.topic,
            request.body,
            queue_id=header.queue_id,
            flag=header.flag,
            sys_flag=common_fields.sys_flag | INNER_BATCH_FLAG | NEED_UNWRAP_FLAG,
            born_timestamp=header.born_timestamp,
            born_host=common_fields.born_host,
            raw_properties=encode_properties(properties),
        )
        result = self._store.append(message, hooks=False)
        if not result.ok:
            return self._sending.refused(request, result)
        fields = {
            "msgId": result.message_id or "",
            "queueId": str(header.queue_id),
            "queueOffset": str(result.queue_offset),
            "transactionId": common[PROPERTY_UNIQUE_KEY],
            "batchUniqId": common[PROPERTY_UNIQUE_KEY],
            **self._sending.marks,
        }
        self._broker.dispatching.appended((header.topic, header.queue_id))
        self._broker.stats.count_put(header.topic, count, result.size)
        return self._sending.answer(connection, request, request.answer(0, fields), result.end_offset, True)


def _damaged(error: ValueError) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, f"the batch is damaged: {error}")
