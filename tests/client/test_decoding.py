"""Bytes from a broker become messages, or an error: whatever they are."""

from __future__ import annotations

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client import MessageQueue
from penstock.client.received import decode_messages
from penstock.client.route import ClusterData, RouteData
from penstock.client.wirejson import decode
from penstock.errors import RemotingError
from penstock.format.batch import BatchBlock, encode_client_batch
from penstock.format.record import encode_record

QUEUE = MessageQueue("T", "broker-a", 3)


def record(
    body: bytes = b"body", properties: bytes = b"TAGS\x01t\x02UNIQ_KEY\x01U\x02", **fields: int
) -> bytes:
    places = {
        "queue_id": 3,
        "queue_offset": 7,
        "physical_offset": 100,
        "born_timestamp": 1,
        "store_timestamp": 2,
    }
    return encode_record("T", body, properties, **{**places, **fields})


def test_records_end_to_end_are_read() -> None:
    found = decode_messages(record(b"a") + record(b"b", queue_offset=8), "broker-a", QUEUE)
    assert [(message.body, message.queue_offset, message.queue) for message in found] == [
        (b"a", 7, QUEUE),
        (b"b", 8, QUEUE),
    ]
    assert (found[0].tags, found[0].message_id, found[0].broker_name) == ("t", "U", "broker-a")
    assert decode_messages(b"", "broker-a") == []


def test_a_retried_message_shows_the_topic_it_was_sent_to() -> None:
    data = encode_record(
        "%RETRY%g",
        b"x",
        b"RETRY_TOPIC\x01orders\x02",
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        born_timestamp=1,
        store_timestamp=2,
        reconsume_times=2,
    )
    (message,) = decode_messages(data, "broker-a", MessageQueue("%RETRY%g", "broker-a", 0))
    assert (message.topic, message.queue.topic, message.reconsume_times) == ("orders", "%RETRY%g", 2)


def test_an_inner_batch_comes_unpacked() -> None:
    blocks = [BatchBlock(b"a", b"UNIQ_KEY\x01A\x02TAGS\x01x\x02"), BatchBlock(b"b", b"UNIQ_KEY\x01B\x02")]
    packed = zlib.compress(encode_client_batch(blocks))
    found = decode_messages(record(packed, b"INNER_NUM\x012\x02", sys_flag=0xC0 | 0x301), "broker-a", QUEUE)
    assert [(each.body, each.message_id, each.tags, each.queue_offset) for each in found] == [
        (b"a", "A", "x", 7),
        (b"b", "B", None, 8),
    ]
    with pytest.raises(RemotingError, match="inner batch"):
        decode_messages(record(b"\x00\x00\x00\x05x", sys_flag=0xC0), "broker-a", QUEUE)


@given(st.binary(max_size=200), st.lists(st.tuples(st.integers(0, 150), st.integers(0, 255)), max_size=6))
def test_any_bytes_are_messages_or_an_error(tail: bytes, changes: list[tuple[int, int]]) -> None:
    data = bytearray(record(zlib.compress(b"body" * 20), sys_flag=0x301) + tail)
    for place, value in changes:
        if place < len(data):
            data[place] = value
    with contextlib.suppress(RemotingError):
        for message in decode_messages(bytes(data), "broker-a", QUEUE):
            assert isinstance(message.body, bytes)
            assert isinstance(message.properties, dict)
            assert all(isinstance(each, str) for each in (message.topic, message.message_id, repr(message)))


@given(st.binary(max_size=80) | st.text(alphabet='{}[]:,"0a').map(str.encode))
def test_any_answer_is_a_route_or_an_error(body: bytes) -> None:
    for kind in (RouteData, ClusterData):
        with contextlib.suppress(RemotingError):
            assert isinstance(decode(body, kind), kind)
