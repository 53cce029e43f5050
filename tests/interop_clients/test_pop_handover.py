"""Popped messages change brokers with the store directory: what was not acked comes back on the other one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from stage import Cluster

from broker.talking import Client
from broker_pop.popping import Given, ack, change, make_topic, pop
from penstock.bench.penstockbroker import PenstockBroker
from penstock.bench.rocketmq import RocketMQ
from penstock.errors import RemotingError

SETTINGS: dict[str, object] = {"mappedFileSizeCommitLog": 64 << 20}
INVISIBLE_MS = 25_000
MAKE: dict[str, Callable[[Path], PenstockBroker | RocketMQ]] = {
    "penstock": lambda folder: PenstockBroker(folder, settings=SETTINGS),
    "rocketmq": lambda folder: RocketMQ(folder, settings=SETTINGS),
}


def _now() -> int:
    return time.time_ns() // 1_000_000


async def _ready(client: Client) -> None:
    """A port that listens is not yet a broker that has its topics."""
    async with asyncio.timeout(60):
        while True:
            try:
                await make_topic(client, "T", 1)
                return
            except (RemotingError, AssertionError):
                await asyncio.sleep(0.1)


async def _give(broker: Cluster) -> None:
    client = Client(broker.address)
    await _ready(client)
    for number in range(6):
        assert (await client.send("T", b"m%d" % number, properties=f"UNIQ_KEY\x01U{number}\x02")).code == 0
    given: list[Given] = []
    async with asyncio.timeout(30):
        while len(given) < 6:
            given += await pop(client, invisibleTime=INVISIBLE_MS, pollTime=2000, now=_now)
    given.sort(key=lambda each: each.body)
    assert await ack(client, given[0], given[3]) == [0, 0]
    assert (await change(client, given[4], INVISIBLE_MS + 5000)).code == 0
    await client.close()


async def _take(broker: Cluster) -> list[tuple[bytes, int]]:
    client = Client(broker.address)
    await _ready(client)
    seen: list[tuple[bytes, int]] = []
    end = time.monotonic() + 90
    while len(seen) < 4 and time.monotonic() < end:
        back = await pop(client, invisibleTime=300_000, pollTime=5000, now=_now)
        assert set(await ack(client, *back)) <= {0}
        seen += [(each.body, each.reconsume_times) for each in back]
    # Nothing else is on its way: a little longer than the longest of the times.
    quiet = time.monotonic() + 5
    while time.monotonic() < quiet:
        more = await pop(client, invisibleTime=300_000, pollTime=1000, now=_now)
        seen += [(each.body, each.reconsume_times) for each in more]
    await client.close()
    return sorted(seen)


@pytest.mark.parametrize(("first", "second"), [("penstock", "rocketmq"), ("rocketmq", "penstock")])
def test_what_one_broker_gave_out_comes_back_on_the_other(first: str, second: str, tmp_path: Path) -> None:
    with MAKE[first](tmp_path) as broker:
        asyncio.run(_give(broker))
    with MAKE[second](tmp_path) as broker:
        assert asyncio.run(_take(broker)) == [(b"m1", 1), (b"m2", 1), (b"m4", 1), (b"m5", 1)]
