"""Taking timed messages back before they are due (protocol 3.11 and 4.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.header import word
from penstock.errors import PenstockError, RequestRefused
from penstock.message import Message, encode_properties
from penstock.message.properties import (
    PROPERTY_TAGS,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQUE_KEY,
)
from penstock.message.recall import RecallHandle, decode_handle
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_TAG = "_RECALL_TAG_"
_REMARK = "not set any response code"
"""What RocketMQ says beside its success; clients that log remarks see the same."""


class Recalling:
    """Puts a message beside the one to be taken back, in the same tick: the timer then drops both."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._fields = {"MSG_REGION": broker.config.region_id}

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, connection: Connection, request: Command) -> Command | None:
        try:
            return self._recall(connection, request)
        except RequestRefused as refused:
            refused.fields.update(self._fields)
            raise

    def _recall(self, connection: Connection, request: Command) -> Command | None:
        handle = self._checked(request)
        broker = self._broker
        properties = {
            PROPERTY_TIMER_DEL_UNIQKEY: handle.unique_key,
            PROPERTY_UNIQUE_KEY: handle.unique_key,
            PROPERTY_TIMER_DELIVER_MS: str(handle.timestamp),
            PROPERTY_TAGS: _TAG,
        }
        message = Message(
            handle.topic,
            b"0",
            queue_id=0,
            born_timestamp=broker.clock.now_ms(),
            born_host=broker.born_host(connection),
            raw_properties=encode_properties(properties),
        )
        if broker.store.awaited_file(len(message.body)) is not None:
            raise _unavailable()  # the next log file is being made; the loop does not wait for it
        try:
            result = broker.store.append(message)
        except PenstockError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "recall failed, execute error") from error
        if not result.ok:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
        broker.dispatching.appended((result.topic or "", result.queue_id))
        tick_end = handle.timestamp + broker.store.config.timer_precision_ms - 1

        def done(error: OSError | None) -> None:
            if error is not None and not isinstance(error, TimeoutError):
                answer = request.answer(ResponseCode.SYSTEM_ERROR, remark="recall failed, execute error")
            elif broker.clock.now_ms() >= tick_end:
                # The disk took so long that the message may be delivered by now: promise nothing.
                answer = request.answer(
                    ResponseCode.ILLEGAL_OPERATION, remark="recall failed, timestamp invalid"
                )
            else:
                answer = request.answer(0, {"msgId": handle.unique_key}, remark=_REMARK)
            answer.fields.update(self._fields)
            connection.reply(request, answer)

        broker.when_durable(result.end_offset, done)
        return None

    def _checked(self, request: Command) -> RecallHandle:
        """The handle of a request that may be carried out. Raises RequestRefused."""
        broker = self._broker
        config = broker.config
        if not config.recall_message_enable:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        now = broker.clock.now_ms()
        if now < config.start_accept_send_request_ms:
            raise _unavailable()
        topic = word(request.fields, "topic")
        text = word(request.fields, "recallHandle")
        if broker.topics.find(topic) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
        handle = decode_handle(text)
        if handle is None:
            raise _illegal("recall handle is invalid")
        if handle.topic != topic:
            raise _illegal("recall failed, topic not match")
        if handle.broker_name != config.broker_name:
            raise _illegal("recall failed, broker service not available")
        left = handle.timestamp - now
        if left <= 0 or left // 1000 >= broker.store.config.timer_max_delay_sec:
            raise _illegal("recall failed, timestamp invalid")
        return handle


def _illegal(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.ILLEGAL_OPERATION, remark)


def _unavailable() -> RequestRefused:
    return RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available")
