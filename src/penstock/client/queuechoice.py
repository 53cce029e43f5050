"""Which queue the next message goes to."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection

from penstock.client.errors import RouteNotFound
from penstock.client.queue import MessageQueue
from penstock.client.route import TopicRoute
from penstock.format.javahash import java_hash


class QueueChoice:
    """Leaves out brokers that failed a moment ago, while there are others."""

    def __init__(self, avoid_seconds: float) -> None:
        self._avoid_seconds = avoid_seconds
        self._turns = itertools.count()
        self._avoided: dict[str, float] = {}

    @property
    def careful(self) -> bool:
        """Whether there are brokers to be left out, or were a moment ago."""
        return bool(self._avoided)

    def failed(self, broker_name: str) -> None:
        """A send to this broker failed: prefer others for a while."""
        self._avoided[broker_name] = asyncio.get_running_loop().time() + self._avoid_seconds

    def next(self, route: TopicRoute, tried: Collection[str] = ()) -> MessageQueue:
        """A queue at a broker that neither failed nor is in ``tried``; if there is no such, of any."""
        now = asyncio.get_running_loop().time()
        self._avoided = {name: until for name, until in self._avoided.items() if until > now}
        queues = writable(route)
        start = next(self._turns)
        turn = [queues[(start + number) % len(queues)] for number in range(len(queues))]
        for excluded in ({*tried, *self._avoided}, set(tried), set(self._avoided)):
            for queue in turn:
                if queue.broker_name not in excluded:
                    return queue
        return turn[0]


def queue_of_key(route: TopicRoute, key: str) -> MessageQueue:
    """The queue of an order key: the one that RocketMQ's ``SelectMessageQueueByHash`` takes for it."""
    queues = writable(route)
    return queues[abs(java_hash(key)) % len(queues)]


def writable(route: TopicRoute) -> tuple[MessageQueue, ...]:
    """The queues that take messages; RouteNotFound when there are none."""
    if not route.publish_queues:
        raise RouteNotFound(
            f"topic {route.topic!r} has no queue that takes messages", hint="look at its permission"
        )
    return route.publish_queues
