"""The parts of the client that need no broker."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Message
from penstock._native.batchbody import BatchKeys
from penstock.client import ClientSettings, MessageQueue, compression
from penstock.client.allocation import allocate_averagely
from penstock.client.errors import BrokerError, SystemBusy, TopicNotExist, refusal
from penstock.client.offsets import FileOffsets
from penstock.client.outgoing import SendTemplate, batch_properties, batch_writer, prepare
from penstock.client.queuechoice import queue_of_key
from penstock.client.route import TopicRoute
from penstock.client.sendresult import SendResult, SendStatus, read_batch
from penstock.client.settings import name_servers
from penstock.client.subscription import Subscription
from penstock.client.wirejson import decode_any
from penstock.errors import MessageRejected, RemotingError, UsageError
from penstock.format.batch import decode_client_batch, join_client_batch
from penstock.message.properties import parse_properties
from penstock.remoting import Command
from penstock.remoting.command import decode

ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.2:10911"},"brokerName":"b","cluster":"c"},'
    b'{"brokerAddrs":{"1":"127.0.0.3:10911"},"brokerName":"a","cluster":"c"}],'
    b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":2,"writeQueueNums":3,"topicSysFlag":0},'
    b'{"brokerName":"a","perm":6,"readQueueNums":1,"writeQueueNums":1,"topicSysFlag":0}]}'
)


@given(st.integers(0, 40), st.integers(1, 12))
def test_every_queue_has_one_owner_and_shares_differ_by_one(queues: int, members: int) -> None:
    names = [f"client-{number:02}" for number in range(members)]
    shares = [allocate_averagely(range(queues), names, name) for name in names]
    assert [queue for share in shares for queue in share] == list(range(queues))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_who_is_not_listed_gets_nothing() -> None:
    assert allocate_averagely([1, 2, 3], ["a", "b"], "c") == []


def test_a_route_is_read_as_rocketmq_writes_it() -> None:
    route = TopicRoute.parse("T", ROUTE)
    # No master, no writing; a slave is good enough for reading.
    assert route.publish_queues == tuple(MessageQueue("T", "b", number) for number in range(3))
    assert route.subscribe_queues == (
        MessageQueue("T", "a", 0),
        MessageQueue("T", "b", 0),
        MessageQueue("T", "b", 1),
    )
    assert route.addresses["b"] == {0: "127.0.0.1:10911", 1: "127.0.0.2:10911"}
    assert len(route.lent_to("X", 1).publish_queues) == 1


def test_keys_go_where_the_java_selector_puts_them() -> None:
    route = TopicRoute.parse("T", ROUTE)
    # "alice".hashCode() == 92903040, "polygenelubricants".hashCode() == Integer.MIN_VALUE
    assert queue_of_key(route, "alice").queue_id == 92903040 % 3
    assert queue_of_key(route, "polygenelubricants").queue_id == 2**31 % 3


@given(
    st.binary(min_size=1, max_size=300),
    st.one_of(st.none(), st.text("abcABC", min_size=1)),
    st.one_of(st.none(), st.text("abc ", min_size=1)),
    st.dictionaries(st.text("xyz", min_size=1), st.text("xyz ü", min_size=1)),
    st.integers(0, 2**31 - 1),
)
def test_a_send_frame_carries_the_message(
    body: bytes, tags: str | None, keys: str | None, properties: dict[str, str], opaque: int
) -> None:
    template = SendTemplate("group", MessageQueue("T", "broker", 3), 4)
    message = Message("T", body, tags=tags, keys=keys, properties=properties or None)
    sent, text, sys_flag, key = prepare(message, ClientSettings())
    command = decode(template.single(opaque, sent, text, sys_flag, 7))
    assert (command.code, command.opaque, bytes(command.body)) == (310, opaque, body)
    fields = command.fields
    assert (fields["a"], fields["b"], fields["e"], fields["h"], fields["n"]) == (
        "group",
        "T",
        "3",
        "7",
        "broker",
    )
    found = parse_properties(fields["i"].encode())
    assert found.pop("UNIQ_KEY") == key
    wanted = {**properties, **({"TAGS": tags} if tags else {}), **({"KEYS": keys} if keys else {})}
    assert found == wanted


_texts = st.none() | st.text(max_size=5) | st.sampled_from(["t", "a b", "\x01", "x" * 40_000])
_batched = st.builds(
    Message,
    st.just("T"),
    st.binary(min_size=1, max_size=50) | st.binary(min_size=1, max_size=50).map(bytearray),
    tags=_texts,
    keys=_texts,
    properties=st.none() | st.just({"n": "1"}),
    unique_key=st.none() | st.just("OWN"),
    flag=st.sampled_from([0, 1, -(1 << 31), (1 << 31) - 1, 1 << 31]),
    wait=st.booleans(),
    raw_properties=st.none() | st.just(b"a\x01b\x02"),
)


@given(st.lists(_batched, min_size=1, max_size=6), st.integers(1, 400), st.integers(0, 1 << 17))
def test_the_compiled_batch_writer_makes_what_the_plain_one_makes(
    messages: list[Message], most: int, number: int
) -> None:
    def outcome(join: Callable[[int], tuple[bytes, int]]) -> Any:
        made, first = [], 0
        try:
            while first < len(messages):
                body, first = join(first)
                made.append((body, first))
        except (MessageRejected, UnicodeEncodeError, ValueError) as error:
            return type(error), made
        return None, made

    count = len(messages)
    numbers = [f"{number & 0xFFFF:04X}" for number in range(number, number + count)]
    plain_keys, keys, writer = (
        [f"KEY{each}" for each in numbers],
        BatchKeys("KEY", number, count),
        batch_writer(),
    )
    compiled = outcome(lambda first: writer.join(messages, first, keys, "T", most))
    plain = outcome(lambda first: join_client_batch(messages, first, plain_keys, "T", most, batch_properties))
    assert compiled == plain
    if plain[0] is None:
        assert list(keys) == plain_keys


def test_a_batch_carries_its_messages_and_leaves_what_has_no_room() -> None:
    messages = [
        Message("T", b"one", tags="t", keys="k"),
        Message("T", memoryview(b"two"), properties={"n": "1"}, flag=7),
        Message("T", b"three", unique_key="OWN"),
    ]
    keys = BatchKeys("K", 9, 3)
    writer = batch_writer()
    body, following = writer.join(messages, 0, keys, "T", 10_000)
    blocks = decode_client_batch(body)
    assert following == 3
    assert list(keys) == ["K0009", "K000A", "OWN"]
    assert [(block.body, block.flag) for block in blocks] == [(b"one", 0), (b"two", 7), (b"three", 0)]
    assert [block.properties for block in blocks] == [
        {"KEYS": "k", "TAGS": "t", "UNIQ_KEY": "K0009"},
        {"n": "1", "UNIQ_KEY": "K000A"},
        {"UNIQ_KEY": "OWN"},
    ]
    first, following = writer.join(messages, 0, keys, "T", len(body) - 1)
    rest, end = writer.join(messages, following, keys, "T", 1)
    assert (following, end, first + rest) == (2, 3, body)


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        (Message("T", b""), MessageRejected),
        (Message("T", b"x", delay_level=1), MessageRejected),
        (Message("other", b"x"), UsageError),
        (Message("T", b"x", flag=1 << 31), ValueError),
    ],
)
def test_a_batch_refuses_what_it_cannot_carry(message: Message, refusal: type[Exception]) -> None:
    writer = batch_writer()
    with pytest.raises(refusal):
        writer.join([Message("T", b"before"), message], 0, BatchKeys("K", 0, 2), "T", 10_000)
    with pytest.raises(ValueError):
        writer.join([message], 1, BatchKeys("K", 0, 1), "T", 10_000)
    with pytest.raises(ValueError):
        writer.join([message, message], 0, BatchKeys("K", 0, 1), "T", 10_000)


@pytest.mark.parametrize("places", ["P,Q,R", "X"], ids=["a place each", "one for all"])
def test_the_results_of_a_batch_are_those_of_its_messages(places: str) -> None:
    queue = MessageQueue("T", "broker", 3)
    keys = BatchKeys("K", 0xFFFE, 5)
    answer = Command(0, {"msgId": places, "queueId": "3", "queueOffset": "70"})
    results = read_batch(answer, keys, 1, 3, queue)
    each = places.split(",") if "," in places else [places] * 3
    expected = [
        SendResult(SendStatus.SEND_OK, key, queue, 70 + number, each[number])
        for number, key in enumerate(["KFFFF", "K0000", "K0001"])
    ]
    assert results == expected
    assert expected == results == read_batch(answer, keys, 1, 3, queue)
    assert results != read_batch(answer, keys, 2, 3, queue)
    assert (len(results), results[-1], results[1:]) == (3, expected[2], expected[1:])
    assert repr(results) == repr(expected)
    with pytest.raises(IndexError):
        results[3]
    with pytest.raises(RemotingError):
        read_batch(Command(0, {"msgId": places}), keys, 1, 3, queue)


def test_bodies_are_inflated_by_their_flags() -> None:
    plain = b"abc" * 1000
    assert compression.decompress(plain, 0) == plain
    assert compression.decompress(zlib.compress(plain), 0x1) == plain
    assert compression.decompress(compression.compress(plain, 5), compression.ZLIB_FLAGS) == plain
    with pytest.raises(RemotingError):
        compression.decompress(b"nonsense", 0x301)
    with pytest.raises(RemotingError):
        compression.decompress(zlib.compress(plain)[:-9], 0x301)
    zstandard = pytest.importorskip("zstandard")
    assert compression.decompress(zstandard.ZstdCompressor().compress(plain), 0x201) == plain


def test_a_missing_package_for_a_body_is_named() -> None:
    try:
        import lz4.frame  # noqa: F401
    except ImportError:
        with pytest.raises(compression.CompressionUnavailable, match="lz4"):
            compression.decompress(b"x", 0x101)


def test_a_bomb_does_not_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MAX_BODY", 1000)
    with pytest.raises(RemotingError):
        compression.decompress(zlib.compress(bytes(100_000)), 0x301)


def test_tags_become_hashes_and_names() -> None:
    told = Subscription("T", "TagA || TagB", version=5).as_json()
    assert (told["tagsSet"], told["codeSet"]) == (["TagA", "TagB"], [2598919, 2598920])
    assert Subscription("T", " ").as_json()["subString"] == "*"
    with pytest.raises(UsageError):
        Subscription("T", "", "SQL92")


def test_answers_become_typed_errors() -> None:
    def error(code: int, remark: str | None) -> BrokerError:
        return refusal(Command(code, remark=remark), "127.0.0.1:10911")

    missing = error(
        17, "topic[T] not exist, apply first please!\nSee https://rocketmq.apache.org/docs for more"
    )
    assert isinstance(missing, TopicNotExist)
    assert str(missing).endswith("topic[T] not exist, apply first please!")
    assert missing.address in str(missing)
    assert isinstance(error(2, "busy"), SystemBusy)
    assert type(error(999, None)) is BrokerError


def test_offsets_of_a_broadcasting_member_are_kept_in_rocketmqs_file(tmp_path: Path) -> None:
    import asyncio

    queue = MessageQueue("T", "b", 0)

    async def work() -> None:
        offsets = FileOffsets(tmp_path / "somewhere")
        assert await offsets.read(queue) is None
        await offsets.write({queue: 5, MessageQueue("T", "b", 1): 0})
        assert await FileOffsets(tmp_path / "somewhere").read(queue) == 5
        offsets.path.write_text("{")
        with pytest.raises(UsageError, match=r"offsets\.json"):
            await FileOffsets(tmp_path / "somewhere").read(queue)

    asyncio.run(work())


def test_name_servers_come_from_the_call_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert name_servers(None) == ("127.0.0.1:9876",)
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert name_servers(None) == ("a:1", "b:2")
    assert name_servers(["c:3"]) == ("c:3",)
    with pytest.raises(UsageError):
        name_servers(" ; ")


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError):
        ClientSettings(send_timeout=-1)


def test_a_body_that_is_no_json_is_an_error_of_ours() -> None:
    with pytest.raises(RemotingError):
        decode_any(b"{{")


def test_a_forked_child_makes_ids_of_its_own() -> None:
    import subprocess
    import sys

    code = """
import os
from penstock.message import unique_id
unique_id()
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, unique_id().encode())
    os._exit(0)
os.wait()
theirs, ours = os.read(reading, 100).decode(), unique_id()
print(theirs[:20] != ours[:20], len(theirs) == len(ours))
"""
    source = str(Path(compression.__file__).parent.parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["True", "True"]
