"""Pops and notifications that wait for messages: woken by an arrival, an ack or the end of their time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.broker.popheader import PopHeader
from penstock.broker.subscription import Subscription
from penstock.remoting import Command, Connection
from penstock.store.retry import pop_retry_topic

QueueKey = tuple[str, int]
GroupKey = tuple[str, str]
"""Topic and group."""


class HeldPop:
    """A pop, or a question whether there is something to pop, from its first try to its answer."""

    __slots__ = ("connection", "done", "header", "notification", "request", "subscription", "timer")

    def __init__(
        self,
        connection: Connection,
        request: Command,
        header: PopHeader,
        subscription: Subscription,
        *,
        notification: bool = False,
    ) -> None:
        self.connection = connection
        self.request = request
        self.header = header
        self.subscription = subscription
        self.notification = notification
        self.timer: asyncio.TimerHandle | None = None
        self.done = False

    @property
    def key(self) -> GroupKey:
        return self.header.topic, self.header.group

    @property
    def takes_anything(self) -> bool:
        """Whether this one's finding nothing means that nobody of its group finds anything."""
        wanted = self.subscription
        all_of_it = wanted.is_tag and wanted.codes is None
        return all_of_it and self.header.queue_id < 0 and not self.header.order


class PopHolding:
    """All of them. ``again`` tries one once more, and answers and returns True if there was something;
    ``expire`` answers one whose time is over.
    """

    def __init__(
        self,
        again: Callable[[HeldPop], bool],
        expire: Callable[[HeldPop], object],
        on_count: Callable[[int], object],
    ) -> None:
        self._again = again
        self._expire = expire
        self._on_count = on_count
        self._loop = asyncio.get_running_loop()
        # Dicts as ordered sets: whoever waits longest is tried first.
        self._waiting: dict[GroupKey, dict[HeldPop, None]] = {}
        self._groups: dict[str, dict[GroupKey, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """How many pops of a group wait for this queue; -1 are those that wait for any."""
        waiting = self._waiting.get((topic, group), {})
        return sum(pop.header.queue_id == queue_id for pop in waiting if not pop.notification)

    def hold(self, pop: HeldPop, milliseconds: int) -> None:
        """Keep one until there is something for it, or for so long."""
        key = pop.key
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = {}
            for topic in self._topics(key):
                self._groups.setdefault(topic, {})[key] = None
        waiting[pop] = None
        pop.done = False
        pop.timer = self._loop.call_later(milliseconds / 1000, self._expired, pop)
        pop.connection.context.setdefault("held pops", set()).add(pop)
        self._count += 1
        self._on_count(1)

    @staticmethod
    def _topics(key: GroupKey) -> tuple[str, ...]:
        """What a group of a topic waits for: the topic's messages, and its own that come back."""
        topic, group = key
        return topic, pop_retry_topic(group, topic, separator="_"), pop_retry_topic(group, topic)

    def arrived(self, keys: set[QueueKey] | None) -> None:
        """Messages may have come into these queues; None: into any."""
        if not self._waiting:
            return
        if keys is None:
            woken = dict.fromkeys(self._waiting)
        else:
            woken = {}
            for topic, _ in keys:
                woken.update(self._groups.get(topic, {}))
        for key in woken:
            self.wake(key)

    def wake(self, key: GroupKey) -> None:
        """Try the ones of a group again, as long as there is something for them."""
        for pop in list(self._waiting.get(key, ())):
            if pop.done:
                continue
            if self._again(pop):
                self._remove(pop)
            elif pop.takes_anything:
                return

    def wake_in_order(self) -> None:
        """Try those that wait for a queue which somebody holds: its time may be over."""
        for key, waiting in list(self._waiting.items()):
            if any(pop.header.order for pop in waiting):
                self.wake(key)

    def _expired(self, pop: HeldPop) -> None:
        if not pop.done:
            self._remove(pop)
            self._expire(pop)

    def release_all(self) -> None:
        """Answer everything: the broker stops."""
        for waiting in list(self._waiting.values()):
            for pop in list(waiting):
                self._expired(pop)

    def lost(self, connection: Connection) -> None:
        """A connection is gone, and with it whoever waited there."""
        for pop in connection.context.pop("held pops", ()):
            if not pop.done:
                self._remove(pop)

    def _remove(self, pop: HeldPop) -> None:
        pop.done = True
        if pop.timer is not None:
            pop.timer.cancel()
            pop.timer = None
        key = pop.key
        waiting = self._waiting[key]
        del waiting[pop]
        if not waiting:
            del self._waiting[key]
            for topic in self._topics(key):
                groups = self._groups[topic]
                del groups[key]
                if not groups:
                    del self._groups[topic]
        held = pop.connection.context.get("held pops")
        if held is not None:
            held.discard(pop)
        self._count -= 1
        self._on_count(-1)
