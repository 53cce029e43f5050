"""Messages that a consumer could not handle: tried again later, or put to the dead letters (protocol 4.4)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from penstock.broker.header import long_number, number, optional_number, word
from penstock.broker.names import FAQ
from penstock.broker.putanswer import flush_failure
from penstock.broker.topics import PERM_WRITE
from penstock.errors import PenstockError, RequestRefused
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode
from penstock.store.retry import dead_letter_topic, retry_topic, send_back

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_RECONSUME_SINCE = 121
"""Clients of this version (3.4.9) and later mean what they say in maxReconsumeTimes."""


class SendBack:
    """Takes messages back from consumers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, connection: Connection, request: Command) -> Command | None:
        broker, fields = self._broker, request.fields
        name = word(fields, "group")
        group = broker.groups.get(name)
        if group is None:
            remark = f"subscription group not exist, {name} {FAQ}"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not broker.config.broker_permission & PERM_WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{broker.config.advertised_host}] sending message is forbidden",
            )
        if group.retry_queue_nums <= 0:
            return request.answer(0)
        topic = broker.topics.ensure(retry_topic(name), group.retry_queue_nums)
        if not topic.perm & PERM_WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] sending message is forbidden"
            )
        offset = long_number(fields, "offset")
        record = broker.store.lookup(offset) if offset >= 0 else None
        if record is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        most = group.retry_max_times
        if request.version >= _RECONSUME_SINCE:
            most = optional_number(fields, "maxReconsumeTimes", most)
        message = send_back(
            record,
            name,
            delay_level=number(fields, "delayLevel"),
            max_reconsume_times=most,
            queue_id=random.randrange(group.retry_queue_nums),
        )
        if message.topic == dead_letter_topic(name):
            broker.topics.ensure(message.topic, 1)
        try:
            result = broker.store.append(message)
        except PenstockError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"SERVICE_NOT_AVAILABLE: {error}") from error
        if not result.ok:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, result.status)
        broker.stats.count_sent_back(record.topic, name)
        broker.dispatching.appended((result.topic or "", result.queue_id))

        def done(error: OSError | None) -> None:
            answer = request.answer(0)
            if error is not None:
                answer.code, answer.remark = ResponseCode.SYSTEM_ERROR, flush_failure(error)[1]
            connection.reply(request, answer)

        # After the answer the consumer commits past the message: it must not be lost any more.
        broker.when_durable(result.end_offset, done)
        return None
