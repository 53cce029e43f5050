"""Property strings: what goes in comes out, with the quirks of the original."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.message import Message, encode_properties, parse_properties
from penstock.message.properties import (
    delete_property,
    message_properties,
    message_property_bytes,
    parse_number,
)

words = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=12
)


@given(st.dictionaries(words, words))
def test_properties_round_trip(properties: dict[str, str]) -> None:
    assert parse_properties(encode_properties(properties)) == properties


@given(st.binary())
def test_any_bytes_parse_to_pairs_with_name_and_value(data: bytes) -> None:
    assert all(name and value for name, value in parse_properties(data).items())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02a\x01c\x02", {"a": "c"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x02b\x01c\x02", {"b": "c"}),
        (b"\x01b\x02a\x01\x02", {}),
        (b"\x02\x02\x02", {}),
    ],
)
def test_the_parser_keeps_the_quirks_of_the_original(data: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(data) == expected


def test_an_empty_map_is_no_bytes() -> None:
    assert encode_properties({}) == b""


def test_text_that_utf8_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        encode_properties({"a": "\ud800"})


@given(st.dictionaries(words, words), words)
def test_a_deleted_property_is_gone_and_the_others_stay(properties: dict[str, str], name: str) -> None:
    data = encode_properties(properties | {name: "x"})
    properties.pop(name, None)
    assert parse_properties(delete_property(data, name)) == properties


def test_deleting_looks_at_whole_names() -> None:
    assert delete_property(b"xA\x01b\x02A\x01c\x02AA\x01d", "A") == b"xA\x01b\x02AA\x01d"
    assert delete_property(b"A\x01b", "A") == b""
    assert delete_property(b"", "A") == b""


def test_fields_of_a_message_win_over_its_properties() -> None:
    message = Message(
        "t",
        b"",
        "tag",
        "k1 k2",
        properties={"TAGS": "other", "x": "1", "DELAY": "9", "__RMQ.TRANSIENT.a": "b"},
        unique_key="u",
        delay_level=3,
        wait=False,
    )
    assert list(message_properties(message).items()) == [
        ("KEYS", "k1 k2"),
        ("TAGS", "tag"),
        ("UNIQ_KEY", "u"),
        ("WAIT", "false"),
        ("DELAY", "3"),
        ("x", "1"),
    ]
    empty = Message("t", b"", "", properties={"TAGS": "other"})
    assert message_properties(empty) == {}


def test_properties_stay_when_their_field_is_not_set() -> None:
    message = Message("t", b"", properties={"TAGS": "a", "WAIT": "true", "DELAY": "2"})
    assert message_properties(message) == {"TAGS": "a", "WAIT": "true", "DELAY": "2"}


def test_raw_properties_win_over_everything() -> None:
    message = Message("t", b"", "tag", raw_properties=b"a\x01b\x02")
    assert message_property_bytes(message) == b"a\x01b\x02"


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("-7", -7), ("+7", 7), ("007", 7), ("9223372036854775807", (1 << 63) - 1)]
    + [(text, None) for text in (None, "", "-", " 7", "7 ", "1_0", "٣", "9223372036854775808", "1" * 5000)],
)
def test_numbers_are_read_strictly(text: str | None, value: int | None) -> None:
    assert parse_number(text) == value


def test_make_takes_text_and_lists_of_keys() -> None:
    message = Message.make("t", "häuser", keys=["a", "b"], tags="x")
    assert (message.body, message.keys, message.tags) == ("häuser".encode(), "a b", "x")


def test_the_order_of_fields_is_the_one_the_engine_reads() -> None:
    assert Message.__struct_fields__ == (
        "topic",
        "body",
        "tags",
        "keys",
        "queue_id",
        "properties",
        "unique_key",
        "flag",
        "sys_flag",
        "born_timestamp",
        "born_host",
        "store_host",
        "reconsume_times",
        "prepared_transaction_offset",
        "delay_level",
        "wait",
        "raw_properties",
    )
