"""Queues locked at their brokers, so that one member at a time reads them in order (protocol 7.5)."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable

from penstock.client.instance import ClientInstance
from penstock.client.queue import MessageQueue
from penstock.client.wirejson import decode_any, encode
from penstock.errors import PenstockError
from penstock.remoting import RequestCode

log = logging.getLogger("penstock.client")


class QueueLocks:
    """Locks of one member of a group. At the broker they expire 60 s after the last renewal."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock, or lock anew; which of them are ours now. A broker that does not answer gave none."""
        locked: set[MessageQueue] = set()

        async def ask(broker_name: str, wanted: list[MessageQueue]) -> None:
            try:
                answer = await self._instance.call(
                    self._instance.broker_address(broker_name),
                    RequestCode.LOCK_BATCH_MQ,
                    body=self._body(wanted),
                )
            except PenstockError as error:
                log.warning("locking %d queues of %s: %s", len(wanted), broker_name, error)
                return
            given = decode_any(answer.body).get("lockOKMQSet") or [] if answer.body else []
            locked.update(MessageQueue.from_json(queue) for queue in given)

        await asyncio.gather(*(ask(name, wanted) for name, wanted in _by_broker(queues).items()))
        return locked

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back. A failure is logged: the lock expires."""
        for broker_name, given in _by_broker(queues).items():
            try:
                await self._instance.call(
                    self._instance.broker_address(broker_name),
                    RequestCode.UNLOCK_BATCH_MQ,
                    body=self._body(given),
                )
            except PenstockError as error:
                log.warning("unlocking %d queues of %s: %s", len(given), broker_name, error)

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return encode(
            {
                "clientId": self._instance.client_id,
                "consumerGroup": self._group,
                "mqSet": [queue.as_json() for queue in queues],
                "onlyThisBroker": False,
            }
        )


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: defaultdict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        found[queue.broker_name].append(queue)
    return found
