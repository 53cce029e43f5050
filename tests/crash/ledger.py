"""What a store was given and what it promised; and whether a recovered store keeps that promise."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

QueueKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Sent:
    """One message that was handed to a store. Bodies are different from each other."""

    topic: str
    queue_id: int
    body: bytes
    key: str

    @property
    def queue(self) -> QueueKey:
        return self.topic, self.queue_id


@dataclass
class Ledger:
    """Messages in the order they were handed over; ``promised`` has those that must survive."""

    sent: dict[QueueKey, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    promised: dict[QueueKey, dict[int, Sent]] = field(default_factory=lambda: defaultdict(dict))
    places: dict[bytes, int] = field(default_factory=dict)
    """Physical offset of each promised body."""
    removed_before: int = 0
    """The head of the log before it was or is being deleted on purpose."""

    def tried(self, message: Sent) -> Sent:
        """Before a put: from now on the message may be there."""
        self.sent[message.queue].append(message)
        return message

    def acked(self, message: Sent, result: Any) -> None:
        """After a put: from now on it must be."""
        self.promised[message.queue][result.queue_offset] = message
        self.places[message.body] = result.physical_offset

    def copy(self) -> Ledger:
        other = Ledger(removed_before=self.removed_before)
        for queue, messages in self.sent.items():
            other.sent[queue] = list(messages)
        for queue, promised in self.promised.items():
            other.promised[queue] = dict(promised)
        other.places = dict(self.places)
        return other

    @property
    def promised_count(self) -> int:
        return sum(len(messages) for messages in self.promised.values())

    def check(
        self, store: Any, *, keys: bool = True, continuous: bool = True
    ) -> dict[QueueKey, list[tuple[int, int, bytes]]]:
        """Assert that everything promised is there, in order, once, findable; what the store holds.

        ``continuous``: what was put between two acked messages was on disk with the second, and must be
        there too.
        """
        held = contents(store)
        for queue, found in held.items():
            order = {message.body: number for number, message in enumerate(self.sent[queue])}
            numbers = [order[body] for _, _, body in found]
            assert numbers == sorted(set(numbers)), f"{queue}: out of order or twice: {numbers}"
        for queue, promised in self.promised.items():
            there = {offset: (place, body) for offset, place, body in held.get(queue, [])}
            for offset, message in promised.items():
                place = self.places[message.body]
                if place < self.removed_before:
                    continue
                assert offset in there, f"{queue}: acked offset {offset} is gone; there: {sorted(there)}"
                assert there[offset] == (place, message.body), f"{queue}: another message at {offset}"
            kept = sorted(
                offset for offset in promised if self.places[promised[offset].body] >= self.removed_before
            )
            if kept and continuous:
                gaps = set(range(kept[0], kept[-1] + 1)) - set(there)
                assert not gaps, f"{queue}: offsets {sorted(gaps)} between acked ones are not there"
        if keys:
            self._check_keys(store, held)
        return held

    def _check_keys(self, store: Any, held: dict[QueueKey, list[tuple[int, int, bytes]]]) -> None:
        for queue, found in held.items():
            by_body = {message.body: message for message in self.sent[queue]}
            for _, place, body in found:
                key = by_body[body].key
                offsets = store.query_offsets(queue[0], key, 64, 0, 1 << 60)
                assert offsets.count(place) == 1, f"{queue} {key} at {place}: the index says {offsets}"
                answers = [m for m in store.query(queue[0], key, end=1 << 60) if m.physical_offset == place]
                assert [m.body for m in answers] == [body]
                assert store.lookup(place).body == body


def contents(store: Any) -> dict[QueueKey, list[tuple[int, int, bytes]]]:
    """Every readable message: queue offset, physical offset, body."""
    held: dict[QueueKey, list[tuple[int, int, bytes]]] = {}
    for topic, queue_id in store.queues():
        at, messages = store.min_offset(topic, queue_id), []
        while at < store.max_offset(topic, queue_id):
            result = store.get(topic, queue_id, at)
            for m in result:
                messages.append((m.queue_offset, m.physical_offset, m.body))
            assert result.next_begin_offset > at, (
                f"{topic}-{queue_id}: reading stands still at {at}: {result.status}"
            )
            at = result.next_begin_offset
        if messages:
            held[topic, queue_id] = messages
    return held
