"""A broker whose clock a test moves, and what it stores and delivers meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from broker.talking import Client, config, properties_text, records
from penstock.broker import Broker
from penstock.clock import ManualClock
from penstock.format.record import RecordFields

NOW = 1_794_715_946_345
"""Somewhere inside a tick."""


def timed(key: str, **properties: object) -> str:
    """The property string of a message with a unique key."""
    return properties_text(UNIQ_KEY=key, **{name: str(value) for name, value in properties.items()})


class Stage:
    """A broker and a client at one place in time."""

    def __init__(self, broker: Broker, client: Client, clock: ManualClock) -> None:
        self.broker = broker
        self.client = client
        self.clock = clock

    def step(self) -> None:
        """Have the timer do now what is due, and everything readable."""
        self.broker.dispatching.advance()
        self.broker.store.schedules.timer.run_once()
        self.broker.dispatching.advance()

    def pass_time(self, ms: int, step: int = 1000) -> None:
        """Let time pass, in steps."""
        self.step()
        while ms > 0:
            self.clock.advance(min(step, ms))
            ms -= step
            self.step()

    async def delivered(self, topic: str = "T", queue: int = 0) -> list[RecordFields]:
        """What consumers of a queue can read."""
        found: list[RecordFields] = []
        while True:
            answer = await self.client.pull(topic, len(found), queue=queue)
            if answer.code != 0:
                return found
            found += records(answer)

    async def bodies(self, topic: str = "T", queue: int = 0) -> list[bytes]:
        return [record.body for record in await self.delivered(topic, queue)]


def play(
    path: Path,
    scene: Callable[[Stage], Awaitable[None]],
    *,
    clock: ManualClock | None = None,
    killed: bool = False,
    **settings: Any,
) -> None:
    """A broker, a client, a clock and what happens. ``killed``: nothing is flushed or tidied at the end."""

    async def run() -> None:
        time = clock or ManualClock(NOW)
        broker = Broker(config(path, recall_message_enable=True, **settings), clock=time)
        await broker.start()
        client = Client(broker.address)
        try:
            async with asyncio.timeout(60):
                await scene(Stage(broker, client, time))
        finally:
            await client.close()
            if killed:
                broker.store.abandon()
            try:
                await broker.stop()
            except Exception:
                if not killed:
                    raise

    asyncio.run(run())
