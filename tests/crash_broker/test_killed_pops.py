"""A broker killed at any moment while consumers pop: nothing is lost, nothing acked comes again."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from broker.talking import Client
from broker_pop.popping import ack, make_topic, pop
from penstock.bench.penstockbroker import PenstockBroker
from penstock.errors import RemotingError

pytestmark = pytest.mark.crash

KILLS = max(2, int(os.environ.get("PENSTOCK_KILLS", "300")) // 60)
MESSAGES = 300
INVISIBLE_MS = 1500


class Ledger:
    """What the clients were told."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.again: list[bytes] = []

    @property
    def done(self) -> bool:
        # What nobody knows about may come again and be acked then.
        return self.acked >= self.sent


async def _send(broker: PenstockBroker, ledger: Ledger) -> None:
    client = Client(broker.address)
    await make_topic(client, "T", 2)
    for number in range(MESSAGES):
        body = b"m%d" % number
        assert (await client.send("T", body, queue=number % 2)).code == 0
        ledger.sent.add(body)
    await client.close()


async def _consume(broker: PenstockBroker, ledger: Ledger) -> None:
    """Pop and ack most of it; what is left comes again. Ends when all is acked, or with the broker."""
    client = Client(broker.address)
    # Acks whose answer the kill cut off may count or not.
    unsure: set[bytes] = set()
    try:
        while not ledger.done:
            given = await pop(
                client, invisibleTime=INVISIBLE_MS, pollTime=500, maxMsgNums=random.randint(1, 32)
            )
            ledger.again += [each.body for each in given if each.body in ledger.acked]
            chosen = [each for each in given if random.random() < 0.7]
            unsure = {each.body for each in chosen}
            answers = await ack(client, *chosen)
            ledger.acked |= {each.body for each, code in zip(chosen, answers, strict=True) if code == 0}
    except (RemotingError, OSError, AssertionError):
        ledger.sent -= unsure - ledger.acked
        ledger.acked &= ledger.sent
    finally:
        await client.close()


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_pops_survive_kill_9(flush: str, tmp_path: Path) -> None:
    random.seed(f"pops {flush}")
    settings = {"mappedFileSizeCommitLog": 16 << 20, "timerPrecisionMs": 100}
    broker = PenstockBroker(tmp_path, flush=flush, settings=settings)
    ledger = Ledger()

    async def run() -> None:
        for kill in range(KILLS + 1):
            broker.start()
            if kill == 0:
                await _send(broker, ledger)
            consumers = [asyncio.create_task(_consume(broker, ledger)) for _ in range(3)]
            if kill < KILLS:
                await asyncio.wait(consumers, timeout=random.uniform(0.05, 3.0))
                broker.stop(kill=True)
            async with asyncio.timeout(120):
                await asyncio.gather(*consumers)

    try:
        asyncio.run(run())
    finally:
        broker.stop(kill=True)
    assert ledger.done, f"{len(ledger.sent - ledger.acked)} messages were given to nobody any more"
    assert ledger.again == [], f"acked and given out again: {ledger.again[:5]}"
