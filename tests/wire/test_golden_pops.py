"""Recorded conversations of RocketMQ's POP family: ours gives the same answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pop_replay import FastClock, PopReplay
from wire_replay import Line, Replay, load, records

from penstock.broker import Broker
from penstock.broker.topics import TopicConfig
from penstock.config import BrokerConfig, StoreConfig
from penstock.message import Message

GOLDEN = Path(__file__).parent.parent / "golden" / "wire"
SMALL = StoreConfig(
    mapped_file_size_commit_log=16 << 20, max_hash_slot_num=1000, max_index_num=4000, timer_precision_ms=100
)


def _endpoint(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def _prepare(broker: Broker, lines: list[Line]) -> None:
    """What was there before the recording began: its topics, and the messages that it did not send itself."""
    requests = {line.frame.opaque: line.frame for line in lines if line.to != "client"}
    topics = {frame.fields["topic"] for frame in requests.values() if frame.code == 200050}
    for topic in topics - {"Nope"}:
        broker.topics.put(TopicConfig(topic, 2, 2))
    if any(frame.code == 310 for frame in requests.values()):
        return
    for line in lines:
        asked = requests.get(line.frame.opaque)
        if line.to == "client" and asked is not None and asked.code == 200050 and line.frame.code == 0:
            for record in records(line.frame.body):
                message = Message(
                    record.topic,
                    record.body,
                    queue_id=record.queue_id,
                    raw_properties=record.properties_bytes,
                    born_timestamp=record.born_timestamp,
                )
                if record.reconsume_times == 0:
                    assert broker.store.put(message).ok


@pytest.mark.parametrize("name", ["pop-raw", "pop-push-concurrent"])
def test_whoever_pops_gets_the_answers_rocketmq_gave(name: str, tmp_path: Path) -> None:
    async def play() -> list[str]:
        clock = FastClock()
        config = BrokerConfig(store_path=str(tmp_path), listen_port=0, namesrv_port=0, store=SMALL)
        async with Broker(config, clock=clock) as broker:
            _, lines = load(GOLDEN / f"{name}.jsonl.gz")
            await _prepare(broker, lines)
            places = _endpoint(broker.address), _endpoint(broker.namesrv_address)
            differences: list[str] = []
            if name == "pop-push-concurrent":
                _, before = load(GOLDEN / "mqadmin-setConsumeMode.jsonl.gz")
                mode = Replay(before, *places)
                await mode.run()
                differences += mode.differences
            replay = PopReplay(lines, *places, clock)
            await replay.run()
        return [*differences, *replay.differences]

    assert asyncio.run(play()) == []
