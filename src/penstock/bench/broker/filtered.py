"""Pulls with an SQL filter beside pulls without one, from the same messages, in turns."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.bench.broker.extremes import our_broker
from penstock.bench.broker.turns import Scale, cpu_seconds
from penstock.bench.child import python_environment
from penstock.bench.penstockbroker import PenstockBroker
from penstock.bench.row import Row
from penstock.client import Producer
from penstock.errors import RemotingError
from penstock.message import Message

TOPIC, QUEUES, BATCH, SIZE = "filtered", 4, 64, 1024
ALL = "region = 'eu' AND price BETWEEN 10 AND 2000 AND name STARTSWITH 'order-'"
HALF = "region = 'eu' AND price BETWEEN 10 AND 509 AND name STARTSWITH 'order-'"


def filter_row(folder: Path, scale: Scale, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """Three conditions that are true of every message: the answers are the same, the work is not."""
    if not wanted("sql"):
        return
    # Little enough to be in memory as what was just written: older messages are looked after one by one.
    count = 2048 if scale.seconds < 1 else 32_768
    turns: dict[str, list[dict[str, float]]] = {"": [], ALL: [], HALF: []}
    with our_broker(folder) as broker:
        asyncio.run(_fill(broker, count))
        for _ in range(scale.rounds):
            for sql, done in turns.items():
                done.append(_pull(broker, count, scale, sql))

    def middle(sql: str, figure: str) -> float:
        return statistics.median(turn[figure] for turn in turns[sql])

    yield Row(
        "sql",
        "pulls with an SQL filter of three conditions, all of which fit, 1 KiB",
        "msg/s",
        middle(ALL, "taken"),
        middle("", "taken"),
        0.7,
        against="ourselves without",
        detail={
            "half_fit": middle(HALF, "taken"),
            "half_fit_scanned": middle(HALF, "scanned"),
            "cpu_s_per_million": middle(ALL, "cpu"),
            "cpu_s_per_million_without": middle("", "cpu"),
        },
    )


async def _fill(broker: PenstockBroker, count: int) -> None:
    body = b"x" * SIZE
    async with Producer("bench", namesrv=broker.namesrv) as producer:
        await _first(producer, body)
        for queue in (await producer.queues(TOPIC))[:QUEUES]:
            for first in range(0, count // QUEUES, BATCH):
                messages = [
                    Message(TOPIC, body, keys=f"k{number}", properties=_properties(number))
                    for number in range(first, first + BATCH)
                ]
                await producer.send_batch(messages, queue=queue)


async def _first(producer: Producer, body: bytes) -> None:
    """Send until the broker is there: its name server comes a moment after its port."""
    end = time.monotonic() + 30
    while True:
        try:
            await producer.send(Message(TOPIC, body))
            return
        except RemotingError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.05)


def _properties(number: int) -> dict[str, str]:
    return {
        "region": "eu",
        "price": str(10 + number % 1000),
        "name": f"order-{number}",
        "customer": f"c{number % 97}",
    }


def _pull(broker: PenstockBroker, count: int, scale: Scale, sql: str) -> dict[str, float]:
    where = [broker.address, TOPIC, str(QUEUES), str(count // QUEUES), str(scale.seconds)]
    command = [sys.executable, "-m", "penstock.bench.broker.puller", *where, *([sql] if sql else [])]
    before = cpu_seconds(broker.pid)
    done = subprocess.run(command, env=python_environment(), capture_output=True, check=True)
    rates: dict[str, float] = json.loads(done.stdout)
    rates["cpu"] = (cpu_seconds(broker.pid) - before) * 1e6 / (rates["scanned"] * scale.seconds)
    return rates
