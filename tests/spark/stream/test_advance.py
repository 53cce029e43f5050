"""From one batch to the next: nothing skipped, nothing twice, every loss named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DataLost, StoreError
from penstock.spark.advance import advance, beginning, surviving
from penstock.spark.offsets import Places, StreamOffset, begins

T0, T1, NEW = ("t", 0), ("t", 1), ("u", 0)


def all_of(begin: Places, latest: Places) -> Places:
    return {**begin, **latest}


def step(start: StreamOffset, earliest: Any, latest: Any, **options: Any) -> StreamOffset:
    return advance(start, earliest, latest, all_of, **{"fail_on_data_loss": True, **options})


def test_without_news_the_very_same_offset_comes_back() -> None:
    first = StreamOffset.initial({T0: 5})
    assert step(first, {T0: 0}, {T0: 5}) is first
    moved = step(first, {T0: 0}, {T0: 9})
    assert step(moved, {T0: 0}, {T0: 9}) is moved


def test_first_batch_carries_its_beginnings() -> None:
    end = step(StreamOffset.initial({T0: 5}), {T0: 0, NEW: 0}, {T0: 9, NEW: 2})
    assert end == StreamOffset({T0: 9, NEW: 2}, {T0: 5, NEW: 0})
    after = step(end, {T0: 0, NEW: 0}, {T0: 10, NEW: 2})
    assert after == StreamOffset({T0: 10, NEW: 2}, {})


def test_first_batch_after_an_empty_one_carries_them_too() -> None:
    first = StreamOffset.initial({T0: 5})
    end = step(StreamOffset.parse(first.text()), {T0: 0}, {T0: 6})
    assert begins(StreamOffset.initial({T0: 6}), end) == {T0: 5}


def test_new_queue_is_read_from_its_first_message() -> None:
    start = StreamOffset({T0: 5})
    end = step(start, {T0: 0, NEW: 0}, {T0: 5, NEW: 3})
    assert begins(start, end) == {T0: 5, NEW: 0}
    assert end.queues == {T0: 5, NEW: 3}


def test_new_queue_that_lost_its_first_messages_is_a_loss() -> None:
    with pytest.raises(DataLost) as caught:
        step(StreamOffset({T0: 5}), {T0: 0, NEW: 2}, {T0: 5, NEW: 3})
    assert caught.value.ranges == (("u", 0, 0, 2),)


def test_loss_is_an_error_that_names_the_ranges() -> None:
    with pytest.raises(DataLost, match=r"t/0 \[5, 7\), t/1 \[0, 4\)") as caught:
        step(StreamOffset({T0: 5, T1: 0}), {T0: 7, T1: 4}, {T0: 9, T1: 4})
    assert caught.value.ranges == (("t", 0, 5, 7), ("t", 1, 0, 4))
    assert "failOnDataLoss" in caught.value.hint


def test_told_to_go_on_the_batch_begins_at_what_is_there_and_reports_the_rest() -> None:
    start = StreamOffset({T0: 5, T1: 0})
    end = step(start, {T0: 7, T1: 4}, {T0: 9, T1: 4}, fail_on_data_loss=False, pending=(("t", 0, 3, 5),))
    assert end.queues == {T0: 9, T1: 4}
    assert end.lost == (("t", 0, 3, 7), ("t", 1, 0, 4))
    assert begins(start, end) == {T0: 7, T1: 4}


def test_queue_that_went_back_is_an_error_and_continues_at_its_end_if_told() -> None:
    start = StreamOffset({T0: 9})
    with pytest.raises(StoreError, match="t/0 ends at 4, read to 9"):
        step(start, {T0: 0}, {T0: 4})
    end = step(start, {T0: 0}, {T0: 4}, fail_on_data_loss=False)
    assert (end.queues, begins(start, end)) == ({T0: 4}, {T0: 4})
    assert step(end, {T0: 0}, {T0: 6}).queues == {T0: 6}


def test_queue_that_vanished_keeps_its_place() -> None:
    start = StreamOffset({T0: 9, T1: 3})
    assert step(start, {T1: 0}, {T1: 4}).queues == {T0: 9, T1: 4}


def test_waiting_for_more_gives_the_start() -> None:
    start = StreamOffset({T0: 9})
    assert advance(start, {T0: 0}, {T0: 12}, lambda b, e: None, fail_on_data_loss=True) is start


def test_batch_whose_messages_went_away_after_planning_says_which() -> None:
    ranges, lost = surviving({T0: 5, T1: 0, NEW: 1}, {T0: 9, T1: 4, NEW: 1}, {T0: 7, T1: 6, NEW: 0})
    assert ranges == {T0: (7, 9)}
    assert lost == (("t", 0, 5, 7), ("t", 1, 0, 4))
    assert surviving({T0: 5}, {T0: 9}, {}) == ({}, (("t", 0, 5, 9),))


STORE = st.lists(st.tuples(st.sampled_from([T0, T1, NEW]), st.integers(0, 5), st.integers(0, 3)), max_size=20)


@given(STORE)
def test_every_offset_is_read_or_reported_lost_exactly_once(events: list[Any]) -> None:
    """Producers append, retention removes; a replay from the logged offsets gives the same batches."""
    earliest: dict[Any, int] = {}
    latest: dict[Any, int] = {}
    place = StreamOffset.initial({})
    seen: dict[Any, list[int]] = {T0: [], T1: [], NEW: []}
    for key, added, removed in events:
        if added or key in latest:
            latest[key] = latest.get(key, 0) + added
            earliest[key] = min(latest[key], earliest.get(key, 0) + removed)
        end = step(place, earliest, latest, fail_on_data_loss=False)
        logged = StreamOffset.parse(end.text())
        if end is not place:
            for topic, queue, begin, stop in logged.lost:
                seen[topic, queue] += range(begin, stop)
            for queue_key, begin in begins(StreamOffset.parse(place.text()), logged).items():
                seen[queue_key] += range(begin, logged.queues[queue_key])
        place = logged
    assert {key: offsets for key, offsets in seen.items() if offsets} == {
        key: list(range(end)) for key, end in latest.items() if end
    }
    assert beginning(place, earliest, latest).lost == ()
