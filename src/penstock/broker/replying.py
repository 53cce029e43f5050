"""Request and reply: an answer goes to the client that asked, and into the store (protocol 3.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.putanswer import failure, refusal
from penstock.broker.sendheader import LONG, SHORT, SendHeader, send_header
from penstock.errors import PenstockError, RemotingError, RequestRefused
from penstock.message import Message, encode_properties
from penstock.message.properties import PROPERTY_MESSAGE_REPLY_TO_CLIENT, PROPERTY_PUSH_REPLY_TIME
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

PUSH_SECONDS = 10.0


class Replying:
    """Takes replies."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply_long,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply_short,
        }

    async def reply_long(self, connection: Connection, request: Command) -> Command:
        return await self._reply(connection, request, send_header(request.fields, LONG))

    async def reply_short(self, connection: Connection, request: Command) -> Command:
        return await self._reply(connection, request, send_header(request.fields, SHORT))

    async def _reply(self, connection: Connection, request: Command, header: SendHeader) -> Command:
        broker = self._broker
        marks = broker.sending.marks
        request.body = bytes(request.body)  # the network's buffer is used again while we wait
        try:
            broker.sending.check(connection, header)
            topic = broker.topics.find(header.topic) or broker.sending.new_topic(header)
            if topic is None:
                raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
            if header.queue_id >= topic.queue_nums:
                remark = f"request queueId[{header.queue_id}] is illegal, {topic} Producer: "
                raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark + connection.peer_text)
        except RequestRefused as refused:
            refused.fields.update(marks)
            raise
        header.queue_id = max(header.queue_id, 0)
        properties = broker.sending.rules.for_reply(header.properties)
        now = broker.clock.now_ms()
        properties[PROPERTY_PUSH_REPLY_TIME] = str(now)
        fault = await self._push(connection, request, header, properties, now)
        fields = {"msgId": "0", "queueId": str(header.queue_id), "queueOffset": "0", **marks}
        code: int = ResponseCode.SYSTEM_ERROR if fault is not None else ResponseCode.SUCCESS
        if broker.config.store_reply_message_enable:
            try:
                result = broker.store.append(
                    Message(
                        header.topic,
                        request.body,
                        queue_id=header.queue_id,
                        flag=header.flag,
                        sys_flag=header.sys_flag,
                        born_timestamp=header.born_timestamp,
                        born_host=broker.born_host(connection),
                        reconsume_times=header.reconsume_times,
                        raw_properties=encode_properties(properties),
                    ),
                    hooks=False,
                )
            except PenstockError as error:
                return request.answer(failure(error)[0], fields, remark=failure(error)[1])
            if not result.ok:
                code, fault = refusal(broker.store, result)
            else:
                fields.update(msgId=result.message_id or "", queueOffset=str(result.queue_offset))
                broker.dispatching.appended((header.topic, header.queue_id))
                await broker.durable(result.end_offset)
        return request.answer(code, fields, remark=fault)

    async def _push(
        self,
        connection: Connection,
        request: Command,
        header: SendHeader,
        properties: dict[str, str],
        now: int,
    ) -> str | None:
        """Hand the reply to the client that asked; why that failed, or None."""
        client_id = properties.get(PROPERTY_MESSAGE_REPLY_TO_CLIENT)
        if not client_id:
            return "reply message properties[REPLY_TO_CLIENT] is null"
        asker = self._broker.producers.client(client_id)
        if asker is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        fields = {
            "bornHost": self._broker.born_host(connection),
            "bornTimestamp": str(header.born_timestamp),
            "defaultTopic": header.default_topic,
            "defaultTopicQueueNums": str(header.default_queue_nums),
            "flag": str(header.flag),
            "producerGroup": header.group,
            "properties": encode_properties(properties).decode(),
            "queueId": str(header.queue_id),
            "reconsumeTimes": str(header.reconsume_times),
            "storeHost": self._broker.address,
            "storeTimestamp": str(now),
            "sysFlag": str(header.sys_flag),
            "topic": header.topic,
            "unitMode": "true" if header.unit_mode else "false",
        }
        push = Command.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, request.body)
        try:
            answer = await asker.call(push, PUSH_SECONDS)
        except RemotingError:
            return f"push reply message to {client_id}fail."
        return None if answer.code == 0 else f"push reply message to {client_id}fail."
