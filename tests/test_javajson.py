"""JSON as RocketMQ writes it: read whatever it wrote, write what it would write."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.format.javajson import MAX_DEPTH, JsonError, parse, render

CONFIG = Path(__file__).parent / "data" / "config"
PRETTY = [
    "consumerOffset",
    "delayOffset",
    "topics",
    "subscriptionGroup",
    "consumerFilter",
    "consumerOrderInfo",
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
)
keys = st.text() | st.integers(-(2**31), 2**31 - 1)
documents = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=40)


@pytest.mark.parametrize("name", PRETTY)
def test_file_of_a_real_broker_is_written_back_byte_for_byte(name: str) -> None:
    text = (CONFIG / f"{name}.json").read_text()
    assert render(parse(text)) == text


@pytest.mark.parametrize("name", ["timermetrics", "transactionMetrics"])
def test_compact_file_of_a_real_broker_is_written_back_byte_for_byte(name: str) -> None:
    text = (CONFIG / name).read_text()
    assert render(parse(text), pretty=False, ascii_only=True) == text


@given(documents, st.booleans(), st.booleans())
def test_what_is_written_is_read_back(value: object, pretty: bool, ascii_only: bool) -> None:
    text = render(value, pretty=pretty, ascii_only=ascii_only)
    assert parse(text) == value
    assert not ascii_only or text.isascii()


def test_objects_as_keys_are_read_and_written_as_rocketmq_does() -> None:
    text = '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"maxOffset":5},{"queueId":1}:{}}}'
    table = parse(text)["offsetTable"]
    assert [dict(key) for key in table] == [{"brokerName": "b", "queueId": 0, "topic": "T"}, {"queueId": 1}]
    assert render(parse(text), pretty=False) == text
    for refused in ('{{"a":{}}:1}', '{{"a":[1]}:1}', '{{{"a":1}:2}:1}', "{{:1}", "{{}1}"):
        with pytest.raises(JsonError):
            parse(refused)


@given(st.text(alphabet="{}[]:,\"'\\u0123-.eE \n\tntfalsx"))
def test_any_text_is_a_value_or_an_error_with_its_place(text: str) -> None:
    try:
        value = parse(text)
    except JsonError as error:
        assert 0 <= error.position <= len(text)
    else:
        assert parse(render(value)) == value or value != value


def test_integer_keys_without_quotes_are_numbers_and_quoted_ones_text() -> None:
    assert parse('{0:15,\n\t1 : 7,"2":3}') == {0: 15, 1: 7, "2": 3}


def test_liberties_of_javas_parser_are_taken() -> None:
    assert parse("\ufeff{name:'it''s'[0:0] , }".replace("''s'[0:0]", "s'")) == {"name": "its"}
    assert parse("[1,2,]") == [1, 2]
    assert parse(r'"\x41\v\'\ud83d\ude00\u00e9"') == "A\v'\U0001f600é"


def test_later_key_wins() -> None:
    assert parse('{"a":1,"a":2}') == {"a": 2}


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("{", 1),
        ('{"a":1', 6),
        ('{"a":1}\x00\x00', 7),
        ('{"a":1}1}', 7),
        ('{"a" 1}', 5),
        ('["x', 1),
        ("[1 2]", 3),
        ("[,]", 1),
        ("[1,,2]", 3),
        ("{1.5:2}", 4),
        ("\x00\x00\x00\x00", 0),
        ("nul", 0),
        (r'["\q"]', 1),
        ("[1e999]", 1),
    ],
)
def test_fault_is_located(text: str, position: int) -> None:
    with pytest.raises(JsonError) as caught:
        parse(text)
    assert caught.value.position == position


def test_deep_nesting_is_refused_not_followed() -> None:
    assert parse("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    with pytest.raises(JsonError, match="nested deeper"):
        parse("[" * 1_000_000)
    value: list[object] = []
    for _ in range(1000):
        value = [value]
    with pytest.raises(ValueError, match="nested deeper"):
        render(value)


def test_hostile_tokens_are_refused_in_one_pass() -> None:
    with pytest.raises(JsonError, match="digits"):
        parse("1" * 1_000_000)
    with pytest.raises(JsonError, match="without an end"):
        parse('"' + "a\\\\" * 1_000_000)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_number_without_json_is_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        render(value)


def test_foreign_object_is_not_written() -> None:
    with pytest.raises(TypeError, match="no JSON"):
        render({"a": object()})
    with pytest.raises(TypeError, match="key"):
        render({None: 1})
