"""Rates of what goes through a broker: over the last minute, hour and day."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from penstock.broker.stats import BrokerStats

SAMPLE_SECONDS = 10.0
# RocketMQ's windows: six samples of ten seconds, six of ten minutes, twenty-four of an hour.
MINUTE, HOUR, DAY = (1, 6), (60, 6), (360, 24)

Key = tuple[str, str]
"""Name of a statistic and what it is about: ``("TOPIC_PUT_NUMS", "T")``."""


class _Window:
    """Totals at the ends of equally long spans; the oldest is where the window begins."""

    def __init__(self, every: int, count: int) -> None:
        self.every = every
        self.samples: deque[tuple[float, dict[Key, int]]] = deque(maxlen=count + 1)

    def over(self, key: Key, now: float, total: int) -> tuple[int, float]:
        """What was added since the window began, and how many seconds that is."""
        if not self.samples:
            return 0, 0.0
        begun, totals = self.samples[0]
        return total - totals.get(key, 0), now - begun


class Rates:
    """Samples the counters of a broker every ten seconds, on the loop."""

    def __init__(
        self,
        stats: BrokerStats,
        now: Callable[[], float] | None = None,
        more: Callable[[], Mapping[str, int]] = dict,
        today: Callable[[], object] = date.today,
    ) -> None:
        """``now`` is the loop's clock, or a test's: then ``sample`` is called by hand. ``more`` gives totals
        of the broker that are counted elsewhere.
        """
        self._stats = stats
        self._more = more
        self._today = today
        self._day = today()
        self.mornings: tuple[Mapping[Key, int], Mapping[Key, int]] = ({}, {})
        """The totals when this day began, and the one before; nothing where that was before the start."""
        self._now = now or asyncio.get_running_loop().time
        self._by_hand = now is not None
        self._windows = (_Window(*MINUTE), _Window(*HOUR), _Window(*DAY))
        self._ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self.sample()

    def sample(self) -> None:
        """Take the totals of this moment, and come back."""
        totals = self.totals()
        now = self._now()
        if self._today() != self._day:
            self._day = self._today()
            self.mornings = (totals, self.mornings[0])
        for window in self._windows:
            if self._ticks % window.every == 0:
                window.samples.append((now, totals))
        self._ticks += 1
        if not self._by_hand:
            self._timer = asyncio.get_running_loop().call_later(SAMPLE_SECONDS, self.sample)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def totals(self) -> dict[Key, int]:
        """Every counter by RocketMQ's name, since the start."""
        found: dict[Key, int] = {}
        for topic, counter in self._stats.put.items():
            found["TOPIC_PUT_NUMS", topic] = counter.messages
            found["TOPIC_PUT_SIZE", topic] = counter.bytes
        for (topic, group), counter in self._stats.get.items():
            found["GROUP_GET_NUMS", f"{topic}@{group}"] = counter.messages
            found["GROUP_GET_SIZE", f"{topic}@{group}"] = counter.bytes
        for (topic, group), counter in self._stats.sent_back.items():
            found["SNDBCK_PUT_NUMS", f"{topic}@{group}"] = counter.messages
        found["BROKER_PUT_NUMS", ""] = sum(each.messages for each in self._stats.put.values())
        found["BROKER_GET_NUMS", ""] = sum(each.messages for each in self._stats.get.values())
        found["BROKER_GET_FOUND", ""] = self._stats.found
        for name, total in self._more().items():
            found[name, ""] = total
        return found

    def figures(self, name: str, about: str) -> dict[str, Any] | None:
        """RocketMQ's BrokerStatsData of one statistic, or None when there is no such."""
        key = (name, "" if name.startswith("BROKER_") else about)
        total = self.totals().get(key)
        if total is None:
            return None
        labels = ("statsMinute", "statsHour", "statsDay")
        return {label: self._figure(w, key, total) for label, w in zip(labels, self._windows, strict=True)}

    def _figure(self, window: _Window, key: Key, total: int) -> dict[str, Any]:
        added, seconds = window.over(key, self._now(), total)
        return {"avgpt": 0.0, "sum": added, "tps": added / seconds if seconds > 0 else 0.0}

    def put_tps(self, topic: str) -> float:
        """Messages a second that came into a topic during the last minute."""
        counter = self._stats.put.get(topic)
        return 0.0 if counter is None else self._tps(("TOPIC_PUT_NUMS", topic), counter.messages)

    def get_tps(self, topic: str, group: str) -> float:
        """Messages a second that a group took from a topic during the last minute."""
        counter = self._stats.get.get((topic, group))
        return 0.0 if counter is None else self._tps(("GROUP_GET_NUMS", f"{topic}@{group}"), counter.messages)

    def broker_tps(self, name: str) -> tuple[float, float, float]:
        """How many a second of something the whole broker counts: a minute, an hour, a day."""
        key, now = (name, ""), self._now()
        total = self.totals().get(key, 0)
        found = [window.over(key, now, total) for window in self._windows]
        minute, hour, day = (added / seconds if seconds > 0 else 0.0 for added, seconds in found)
        return minute, hour, day

    def _tps(self, key: Key, total: int) -> float:
        added, seconds = self._windows[0].over(key, self._now(), total)
        return added / seconds if seconds > 0 else 0.0
