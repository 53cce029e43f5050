"""Pulls that wait for messages: held until one arrives, or their time is over (protocol 5.4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.broker.pullheader import PullHeader
from penstock.broker.subscription import Subscription
from penstock.remoting import Command, Connection
from penstock.store.messagestore import MessageStore

QueueKey = tuple[str, int]
LOOK_AHEAD = 512
"""So many new messages are looked at for one that matches a filter; with more the pull is run again."""


class HeldPull:
    """A pull that found nothing and may wait."""

    __slots__ = ("connection", "deadline", "done", "header", "key", "request", "seen", "subscription")

    def __init__(
        self,
        connection: Connection,
        request: Command,
        header: PullHeader,
        subscription: Subscription,
        deadline: float,
    ) -> None:
        self.connection = connection
        self.request = request
        self.header = header
        self.key: QueueKey = (header.topic, header.queue_id)
        self.subscription = subscription
        self.deadline = deadline
        self.seen = header.offset
        """Everything before it was looked at and does not match."""
        self.done = False


class Holding:
    """All held pulls. Many may wait for one queue, also of one client: each is answered by itself.

    ``run_again`` answers a pull with whatever there is, without holding it once more.
    """

    def __init__(
        self,
        store: MessageStore,
        now: Callable[[], float],
        run_again: Callable[[HeldPull], object],
        on_count: Callable[[int], object],
    ) -> None:
        self._store = store
        self._now = now
        self._run_again = run_again
        self._on_count = on_count
        self._queues: dict[QueueKey, list[HeldPull]] = {}
        # Pulls that wait equally long end in the order they came: one queue a length of waiting.
        self._deadlines: dict[int, deque[HeldPull]] = {}
        self._count = 0
        self.begun = 0
        """How many pulls had to wait, since the start."""

    def __len__(self) -> int:
        return self._count

    def hold(self, pull: HeldPull, milliseconds: int) -> None:
        """Keep a pull until a message comes that it may want, or for so long."""
        self._queues.setdefault(pull.key, []).append(pull)
        self._deadlines.setdefault(milliseconds, deque()).append(pull)
        pull.connection.context.setdefault("held", set()).add(pull)
        self._count += 1
        self.begun += 1
        self._on_count(1)

    def arrived(self, keys: set[QueueKey] | None) -> None:
        """Messages may have come into these queues; None: into any."""
        for key in list(self._queues) if keys is None else list(keys):
            waiting = self._queues.get(key)
            if waiting is None:
                continue
            end = self._store.max_offset(*key)
            for pull in [each for each in waiting if end > each.seen and self._matches(each, end)]:
                self._release(pull)

    def wake(self, topic: str, queue_id: int) -> None:
        """Run the pulls of a queue again at once, whatever is there: its offset was reset, or it is gone."""
        for pull in list(self._queues.get((topic, queue_id), ())):
            self._release(pull)

    def _matches(self, pull: HeldPull, end: int) -> bool:
        """Whether one of the new messages may be wanted. Those looked at are not looked at again."""
        if not pull.subscription.is_tag:
            return self._filter_matches(pull, end)
        if pull.subscription.codes is None or end - pull.seen > LOOK_AHEAD:
            return True
        while pull.seen < end:
            unit = self._store.queue_unit(*pull.key, pull.seen)
            # A code outside of 32 bits is an address in an extension file: the read itself finds out.
            if unit is None or not -(2**31) <= unit[2] < 2**31 or pull.subscription.takes(unit[2]):
                return True
            pull.seen += 1
        return False

    def _filter_matches(self, pull: HeldPull, end: int) -> bool:
        if end - pull.seen > LOOK_AHEAD:
            return True
        program = pull.subscription.filter.program
        while pull.seen < end:
            found = self._store.get_filtered(*pull.key, pull.seen, 1, program)
            if found.status != "NO_MATCHED_MESSAGE" or found.next_begin_offset <= pull.seen:
                return True
            pull.seen = found.next_begin_offset
        return False

    def sweep(self, *, skipped: bool) -> None:
        """Answer the pulls whose time is over; with ``skipped`` also those that saw nothing they want."""
        now = self._now()
        for length, waiting in list(self._deadlines.items()):
            while waiting and (waiting[0].done or waiting[0].deadline <= now):
                pull = waiting.popleft()
                if not pull.done:
                    self._release(pull)
            if not waiting:
                del self._deadlines[length]
        if skipped:
            for held in list(self._queues.values()):
                for pull in [each for each in held if each.seen > each.header.offset]:
                    self._release(pull)

    def release_all(self) -> None:
        """Answer everything: the broker stops."""
        for waiting in list(self._queues.values()):
            for pull in list(waiting):
                self._release(pull)
        self._deadlines.clear()

    def lost(self, connection: Connection) -> None:
        """A connection is gone, and with it whoever waited there."""
        pulls = connection.context.pop("held", None)
        for pull in pulls or ():
            if not pull.done:
                self._remove(pull)

    def _release(self, pull: HeldPull) -> None:
        self._remove(pull)
        self._run_again(pull)

    def _remove(self, pull: HeldPull) -> None:
        pull.done = True
        waiting = self._queues[pull.key]
        waiting.remove(pull)
        if not waiting:
            del self._queues[pull.key]
        held = pull.connection.context.get("held")
        if held is not None:
            held.discard(pull)
        self._count -= 1
        self._on_count(-1)
