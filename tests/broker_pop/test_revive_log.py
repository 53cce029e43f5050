"""Checkpoints and acks on disk: RocketMQ's bytes, and what a restart makes of them (protocol 3.9)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_pop.popping import Client, SetClock, ack, change, play, pop, until
from penstock.broker import Broker
from penstock.broker.popcheckpoint import CheckPoint, ReviveLog, decode_ack, decode_checkpoint
from penstock.message import Message, parse_properties

LONG = 10_000_000
LOG = ReviveLog("DefaultCluster", "broker-a", "127.0.0.1:33391")
# As RocketMQ 5.5.0 wrote them.
CHECKPOINT = (
    b'{"bm":0,"bn":"broker-a","c":"G","d":[0,1,2,3,4],"it":6000,"n":5,"pt":1794782243792,"q":0,'
    b'"reviveTime":1794782249792,"ro":0,"so":0,"sp":false,"t":"PT"}'
)
ACK = b'{"ao":1,"bn":"broker-a","c":"G","pt":1794782243792,"q":0,"so":0,"t":"PT"}'
ACKS = b'{"ao":-1,"aol":[2,3],"bn":"broker-a","c":"G","pt":1794782243792,"q":0,"so":0,"t":"PT"}'
PUT_AGAIN = (
    b'{"bm":0,"bn":"broker-a","c":"G","d":[0],"it":125000,"n":1,"pt":1794782244710,"q":0,'
    b'"reviveTime":1794782369710,"ro":0,"rp":"4","so":3,"sp":false,"t":"PT"}'
)


def test_records_have_rocketmqs_bytes() -> None:
    point = CheckPoint(
        bn="broker-a", c="G", d=[0, 1, 2, 3, 4], it=6000, n=5, pt=1794782243792, q=0, so=0, t="PT"
    )
    made = LOG.checkpoint(point, 3, 1794782243800)
    assert made.body == CHECKPOINT
    assert (made.topic, made.queue_id) == ("rmq_sys_wheel_timer", 0)
    request = (
        b"TIMER_DELIVER_MS\x011794782248792\x02"
        b"UNIQ_KEY\x01PT@0@0@G@1794782243792@broker-a@ck\x02TAGS\x01ck\x02"
    )
    assert made.raw_properties == (
        b"REAL_TOPIC\x01rmq_sys_REVIVE_LOG_DefaultCluster\x02"
        + request
        + b"TIMER_OUT_MS\x011794782248000\x02REAL_QID\x013\x02"
    )
    # One that is due goes where it belongs at once.
    late = LOG.checkpoint(point, 3, 1794782248792)
    assert (late.topic, late.queue_id) == ("rmq_sys_REVIVE_LOG_DefaultCluster", 3)
    assert late.raw_properties == request

    def acks(*offsets: int) -> Message:
        return LOG.ack("PT", "G", 0, 0, 1794782243792, 1794782249792, offsets, 0, 1794782243800)

    assert acks(1).body == ACK
    assert acks(1).raw_properties == (
        b"REAL_TOPIC\x01rmq_sys_REVIVE_LOG_DefaultCluster\x02TIMER_DELIVER_MS\x011794782249792\x02"
        b"UNIQ_KEY\x01PT@0@1@G@1794782243792@broker-a@ack\x02TAGS\x01ack\x02"
        b"TIMER_OUT_MS\x011794782249000\x02REAL_QID\x010\x02"
    )
    assert acks(2, 3).body == ACKS
    properties = parse_properties(acks(2, 3).raw_properties or b"")
    assert properties["TAGS"] == "bAck"
    assert properties["UNIQ_KEY"] == "PT@0@-1@G@1794782243792@broker-a@ack"


def test_rocketmqs_records_are_read() -> None:
    point = decode_checkpoint(CHECKPOINT)
    assert decode_ack(ACK).key == point.key == decode_ack(ACKS).key
    for record in (ACK, ACKS):
        for offset in decode_ack(record).offsets:
            assert point.ack(offset)
    assert not point.ack(3) and not point.ack(77)
    assert point.unacked() == [0, 4]
    again = decode_checkpoint(PUT_AGAIN)
    assert (again.unacked(), again.due_ms) == ([3], 1794782369710)


def test_all_bits_of_a_checkpoint_are_kept_as_java_keeps_them() -> None:
    point = CheckPoint(bn="b", c="G", d=list(range(32)), n=32, t="T")
    for offset in range(32):
        assert point.ack(offset)
    assert json.loads(LOG.checkpoint(point, 0, 0).body)["bm"] == -1
    read = decode_checkpoint(LOG.checkpoint(point, 0, 0).body)
    read.bm &= 0xFFFFFFFF
    assert read.unacked() == []


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_exactly_what_was_not_acked_comes_back_after_a_restart(tmp_path: Path, flush: str) -> None:
    clock = SetClock()

    async def before(broker: Broker, client: Client) -> None:
        for number in range(6):
            await client.send("T", b"m%d" % number)
        given = await pop(client, invisibleTime=30_000)
        assert await ack(client, given[0], given[3]) == [0, 0]
        assert (await change(client, given[4], 100_000)).code == 0

    async def after(broker: Broker, client: Client) -> None:
        assert await pop(client) == []
        clock.ahead_ms = 40_000
        seen: set[bytes] = set()
        while len(seen) < 3:
            seen |= {
                each.body for each in await pop(client, pollTime=20_000, invisibleTime=LONG, now=clock.now_ms)
            }
        assert seen == {b"m1", b"m2", b"m5"}
        clock.ahead_ms = 140_000
        late = {
            each.body
            for each in await pop(client, pollTime=20_000, invisibleTime=LONG, now=clock.now_ms, maxMsgNums=1)
        }
        assert late == {b"m4"}

    async def at_last(broker: Broker, client: Client) -> None:
        """What was judged is not judged again."""
        assert broker.popping.revive.revived == 0
        await client.send("Other", b"x")
        assert len(await pop(client, "Other", invisibleTime=1)) == 1
        assert len(await pop(client, "Other", pollTime=20_000, now=clock.now_ms)) == 1
        assert broker.store.max_offset("%RETRY%G_T", 0) == 4

    play(tmp_path, before, clock=clock, flush=flush)
    play(tmp_path, after, clock=clock, flush=flush)
    play(tmp_path, at_last, clock=clock, flush=flush)


def test_a_damaged_record_of_the_revive_log_is_passed_over(tmp_path: Path) -> None:
    clock = SetClock()

    async def scene(broker: Broker, client: Client) -> None:
        topic = broker.popping.log.topic
        wild = CheckPoint(bn="b", c="G", d=[2**70], it=2**80, n=2**40, pt=-(2**90), q=2**50, so=2**99, t="T")
        near = CheckPoint(bn="b", c="G", d=[2**31 - 1], n=1, so=2**61, t="T")
        forged = [LOG.checkpoint(each, 0, 0).body for each in (wild, near)]
        for body in (*forged, b"", b"{", b"[]", b'{"t":7}', b'{"t":"T"}', b'{"bm":"x"}', b"\xff" * 40):
            for tag in ("ck", "ack", "bAck", "else"):
                for queue in range(8):
                    broker.store.put(Message(topic, body or b" ", tags=tag, queue_id=queue))
        await client.send("T", b"m")
        assert len(await pop(client, invisibleTime=1000)) == 1
        clock.ahead_ms = 5000
        assert len(await pop(client, pollTime=20_000, now=clock.now_ms)) == 1
        await until(lambda: broker.popping.revive.waiting == 0)

    play(tmp_path, scene, clock=clock)
