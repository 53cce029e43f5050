"""Recorded conversations of RocketMQ's clients with RocketMQ's servers: ours gives the same answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from wire_replay import Replay, load

from penstock.broker import Broker
from penstock.config import BrokerConfig, StoreConfig

GOLDEN = Path(__file__).parent.parent / "golden" / "wire"
# Recordings of the Go client read what an earlier recording sent.
BEFORE = {
    "go-push-tag": ["go-async"],
    "go-pull-poll": ["go-async"],
    "go-push-orderly": ["go-order"],
    "go-retry-dlq": ["go-batch"],
}
# Not replayed: the broker is stopped in the middle (the interop tests do that with the clients), or messages
# are read that no recording sent.
LEFT_OUT = ("restart", "go-request-reply", "go-push-cluster")
# What depends on chance in a recording: a random queue, the order of two failures.
BY_CHANCE = {
    "java-5.5.0-json-raw-errors": (
        "310 T_raw",
        "11 T_raw",
        "14 T_raw",
        "30 T_raw",
        "10 T_raw",
    ),
    "go-retry-dlq": ("11 %RETRY%",),
    # A client that is refused leaves at once: whether its heartbeat is noticed before that.
    "java-5.5.0-json-filter-sql": ("connection 8: asked by itself",),
    "java-5.5.0-rocketmq-filter-sql": ("connection 8: asked by itself",),
    "java-4.9.7-json-filter-sql": ("asked by itself",),
}
SMALL = StoreConfig(
    mapped_file_size_commit_log=16 << 20,
    max_hash_slot_num=1000,
    max_index_num=4000,
    transaction_time_out_ms=1000,
    transaction_check_interval_ms=1000,
    transaction_check_max=1000,
)
AT_ONCE = 12
CONVERSATIONS = sorted(
    path.name.removesuffix(".jsonl.gz")
    for path in GOLDEN.iterdir()
    if path.name.startswith(("java-", "go-")) and not any(word in path.name for word in LEFT_OUT)
)


def _endpoint(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def _play(name: str, folder: Path) -> list[str]:
    config = BrokerConfig(
        store_path=str(folder),
        listen_port=0,
        namesrv_port=0,
        # One was recorded on a broker with these switched off.
        auto_create_topic_enable="missing-topic-send" not in name,
        enable_property_filter="missing-topic-send" not in name,
        store=SMALL,
    )
    async with Broker(config) as broker:
        for played in (*BEFORE.get(name, ()), name):
            _, lines = load(GOLDEN / f"{played}.jsonl.gz")
            replay = Replay(lines, _endpoint(broker.address), _endpoint(broker.namesrv_address))
            await replay.run()
    chance = BY_CHANCE.get(name, ())
    return [difference for difference in replay.differences if not any(word in difference for word in chance)]


@pytest.mark.parametrize("client", ["java-5.5.0-json", "java-5.5.0-rocketmq", "java-4.9.7", "go"])
def test_a_recorded_client_gets_the_answers_rocketmq_gave(client: str, tmp_path: Path) -> None:
    """All of a client's conversations at once, a broker each: most of their time is spent waiting."""
    names = [name for name in CONVERSATIONS if name.startswith(client)]
    assert names
    room = asyncio.Semaphore(AT_ONCE)

    async def play(name: str) -> list[str]:
        async with room:
            folder = tmp_path / name
            folder.mkdir()
            return [f"{name}: {difference}" for difference in await _play(name, folder)]

    async def play_all() -> list[str]:
        return [difference for found in await asyncio.gather(*map(play, names)) for difference in found]

    assert asyncio.run(play_all()) == []
