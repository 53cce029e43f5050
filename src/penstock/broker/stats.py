"""Counts of what went through the broker, by topic and by group."""

from __future__ import annotations


class Counter:
    """Messages and bytes."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0


class BrokerStats:
    """Totals since the start; rates are made by whoever looks at them twice."""

    def __init__(self) -> None:
        self.put: dict[str, Counter] = {}
        """By topic: messages stored for producers."""
        self.get: dict[tuple[str, str], Counter] = {}
        """By topic and group: messages handed to consumers."""
        self.sent_back: dict[tuple[str, str], Counter] = {}
        """By topic and group: messages that a consumer could not handle."""
        self.put_failures = 0
        self.found = 0
        """Reads that found messages."""

    def count_put(self, topic: str, messages: int, size: int) -> None:
        counter = self.put.get(topic)
        if counter is None:
            counter = self.put[topic] = Counter()
        counter.messages += messages
        counter.bytes += size

    def count_get(self, topic: str, group: str, messages: int, size: int) -> None:
        counter = self.get.get((topic, group))
        if counter is None:
            counter = self.get[topic, group] = Counter()
        self.found += 1
        counter.messages += messages
        counter.bytes += size

    def count_sent_back(self, topic: str, group: str) -> None:
        counter = self.sent_back.get((topic, group))
        if counter is None:
            counter = self.sent_back[topic, group] = Counter()
        counter.messages += 1

    def forget_topic(self, topic: str) -> None:
        self.put.pop(topic, None)
        for table in (self.get, self.sent_back):
            for key in [key for key in table if key[0] == topic]:
                del table[key]
