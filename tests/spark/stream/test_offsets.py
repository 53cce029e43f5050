"""The offset of a stream survives the checkpoint, and a batch can be replayed from it alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StoreError, StoreVersion
from penstock.spark.offsets import StreamOffset, begins, merge_lost, starting_json

KEYS = st.tuples(st.text("abc%_-ü", min_size=1, max_size=8), st.integers(0, 2**31 - 1))
PLACES = st.dictionaries(KEYS, st.integers(0, 2**63 - 1), max_size=8)


@given(PLACES, st.data())
def test_offset_survives_the_checkpoint(queues: dict[Any, int], data: st.DataObject) -> None:
    known = sorted(queues)
    origin = {
        key: queues[key] for key in data.draw(st.sets(st.sampled_from(known)) if known else st.just(()))
    }
    lost = merge_lost((*key, 0, queues[key]) for key in origin)
    offset = StreamOffset(queues, origin, lost)
    assert StreamOffset.parse(offset.text()) == offset
    # Spark parses the text and hands us the object, and compares the text of what we give back.
    assert StreamOffset.parse(json.loads(json.dumps(offset.to_json()))).to_json() == offset.to_json()


@given(st.permutations([("b", 1), ("a", 10), ("a", 2), ("b", 0)]))
def test_equal_places_are_equal_texts(order: list[tuple[str, int]]) -> None:
    offset = StreamOffset({key: key[1] for key in order})
    assert offset.text() == '{"v":1,"q":{"a":{"2":2,"10":10},"b":{"0":0,"1":1}}}'
    assert starting_json(offset.queues) == '{"a":{"2":2,"10":10},"b":{"0":0,"1":1}}'


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        '{"v":1}',
        '{"v":1,"q":[]}',
        '{"v":1,"q":{"t":5}}',
        '{"v":1,"q":{"t":{"x":5}}}',
        '{"v":1,"q":{"t":{"01":5}}}',
        '{"v":1,"q":{"t":{"0":-1}}}',
        '{"v":1,"q":{"t":{"0":true}}}',
        '{"v":1,"q":{"t":{"0":1.5}}}',
        '{"v":1,"q":{"t":{"0":9223372036854775808}}}',
        '{"v":1,"q":{},"from":{"t":{"0":5}}}',
        '{"v":1,"q":{},"lost":{"t":{"0":[5]}}}',
        '{"v":1,"q":{},"path":3}',
        '{"v":1,"q":{},"more":{}}',
    ],
)
def test_anything_else_is_refused_with_a_hint(content: str) -> None:
    with pytest.raises(StoreError, match="offset can't be read") as caught:
        StreamOffset.parse(content)
    assert "checkpoint" in caught.value.hint


@pytest.mark.parametrize("version", [0, 2, True, None, "1"])
def test_offset_of_another_version_is_refused(version: Any) -> None:
    with pytest.raises(StoreVersion, match="version"):
        StreamOffset.parse({"v": version, "q": {}})


def test_replay_of_the_first_batch_begins_where_it_began() -> None:
    """Spark asks for the initial offset again; the logged end wins over today's answer."""
    end = StreamOffset({("t", 0): 20}, origin={("t", 0): 15})
    for today in (15, 20, 30):
        assert begins(StreamOffset.initial({("t", 0): today}), end) == {("t", 0): 15}


def test_replay_of_an_empty_first_batch_reads_nothing() -> None:
    end = StreamOffset.initial({("t", 0): 15})
    assert begins(StreamOffset.initial({("t", 0): 30}), end) == {("t", 0): 15}


def test_batch_that_runs_backwards_is_an_error_not_an_empty_batch() -> None:
    with pytest.raises(StoreError, match="behind its end 20"):
        begins(StreamOffset({("t", 0): 30}), StreamOffset({("t", 0): 20}))


def test_batch_with_a_queue_from_nowhere_is_an_error() -> None:
    with pytest.raises(StoreError, match="no beginning"):
        begins(StreamOffset({}), StreamOffset({("t", 0): 20}))


def test_batch_that_forgets_a_queue_is_an_error() -> None:
    with pytest.raises(StoreError, match="t/1"):
        begins(StreamOffset({("t", 0): 1, ("t", 1): 1}), StreamOffset({("t", 0): 20}))


def test_lost_ranges_that_touch_become_one() -> None:
    ranges = [("t", 0, 5, 9), ("t", 0, 0, 5), ("t", 1, 0, 3), ("t", 0, 20, 21), ("t", 0, 7, 7)]
    assert merge_lost(ranges) == (("t", 0, 0, 9), ("t", 0, 20, 21), ("t", 1, 0, 3))
