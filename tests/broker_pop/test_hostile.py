"""Pops, acks and handles that make no sense: refused with a code, and the broker goes on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_pop.popping import Client, ack, play, pop, pop_fields
from penstock.broker import Broker
from penstock.broker.popheader import read_handle
from penstock.errors import RequestRefused


def _ack(**more: str) -> dict[str, str]:
    fields = {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "0",
        "extraInfo": "0 1794715596425 60000 2 0 broker-a 0 0",
        "offset": "0",
    }
    return {**fields, **more}


def test_an_ack_beyond_the_queue_is_refused_beside_good_ones_of_the_same_pop(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        for number in range(3):
            await client.send("T", b"m%d" % number)
        given = await pop(client)
        place = _ack(extraInfo=given[0].handle)
        calls = [client.call(200051, {**place, "offset": offset}) for offset in ("0", "9999", "x", "1")]
        assert [answer.code for answer in await asyncio.gather(*calls)] == [0, 208, 1, 0]
        assert broker.popping.inflight.of_queue("T", "G", 0) == 1

    play(tmp_path, scene)


HANDLES = {
    "": 1,
    "x": 1,
    "x y z": 1,
    "a b c d e f g h": 1,
    "0 1 6000 2 0 broker-a 0 0 0": 1,
    "0 1 6000 77 0 broker-a 0 0": 13,
    "0 1 6000 -1 0 broker-a 0 0": 13,
    "0 -5 6000 2 0 broker-a 0 0": 13,
    "0 99999999999999999999 6000 2 0 broker-a 0 0": 1,
    # Nothing that such an ack could mean: RocketMQ says success, too.
    "0 9223372036854775807 9223372036854775807 2 0 broker-a 0 0": 0,
    "0 1794715596425 60000 2 0 elsewhere 0 0": 0,
}


def test_handles_that_are_none_are_refused(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T", b"m")
        for handle, code in HANDLES.items():
            answer = await client.call(200051, _ack(extraInfo=handle))
            assert (handle, answer.code) == (handle, code)
            answer = await client.call(200053, {**_ack(extraInfo=handle), "invisibleTime": "5000"})
            assert (handle, answer.code) == (handle, code)
        assert (await client.call(200051, _ack(queueId="9"))).code == 13
        assert (await client.call(200051, _ack(queueId="-1"))).code == 13
        assert (await client.call(200051, _ack(topic="Nope"))).code == 17
        answer = await client.call(200051, _ack(offset="9999"))
        assert (answer.code, answer.remark) == (
            208,
            "offset is illegal, key:T@0, commit:9999, store:0~1",
        )
        for invisible in ("-1", str(2**62), "zz"):
            answer = await client.call(200053, {**_ack(), "invisibleTime": invisible})
            assert answer.code == (1 if invisible == "zz" else 29)
        assert (await client.call(200053, {**_ack(offset="5"), "invisibleTime": "1"})).code == 208
        assert len(await pop(client)) == 1

    play(tmp_path, scene)


POPS = [
    ({"maxMsgNums": "33"}, 29),
    ({"maxMsgNums": "-1"}, 29),
    ({"maxMsgNums": "x"}, 1),
    ({"queueId": "9"}, 29),
    ({"bornTime": "1000"}, 210),
    ({"topic": "Nope"}, 17),
    ({"consumerGroup": "a b"}, 26),
    ({"invisibleTime": "-1"}, 29),
    ({"invisibleTime": str(2**63 - 1)}, 29),
    ({"expType": "SQL92", "exp": "a =="}, 23),
    ({"consumerGroup": ""}, 26),
]


def test_pops_that_make_no_sense_are_refused_with_all_fields(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        for more, code in POPS:
            answer = await client.call(200050, {**pop_fields(), **more})
            assert (more, answer.code) == (more, code)
            if code != 1:
                assert {"popTime", "invisibleTime", "reviveQid", "restNum"} <= answer.fields.keys()
        assert (await client.call(200050, {})).code == 1
        fields = {**pop_fields(), "bornTime": str(2**63 - 1), "pollTime": "100"}
        assert (await client.call(200050, fields)).code == 210
        assert broker.popping.inflight.of_groups() == {}

    play(tmp_path, scene)


BATCHES = [
    (b"", 208),
    (b"{", 1),
    (b"[]", 1),
    (b'{"acks":null}', 208),
    (b'{"acks":7}', 1),
    (b'{"acks":[7]}', 1),
    (b'{"acks":[{"c":"G"}]}', 0),
    (b'{"acks":[{"c":"G","t":"NOPE","r":"0","so":0,"q":0,"rq":1,"pt":1,"it":1,"b":"BA=="}]}', 0),
    (b'{"acks":[{"c":"G","t":"T","r":"0","so":0,"q":77,"rq":1,"pt":1,"it":1,"b":"BA=="}]}', 13),
    (b'{"acks":[{"c":"G","t":"T","r":"0","so":0,"q":0,"rq":100,"pt":1,"it":1,"b":"AQ=="}]}', 13),
    (b'{"acks":[{"c":"G","t":"T","r":"0","so":0,"q":0,"rq":1,"pt":1,"it":1,"b":"!!"}]}', 13),
    (b'{"acks":[{"c":"G","t":"T","r":"0","so":-9,"q":0,"rq":1,"pt":1,"it":1,"b":"AQ=="}]}', 13),
    (b'{"acks":[{"c":"G","t":"T","r":"0","so":"x","q":0,"rq":1,"pt":1,"it":1,"b":"AQ=="}]}', 1),
]


def test_batches_that_make_no_sense_ack_nothing(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        for number in range(40):
            await client.send("T", b"%d" % number)
        for body, code in BATCHES:
            assert (body, (await client.call(200151, body=body)).code) == (body, code)
        entry = {"c": "G", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 1, "pt": 1, "it": 1}
        for bits in ("/" * 8, "/" * 100_000):
            body = json.dumps({"acks": [{**entry, "b": bits}]}).encode()
            assert (await client.call(200151, body=body)).code == 13

    play(tmp_path, scene)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(st.text(max_size=60), st.lists(st.from_regex(r"-?\d{0,22}|b", fullmatch=True)).map(" ".join))
)
def test_any_text_is_a_handle_or_refused(text: str) -> None:
    try:
        handle = read_handle(text)
    except RequestRefused as refused:
        assert refused.code in (1, 13)
    else:
        assert handle.order or 0 <= handle.revive_queue < 8
        assert min(handle.start, handle.pop_time, handle.invisible_ms) >= 0


@pytest.mark.parametrize("code", [400, 401, 200052, 200054, 200055])
def test_questions_that_make_no_sense_are_refused(tmp_path: Path, code: int) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        for body in (b"", b"{", b"[]", b'{"topic":7,"consumerGroup":[],"mode":"WHAT"}', b"\xff"):
            answer = await client.call(code, body=body)
            assert answer.code != 0 or answer.body == b"{}"
        for fields in (
            {},
            {"consumerGroup": "G", "topic": "T", "queueId": "9", "maxMsgNums": "1", "pollTime": "1"},
        ):
            assert (await client.call(code, fields)).code != 0

    play(tmp_path, scene)


def test_an_ack_of_another_groups_message_takes_nothing_away(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T", b"m")
        given = await pop(client)
        assert await ack(client, *given, group="Other") == [0]
        assert broker.popping.inflight.of_groups() == {("T", "G"): 1}

    play(tmp_path, scene)
