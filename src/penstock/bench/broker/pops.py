"""Consuming by pops: how fast a group's consumers take what is there, every message acked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.bench.broker.turns import Measured, Scale, Side, cpu_seconds, running
from penstock.bench.child import ChildFailed
from penstock.bench.peer import Peer
from penstock.bench.penstockbroker import PenstockBroker
from penstock.bench.rocketmq import RocketMQ
from penstock.bench.row import Row

_KEY = "pop-16-1k"
_CONSUMERS = 16
_QUEUES = 16
_PER_SECOND = 15_000
"""Messages for each second that a load lasts: enough for either broker to be busy so long."""


def pop_rows(
    folder: Path,
    driver: Peer,
    scale: Scale,
    sides: tuple[Side, ...],
    wanted: Callable[[str], bool],
    progress: Callable[[str], None],
) -> Iterator[Row]:
    """Sixteen consumers of one group pop a topic that was filled before."""
    if not wanted(_KEY):
        return
    measured = Measured()
    real = [side for side in sides if side != "null"]
    progress("the client warms up: pops that count for nobody")
    # Its virtual machine compiles for some 200 000 messages, and pays twice as much for the first of them as
    # for the last: whoever is measured first would pay for that.
    with running("ours", folder, driver) as (broker, _):
        _load(driver, broker, "first", scale.first_warm_up)
    for number in range(scale.rounds):
        for side in real if number % 2 == 0 else reversed(real):
            progress(f"round {number + 1} of {scale.rounds}: {side}, pops")
            with running(side, folder, driver) as (broker, _):
                _load(driver, broker, "warm", scale.first_warm_up / 3)
                before = cpu_seconds(broker.pid)
                rate, count = _load(driver, broker, "pop", scale.seconds)
                measured.add(side, _KEY, rate)
                measured.add(side, "cpu", (cpu_seconds(broker.pid) - before) * 1e6 / count)
    ours = measured.median("ours", _KEY)
    assert ours is not None
    detail = {f"{side}_cpu_s_per_million": measured.median(side, "cpu") for side in real}
    work = f"POP consume, {_CONSUMERS} consumers, 1 KiB"
    yield Row(_KEY, work, "msg/s", ours, measured.median("peer", _KEY), 1.2, detail=detail)


def _load(driver: Peer, broker: PenstockBroker | RocketMQ, name: str, seconds: float) -> tuple[float, int]:
    topic, group = f"T-{name}", f"G-{name}"
    where = {"namesrv": broker.namesrv, "broker": broker.address}
    for each, queues in ((topic, _QUEUES), (f"%RETRY%{group}", 1)):
        driver.ask("create-topic", **where, topic=each, queues=queues)
    arguments = ["setConsumeMode", "-n", broker.namesrv, "-b", broker.address, "-t", topic, "-g", group]
    driver.ask("mqadmin", arguments=[*arguments, "-m", "POP", "-q", "0"])
    count = max(1000, int(seconds * _PER_SECOND))
    answer = driver.ask(
        "pop-load",
        namesrv=broker.namesrv,
        topic=topic,
        group=group,
        consumers=_CONSUMERS,
        size=1024,
        messages=count,
    )
    if answer["failed"]:
        raise ChildFailed(f"{answer['failed']} of {count} messages were not popped: {answer}")
    return answer["rate"], count
