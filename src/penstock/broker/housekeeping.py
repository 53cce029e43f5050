"""What a broker does now and then: one timer for all of it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger("penstock.broker")

TICK_SECONDS = 0.05
HELD_EVERY = 4
SKIPPED_EVERY = 100
CLIENTS_EVERY = 200


class Housekeeping:
    """Runs on the loop; nothing here waits."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._ticks = 0
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._ticks += 1
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)
        try:
            self.run(self._ticks)
        except Exception:  # one that fails must not end all that come after it
            log.exception("housekeeping failed")

    def run(self, ticks: int) -> None:
        """Do what is due at this tick."""
        broker = self._broker
        broker.dispatching.tick()
        broker.acks.expire()
        broker.popping.tick(ticks)
        if ticks % HELD_EVERY == 0:
            broker.holding.sweep(skipped=ticks % SKIPPED_EVERY == 0)
        if ticks % CLIENTS_EVERY == 0:
            self.drop_silent_clients()
            broker.locks.sweep()
            broker.filters.refresh(broker.consumers)

    def drop_silent_clients(self) -> None:
        """Close the connections of clients that sent no heartbeat for too long."""
        broker = self._broker
        seconds = broker.config.channel_expired_timeout_ms / 1000
        for connection in {*broker.consumers.expire(seconds), *broker.producers.expire(seconds)}:
            connection.close("no heartbeat in time")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
