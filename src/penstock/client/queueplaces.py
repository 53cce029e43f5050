"""Offsets of a queue that its broker knows: the first, the next, the one of a time."""

from __future__ import annotations

from penstock.client.instance import ClientInstance
from penstock.client.queue import MessageQueue
from penstock.remoting import RequestCode


class QueuePlaces:
    """Asks brokers about their queues."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first message that is still kept."""
        return await self._ask(queue, RequestCode.GET_MIN_OFFSET)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Where the next message will be."""
        return await self._ask(queue, RequestCode.GET_MAX_OFFSET)

    async def offset_by_time(self, queue: MessageQueue, milliseconds: int) -> int:
        """The first message stored at that time or later; the end when there is none."""
        return await self._ask(
            queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": str(milliseconds)}
        )

    async def earliest_store_time(self, queue: MessageQueue) -> int:
        """When the first message was stored, in milliseconds; -1 when there is none."""
        return await self._ask(queue, RequestCode.GET_EARLIEST_MSG_STORETIME, answer="timestamp")

    async def _ask(
        self,
        queue: MessageQueue,
        code: int,
        extra: dict[str, str] | None = None,
        *,
        answer: str = "offset",
    ) -> int:
        fields = {
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "bname": queue.broker_name,
            **(extra or {}),
        }
        got = await self._instance.call(self._instance.broker_address(queue.broker_name), code, fields)
        return int(got.fields[answer])
