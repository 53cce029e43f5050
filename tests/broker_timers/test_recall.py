"""Taking a timed message back (protocol 3.11, request 370)."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.talking import Client
from broker.talking import play as plain_play
from broker_timers.timing import NOW, Stage, play, timed
from penstock.broker import Broker
from penstock.message.recall import RecallHandle, decode_handle


def recall(topic: str, handle: str) -> dict[str, str]:
    return {"producerGroup": "P", "topic": topic, "recallHandle": handle}


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_recalled_message_is_never_delivered_and_its_neighbours_are(tmp_path: Path, flush: str) -> None:
    async def scene(stage: Stage) -> None:
        handles = []
        for number in range(3):
            text = timed(f"K{number}", TIMER_DELIVER_MS=NOW + 5000)
            sent = await stage.client.send("T", str(number).encode(), properties=text)
            handles.append(sent.fields["recallHandle"])
        stage.pass_time(2000)
        answer = await stage.client.call(370, recall("T", handles[1]))
        assert (answer.code, answer.remark) == (0, "not set any response code")
        assert answer.fields == {"msgId": "K1", "MSG_REGION": "DefaultRegion"}
        stage.pass_time(10_000)
        assert await stage.bodies() == [b"0", b"2"]

    play(tmp_path, scene, flush=flush)


def test_a_recall_in_the_last_moment_counts(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        sent = await stage.client.send("T", properties=timed("K", TIMER_DELIVER_MS=NOW + 5000))
        handle = decode_handle(sent.fields["recallHandle"])
        assert handle is not None
        stage.pass_time(handle.timestamp - 1 - NOW)
        assert (await stage.client.call(370, recall("T", handle.encode()))).code == 0
        stage.pass_time(5000)
        assert await stage.bodies() == []

    play(tmp_path, scene)


def test_a_message_beyond_the_window_can_be_recalled_while_it_rolls(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        sent = await stage.client.send("T", properties=timed("K", TIMER_DELIVER_MS=NOW + 90_000))
        stage.pass_time(30_000)
        assert (await stage.client.call(370, recall("T", sent.fields["recallHandle"]))).code == 0
        stage.pass_time(120_000)
        assert await stage.bodies() == []

    play(tmp_path, scene, store={"timer_roll_window_slot": 10})


@pytest.mark.parametrize(
    ("topic", "handle", "code", "remark"),
    [
        ("T", "no handle", 604, "recall handle is invalid"),
        ("T", "", 604, "recall handle is invalid"),
        ("T", "djEgVA==", 604, "recall handle is invalid"),
        ("T", "\u00e4" * 8, 604, "recall handle is invalid"),
        ("T", RecallHandle("U", "broker-a", NOW + 9000, "K").encode(), 604, "recall failed, topic not match"),
        (
            *("T", RecallHandle("T", "broker-b", NOW + 9000, "K").encode()),
            *(604, "recall failed, broker service not available"),
        ),
        *(
            (
                "T",
                RecallHandle("T", "broker-a", time, "K").encode(),
                604,
                "recall failed, timestamp invalid",
            )
            for time in (NOW, NOW - 1, -1, NOW + 259_200_000, 2**63 - 1)
        ),
        (
            *("V", RecallHandle("V", "broker-a", NOW + 9000, "K").encode()),
            *(17, "recall failed, the topic[V] not exist"),
        ),
    ],
)
def test_a_recall_that_cannot_be_is_refused_in_rocketmqs_words(
    tmp_path: Path, topic: str, handle: str, code: int, remark: str
) -> None:
    async def scene(stage: Stage) -> None:
        stage.broker.topics.ensure("T", 1)
        answer = await stage.client.call(370, recall(topic, handle))
        assert (answer.code, answer.remark) == (code, remark)
        assert answer.fields == {"MSG_REGION": "DefaultRegion"}

    play(tmp_path, scene)


def test_recall_is_forbidden_unless_the_operator_allows_it(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        answer = await client.call(370, recall("T", "x"))
        assert (answer.code, answer.remark) == (16, "recall failed, operation is forbidden")
        assert answer.fields == {"MSG_REGION": "DefaultRegion"}

    plain_play(tmp_path, scene)
