"""``penstock send`` to a running broker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

from penstock.client import Producer, SendResult
from penstock.message import Message


async def send_all(
    namesrv: str | None,
    bodies: Iterator[list[bytes]],
    template: dict[str, Any],
    *,
    queue: int | None,
    delay: float | None,
    order_key: str | None,
    show: Any,
) -> int:
    """Send the bodies as they come, those that came together in flight together. How many were sent."""
    sent = 0
    async with Producer("PENSTOCK_SEND", namesrv=namesrv) as producer:
        place = None
        if queue is not None:
            queues = await producer.queues(template["topic"])
            place = next((each for each in queues if each.queue_id == queue), None)
            if place is None:
                from penstock.errors import UsageError

                raise UsageError(f"{template['topic']} has no queue {queue}", hint=f"it has {len(queues)}")
        while (batch := await asyncio.to_thread(next, bodies, None)) is not None:
            results: list[SendResult] = await asyncio.gather(
                *(
                    producer.send(
                        Message(body=body, **template), queue=place, delay=delay, order_key=order_key
                    )
                    for body in batch
                )
            )
            sent += len(results)
            for result in results:
                show(result)
            sys.stdout.flush()
    return sent


def result_object(result: SendResult) -> dict[str, Any]:
    """How a send went, for programs."""
    return {
        "status": result.status,
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "queue_id": result.queue.queue_id,
        "queue_offset": result.queue_offset,
        "message_id": result.message_id,
        "offset_message_id": result.offset_message_id,
    }
