"""The compiled readers of headers and properties say what the plain ones say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._native.batchbody import split_batch
from penstock._native.pullheader import read_pull
from penstock._native.sendheader import LONG, SHORT, finish_properties, read_header
from penstock.broker import pullheader, sendheader
from penstock.broker.properties import PropertyRules, parse_text
from penstock.config import BrokerConfig
from penstock.errors import RequestRefused
from penstock.format.batch import BatchBlock, decode_client_batch, encode_client_batch
from penstock.format.malformed import Malformed
from penstock.message import parse_properties

RULES = PropertyRules(BrokerConfig())
TEXT = st.text(max_size=8)
NUMBER = st.one_of(
    st.integers(-(2**70), 2**70).map(str), st.sampled_from(["", "0", "-", "+1", "1_0", "٣", " 1"]), TEXT
)
SEND = ("group", "topic", "default_topic", "default_queue_nums", "queue_id", "sys_flag", "born_timestamp")
SEND_REST = ("flag", "properties", "reconsume_times", "unit_mode", "max_reconsume_times", "batch")
PULL = ("group", "topic", "queue_id", "offset", "count", "sys_flag", "commit_offset", "suspend_ms")


@given(st.data(), st.sampled_from([LONG, SHORT]))
def test_a_send_header_reads_the_same_both_ways_or_is_left_to_the_close_reader(
    data: st.DataObject, names: tuple[str, ...]
) -> None:
    words = {0, 1, 2, 8, 10, 12}
    usual = st.integers(0, 10**9).map(str)
    fields = {
        name: data.draw(TEXT if place in words else st.one_of(usual, NUMBER))
        for place, name in enumerate(names)
        if data.draw(st.integers(0, 9)) or place == 0
    }
    try:
        quick = read_header(fields, names)
    except (KeyError, ValueError):
        return
    close = sendheader.read_closely(fields, names)
    for name in (*SEND, *SEND_REST):
        assert getattr(quick, name) == getattr(close, name), name


@given(st.data())
def test_a_pull_header_reads_the_same_both_ways_or_is_left_to_the_close_reader(data: st.DataObject) -> None:
    numbers = ("queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis")
    usual = st.integers(-(10**9), 10**9).map(str)
    fields = {name: data.draw(st.one_of(usual, NUMBER)) for name in numbers}
    fields |= {name: data.draw(TEXT) for name in ("consumerGroup", "topic")}
    fields |= {
        name: data.draw(TEXT) for name in ("subscription", "expressionType") if data.draw(st.booleans())
    }
    try:
        quick = read_pull(fields)
    except (KeyError, ValueError):
        return
    close = pullheader.read_closely(fields)
    for name in (*PULL, "subscription", "expression_type"):
        assert getattr(quick, name) == getattr(close, name), name


@given(st.dictionaries(TEXT, NUMBER))
def test_no_header_breaks_the_readers(fields: dict[str, str]) -> None:
    for read in (lambda: sendheader.send_header(fields, SHORT), lambda: pullheader.pull_header(fields)):
        try:
            read()
        except RequestRefused as refused:
            assert refused.code == 1


NAMES = st.sampled_from(
    ["UNIQ_KEY", "WAIT", "KEYS", "TAGS", "POP_CK", "CLUSTER", "DELAY", "TRAN_MSG", "x", "é", ""]
)
VALUES = st.sampled_from(["a", "false", "FALSE", "true", "", "1", "b\x01c", "日本"])
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=5).map(
    lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs)
)


@given(st.one_of(PAIRS, PAIRS.map(lambda text: text[:-1]), st.text(alphabet="\x01\x02UNIQ_KEY", max_size=12)))
def test_finished_properties_read_back_as_the_plain_way_makes_them(text: str) -> None:
    quick = finish_properties(text, RULES.suffix)
    if quick is None:
        return
    plain = RULES.rebuilt(parse_text(text))
    assert parse_properties(quick[0]) == parse_properties(plain[0])
    assert (quick[1], quick[3]) == (plain[1], plain[3])
    assert not quick[2] or plain[2]
    for asking in ("DELAY", "TRAN_MSG"):
        assert quick[2] or asking not in parse_text(text)


BLOCKS = st.lists(
    st.builds(
        BatchBlock,
        body=st.binary(max_size=40),
        properties_bytes=st.binary(max_size=40),
        flag=st.integers(-(2**31), 2**31 - 1),
    ),
    max_size=4,
)


@given(BLOCKS, st.integers(0, 30), st.binary(max_size=30))
def test_a_batch_is_taken_apart_as_the_plain_way_does(
    blocks: list[BatchBlock], cut: int, junk: bytes
) -> None:
    whole = encode_client_batch(blocks)
    for data in (whole, whole[: len(whole) - cut], whole + junk, junk):
        try:
            expected = [
                (block.flag, block.body, block.properties_bytes) for block in decode_client_batch(data)
            ]
        except Malformed:
            with pytest.raises(ValueError, match="bytes"):
                split_batch(data)
        else:
            assert split_batch(memoryview(data)) == expected
