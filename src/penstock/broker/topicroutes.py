"""Which brokers have queues of a topic, as the name servers say: what is balanced is all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from penstock.config import BrokerConfig
from penstock.errors import RemotingError
from penstock.format.javajson import JsonError, parse
from penstock.namesrv.routes import PERM_READ, NameServer, QueueData
from penstock.remoting import Command, RemotingClient, RequestCode, ResponseCode

log = logging.getLogger("penstock.broker")

KEEP_SECONDS = 5.0
"""An answer serves for so long. Each consumer asks every 20 s for each topic, so this bounds what we ask."""
CALL_SECONDS = 3.0
MAX_QUEUES = 65_536
MAX_KEPT = 10_000
"""Numbers of queues and of answers beyond these are a mistake, or somebody's attempt."""

Shares = dict[str, int]
"""Queues to read from, by broker."""


class TopicRoutes:
    """Asks name servers, this process's own first, and remembers what they said. Lives on the loop."""

    def __init__(
        self,
        config: BrokerConfig,
        client: RemotingClient,
        now: Callable[[], float],
        embedded: NameServer | None = None,
    ) -> None:
        self._config = config
        self._client = client
        self._now = now
        self._embedded = embedded
        self._known: dict[str, tuple[float, Shares]] = {}
        self._asking: dict[str, asyncio.Task[Shares]] = {}

    async def queues(self, topic: str, own: int) -> list[tuple[str, int]]:
        """Every queue of the topic as broker and number, in the order that all brokers have them.

        This broker has ``own`` of them, whatever name servers say. When none of them answers, what was said
        last counts: a broker that can't be asked about is not a broker that is gone.
        """
        shares: Shares = {} if self._embedded is None else _shares(self._embedded.route(topic))
        if self._config.namesrv_addresses:
            shares = {**await self._elsewhere(topic), **shares}
        shares[self._config.broker_name] = own
        return [(name, number) for name in sorted(shares) for number in range(shares[name])]

    async def _elsewhere(self, topic: str) -> Shares:
        since, shares = self._known.get(topic, (float("-inf"), {}))
        if self._now() - since < KEEP_SECONDS:
            return shares
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.get_running_loop().create_task(self._ask(topic, shares))
            task.add_done_callback(lambda _: self._asking.pop(topic, None))
        # Shielded: others may wait for the same answer.
        return await asyncio.shield(task)

    async def _ask(self, topic: str, before: Shares) -> Shares:
        shares = before
        for server in self._config.namesrv_addresses:
            command = Command.request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
            )
            try:
                answer = await self._client.call(server, command, CALL_SECONDS)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    shares = {}
                elif answer.code == ResponseCode.SUCCESS:
                    shares = _shares(parse(str(answer.body, "utf-8")))
                else:
                    raise RemotingError(f"code {answer.code}: {answer.remark}")
                break
            except (RemotingError, JsonError, ValueError) as error:
                log.warning("name server %s does not say who has %s: %s", server, topic, error)
        if len(self._known) >= MAX_KEPT:
            self._known.clear()
        self._known[topic] = (self._now(), shares)
        return shares


def _shares(route: Any) -> Shares:
    """Queues that may be read, by broker. ValueError when it is no route."""
    if route is None:
        return {}
    parts = route.get("queueDatas") if isinstance(route, dict) else None
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise ValueError("an answer that is no route")
    shares: Shares = {}
    for part in parts:
        data = QueueData.from_json(part)
        if data.perm & PERM_READ:
            shares[str(part.get("brokerName"))] = min(data.read_queue_nums, MAX_QUEUES)
    if sum(shares.values()) > 16 * MAX_QUEUES:
        raise ValueError(f"a route of {sum(shares.values())} queues")
    return shares
