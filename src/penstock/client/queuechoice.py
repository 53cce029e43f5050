"""Which queue the next message goes to."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Collection

from penstock.client.errors import RouteNotFound
from penstock.client.queue import MessageQueue
from penstock.client.route import TopicRoute
from penstock.format.javahash import java_hash


class QueueChoice:
    """Takes the writable queues of each topic in turn, and leaves out brokers that failed a moment ago."""

    def __init__(self, avoid_seconds: float) -> None:
        self._avoid_seconds = avoid_seconds
        self._turns: dict[str, itertools.count[int]] = {}
        self._avoided: dict[str, float] = {}

    def failed(self, broker_name: str) -> None:
        """A send to this broker failed: prefer others for a while."""
        self._avoided[broker_name] = asyncio.get_running_loop().time() + self._avoid_seconds

    def next(self, route: TopicRoute, tried: Collection[str] = ()) -> MessageQueue:
        """The next queue. Brokers in ``tried`` and failed ones only if there is no other."""
        queues = writable(route)
        turns = self._turns.get(route.topic)
        if turns is None:
            # Not all producers start with the first queue.
            turns = self._turns[route.topic] = itertools.count(random.randrange(len(queues)))
        if not tried and not self._avoided:
            return queues[next(turns) % len(queues)]
        return self._careful(queues, turns, tried)

    def _careful(
        self, queues: tuple[MessageQueue, ...], turns: itertools.count[int], tried: Collection[str]
    ) -> MessageQueue:
        now = asyncio.get_running_loop().time()
        self._avoided = {name: until for name, until in self._avoided.items() if until > now}
        start = next(turns)
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
