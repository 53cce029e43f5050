"""Failed messages on their way to another try (protocol 4.4)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.client.errors import BrokerError
from penstock.client.sender import Sender, SingleSend
from penstock.client.sendresult import SendResult
from penstock.message.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_RETRY_TOPIC,
    encode_properties,
)
from penstock.message.topic import RETRY_TOPIC_PREFIX
from penstock.remoting import RequestCode

if TYPE_CHECKING:
    from penstock.client.consumer import Consumer
    from penstock.client.delivery import Delivery

log = logging.getLogger("penstock.client")

INNER_GROUP = "CLIENT_INNER_PRODUCER"
_FIRST_LEVEL = 3
_DEFAULT_TRIES = 16


class SendBack:
    """Hands messages back to their broker, which tries them again; else publishes them for a retry itself."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._sender: Sender | None = None

    async def send(self, message: Delivery, delay_level: int) -> None:
        """Raises what a call raises when neither way worked."""
        consumer = self._consumer
        most = consumer.max_reconsume_times
        fields = {
            "offset": str(message.physical_offset),
            "group": consumer.group,
            "delayLevel": str(delay_level),
            "originMsgId": message.message_id,
            "originTopic": message.topic,
            "unitMode": "false",
            "maxReconsumeTimes": str(_DEFAULT_TRIES if most is None else most),
            "bname": message.broker_name,
        }
        address = consumer.instance.broker_address(message.broker_name)
        try:
            await consumer.instance.call(address, RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        except BrokerError as error:
            log.info("%s was not taken back: %s; publishing it for a retry", message, error)
            await self._publish(message)

    async def _publish(self, message: Delivery) -> None:
        consumer = self._consumer
        if self._sender is None:
            self._sender = Sender(consumer.instance, INNER_GROUP)
        most = _DEFAULT_TRIES if consumer.max_reconsume_times is None else consumer.max_reconsume_times
        times = message.reconsume_times + 1
        properties = encode_properties(
            {
                **message.properties,
                PROPERTY_RETRY_TOPIC: message.topic,
                PROPERTY_ORIGIN_MESSAGE_ID: message.message_id,
                PROPERTY_RECONSUME_TIME: str(times),
                PROPERTY_MAX_RECONSUME_TIMES: str(most),
                PROPERTY_DELAY_TIME_LEVEL: str(_FIRST_LEVEL + message.reconsume_times),
            }
        )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[SendResult] = loop.create_future()
        deadline = loop.time() + consumer.settings.send_timeout
        topic = f"{RETRY_TOPIC_PREFIX}{consumer.group}"
        send = SingleSend(self._sender, future, topic, None, None, len(message.body), deadline)
        send.body = message.body
        send.properties = properties
        send.sys_flag = 0
        send.flag = message.flag
        send.key = message.message_id
        send.reconsume_times = times
        send.begin()
        await future
