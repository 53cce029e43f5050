"""Messages with a time: stored, refused and delivered as RocketMQ does (protocol 3.11 and 4.5)."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from broker.talking import properties_text
from broker_timers.timing import NOW, Stage, play, timed
from golden_wire import conversation
from penstock.clock import ManualClock
from penstock.message.recall import decode_handle
from penstock.message.topic import TIMER_TOPIC
from penstock.remoting.command import decode


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize(
    ("request_", "deliver"),
    [
        ({"TIMER_DELAY_MS": 5000}, NOW + 5000),
        ({"TIMER_DELAY_SEC": 4}, NOW + 4000),
        ({"TIMER_DELIVER_MS": NOW + 6655}, NOW + 6655),
        ({"TIMER_DELAY_MS": 1}, NOW + 1),
        ({"TIMER_DELAY_SEC": 2, "TIMER_DELAY_MS": 9000, "TIMER_DELIVER_MS": NOW + 70}, NOW + 2000),
    ],
)
def test_s20_a_timed_message_is_in_its_queue_at_its_time_and_not_before(
    tmp_path: Path, flush: str, request_: dict[str, int], deliver: int
) -> None:
    async def scene(stage: Stage) -> None:
        sent = await stage.client.send("T", b"late", queue=1, properties=timed("K1", TAGS="a", **request_))
        out = (deliver - 1) // 1000 * 1000
        assert (sent.code, sent.fields["queueId"], sent.fields["queueOffset"]) == (0, "1", "0")
        handle = decode_handle(sent.fields["recallHandle"])
        assert handle == ("T", "broker-a", out + 1, "K1")
        stage.pass_time(deliver - NOW - 1, step=777)
        assert await stage.delivered(queue=1) == []
        stage.clock.set(deliver)
        stage.step()
        early = await stage.delivered(queue=1)
        assert bool(early) == (deliver % 1000 == 0)  # at the edge of a tick at once, else when it is over
        stage.pass_time(1000)
        (record,) = await stage.delivered(queue=1)
        assert (record.body, record.born_timestamp) == (b"late", 1794715869048)
        assert record.properties == {
            "UNIQ_KEY": "K1",
            "TAGS": "a",
            **{name: str(value) for name, value in request_.items()},
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
            "TIMER_OUT_MS": str(out),
            "REAL_TOPIC": "T",
            "REAL_QID": "1",
            "TIMER_ENQUEUE_MS": record.properties["TIMER_ENQUEUE_MS"],
            "TIMER_DEQUEUE_MS": record.properties["TIMER_DEQUEUE_MS"],
        }
        assert deliver <= record.store_timestamp <= deliver + 1000

    play(tmp_path, scene, flush=flush)


def test_a_time_that_is_past_is_no_time(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        sent = await stage.client.send("T", b"now", properties=timed("K", TIMER_DELIVER_MS=NOW - 1))
        assert sent.code == 0
        assert "recallHandle" not in sent.fields
        (record,) = await stage.delivered()
        assert "TIMER_OUT_MS" not in record.properties

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "request_", [{"TIMER_DELIVER_MS": NOW + 4 * 86_400_000}, {"TIMER_DELAY_SEC": "soon"}]
)
def test_a_time_beyond_the_horizon_is_refused_in_rocketmqs_words(
    tmp_path: Path, request_: dict[str, object]
) -> None:
    async def scene(stage: Stage) -> None:
        answer = await stage.client.send("T", b"x", properties=timed("K", **request_))
        assert answer.code == 13
        assert answer.remark == (
            "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; "
            "or if set del msg, the delay time should be bigger than the current time"
        )
        assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert stage.broker.store.max_offset(TIMER_TOPIC, 0) == 0

    play(tmp_path, scene)


def test_a_broker_without_a_wheel_says_so(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        answer = await stage.client.send("T", b"x", properties=timed("K", TIMER_DELAY_MS=10))
        expected = "accurate timer message is not enabled, timerWheelEnable is false"
        assert (answer.code, answer.remark) == (1, expected)

    play(tmp_path, scene, store={"timer_wheel_enable": False})


def test_a_slot_that_is_too_full_is_under_flow_control(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        for number in range(2):
            answer = await stage.client.send("T", properties=timed(f"K{number}", TIMER_DELAY_MS=5000))
            assert answer.code == 0
            stage.step()
        answer = await stage.client.send("T", properties=timed("K2", TIMER_DELAY_MS=5000))
        assert answer.code == 1
        assert answer.remark is not None and answer.remark.startswith("timer message is under flow control")

    play(tmp_path, scene, store={"timer_congest_num_each_slot": 1})


def test_a_delay_level_wins_over_a_time(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        answer = await stage.client.send("T", properties=timed("K", DELAY="1", TIMER_DELAY_MS=60_000))
        assert answer.code == 0
        assert "recallHandle" not in answer.fields
        assert stage.broker.store.max_offset(TIMER_TOPIC, 0) == 0

    play(tmp_path, scene)


def test_a_time_beyond_the_wheels_window_rolls_forward(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        deliver = NOW + 65_000
        await stage.client.send("T", b"far", properties=timed("K", TIMER_DELIVER_MS=deliver))
        while not await stage.bodies():
            stage.pass_time(1000)
            assert stage.clock.now_ms() <= deliver + 2000
        assert stage.clock.now_ms() >= deliver
        (record,) = await stage.delivered()
        assert int(record.properties["TIMER_ROLL_TIMES"]) >= 3
        stage.pass_time(200_000, step=20_000)
        assert await stage.bodies() == [b"far"]

    play(tmp_path, scene, store={"timer_roll_window_slot": 20})


def test_a_committed_transaction_waits_for_its_time(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        text = properties_text(TRAN_MSG="true", PGROUP="P", UNIQ_KEY="K", TIMER_DELAY_MS="5000")
        half = await stage.client.send("T", b"half", properties=text, f="4")
        assert half.code == 0
        assert "recallHandle" not in half.fields
        ended = {
            "producerGroup": "P",
            "tranStateTableOffset": half.fields["queueOffset"],
            "commitLogOffset": str(int(half.fields["msgId"][16:], 16)),
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": "K",
        }
        assert (await stage.client.call(37, ended)).code == 0
        stage.pass_time(4000)
        assert await stage.bodies() == []
        stage.pass_time(2000)
        assert await stage.bodies() == [b"half"]

    play(tmp_path, scene)


def test_the_timers_files_are_open_before_the_first_client_comes(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        assert (tmp_path / "store" / "timerwheel").exists()

    play(tmp_path, scene)


def test_held_pulls_are_told_when_a_timer_fires(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        import asyncio

        await stage.client.send("T", b"x", properties=timed("K", TIMER_DELAY_MS=2000))
        held = asyncio.create_task(stage.client.pull("T", 0, flags=6, hold_ms=15_000))
        await asyncio.sleep(0)
        stage.clock.advance(3000)
        stage.broker.store.schedules.timer.wake()
        assert (await held).code == 0

    play(tmp_path, scene, flush="async")


def test_recorded_timer_sends_are_answered_as_rocketmq_did(tmp_path: Path) -> None:
    _, frames = conversation("timer-send")
    pairs = {}
    for frame in frames:
        command = decode(frame.frame)
        pairs.setdefault((frame.connection, command.opaque), []).append(command)
    sends = [pair for pair in pairs.values() if pair[0].code == 310]
    assert len(sends) == 5

    async def scene(stage: Stage) -> None:
        stage.broker.topics.ensure("TimerT", 2)
        for asked, answered in sends:
            stage.clock.set(int(asked.fields["g"]) + 1)
            ours = await stage.client.call(310, dict(asked.fields), bytes(asked.body))
            assert (ours.code, ours.remark) == (answered.code, answered.remark)
            assert ours.fields.keys() == answered.fields.keys()
            for name in answered.fields.keys() - {"msgId", "queueOffset", "recallHandle"}:
                assert ours.fields[name] == answered.fields[name]
            if "recallHandle" in answered.fields:
                theirs = base64.urlsafe_b64decode(answered.fields["recallHandle"])
                assert base64.urlsafe_b64decode(ours.fields["recallHandle"]) == theirs

    play(tmp_path, scene, clock=ManualClock(NOW))
