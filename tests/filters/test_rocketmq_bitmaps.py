"""Both brokers keep the same bitmaps and filters for the same messages, and read each other's stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import open_store
from penstock.bench.child import ChildFailed
from penstock.bench.peer import INTEROP_OPTIONS, Peer, missing_tools
from penstock.bench.penstockbroker import PenstockBroker
from penstock.bench.rocketmq import RocketMQ
from penstock.files import DiskStorage
from penstock.store.consumequeueext import ConsumeQueueExt

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(missing_tools()), reason=f"{' and '.join(missing_tools())} not found"),
]

SETTINGS: dict[str, object] = {
    "enablePropertyFilter": "true",
    "enableCalcFilterBitMap": "true",
    "enableConsumeQueueExt": "true",
    "mappedFileSizeConsumeQueueExt": 1 << 20,
    "mappedFileSizeCommitLog": 16 << 20,
}
OTHER = {"penstock": "rocketmq", "rocketmq": "penstock"}


def broker(side: str, folder: Path) -> PenstockBroker | RocketMQ:
    return (PenstockBroker if side == "penstock" else RocketMQ)(folder, settings=SETTINGS)


def message(number: int | str) -> dict[str, Any]:
    return {"topic": "T", "body": str(number), "properties": {"a": str(number)}}


def create_topic(driver: Peer, running: PenstockBroker | RocketMQ) -> None:
    """RocketMQ's tool waits five seconds, and a broker that has just started may take longer."""
    where = {"namesrv": running.namesrv, "broker": running.address}
    for left in (2, 1, 0):
        try:
            driver.ask("create-topic", **where, topic="T", queues=1)
            return
        except ChildFailed:
            if not left:
                raise


def consumed(driver: Peer, where: str, group: str, sql: str, count: int, send: bool) -> list[str]:
    name = f"{group}-{where}"
    driver.ask("consumer", name=name, namesrv=where, topic="T", group=group, sql=sql)
    try:
        if send:
            driver.ask("producer", name=name, group=f"P{group}", namesrv=where)
            driver.ask("send", name=name, messages=[message(9)])
            # Once this one came the filter is known: the next get its bits.
            assert len(driver.ask("received", name=name, count=1, timeout_ms=60_000)["messages"]) == 1
            driver.ask("send", name=name, messages=[message(number) for number in (1, 4, 2, "x", 5)])
            driver.ask("stop-producer", name=name)
        got = driver.ask("received", name=name, count=count, timeout_ms=60_000)["messages"]
        return sorted(each["body"] for each in got)
    finally:
        driver.ask("stop-consumer", name=name)


def kept(folder: Path) -> tuple[list[bytes], dict[str, Any]]:
    """The bitmaps of the messages in order, and what the file of filters says, times and versions aside.

    Without the first: RocketMQ knows a filter from the heartbeat on, we from the first pull.
    """
    root = folder / "store"
    ext = ConsumeQueueExt(DiskStorage(), str(root / "consumequeue_ext" / "T" / "0"), 1 << 20, writable=False)
    bitmaps = []
    with open_store(root, read_only=True) as store:
        for number in range(1, store.max_offset("T", 0)):
            unit = store.queue_unit("T", 0, number)
            assert unit is not None
            extended = ext.get(unit[2])
            assert extended is not None
            bitmaps.append(extended.bitmap)
    data = json.loads((root / "config" / "consumerFilter.json").read_text())
    (entry,) = data["filterDataByTopic"]["T"]["groupFilterData"].values()
    for name in ("bornTime", "deadTime", "dead", "clientVersion"):
        entry.pop(name)
    return bitmaps, data


def test_bitmaps_and_filters_are_rocketmq_s(tmp_path: Path) -> None:
    found = {}
    with Peer("ClientDriver", "5.5.0", INTEROP_OPTIONS) as driver:
        for side in OTHER:
            with broker(side, tmp_path / side) as running:
                create_topic(driver, running)
                assert consumed(driver, running.namesrv, "G", "a > 3", 3, True) == ["4", "5", "9"]
            found[side] = kept(tmp_path / side)
        assert found["penstock"] == found["rocketmq"]
        bitmaps, _ = found["rocketmq"]
        assert [any(bitmap) for bitmap in bitmaps] == [False, True, False, False, True]
        for side, other in OTHER.items():
            with broker(other, tmp_path / side) as running:
                assert consumed(driver, running.namesrv, "H", "a BETWEEN 2 AND 4", 2, False) == ["2", "4"]
