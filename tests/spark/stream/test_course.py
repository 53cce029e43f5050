"""A query's way through a store, as Spark drives it, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.clock import ManualClock
from penstock.errors import DataLost, StoreError
from penstock.spark.course import Course, DataLossWarning
from penstock.spark.offsets import Places, QueueKey, StreamOffset
from penstock.spark.options import ReadOptions

T0, T1 = ("t", 0), ("t", 1)


class FakeStore:
    """Queues in memory: a log position and a size per message."""

    uri = "/fake"

    def __init__(self, start: str | dict[QueueKey, int] = "earliest") -> None:
        self.queues: dict[QueueKey, list[tuple[int, int, int]]] = {}
        self.low: dict[QueueKey, int] = {}
        self.start = start
        self.end = 0
        self.version = 0
        self.looks = 0
        self._seen = -1

    def put(self, key: QueueKey, count: int = 1, size: int = 10) -> None:
        for _ in range(count):
            units = self.queues.setdefault(key, [])
            units.append((len(units), self.end, size))
            self.end += size
        self.version += 1

    def expire(self, key: QueueKey, low: int) -> None:
        self.low[key] = low
        self.version += 1

    def refresh(self, *, thoroughly: bool = False) -> bool:
        changed, self._seen = self._seen != self.version, self.version
        return changed

    def earliest(self) -> Places:
        self.looks += 1
        return {key: self.low.get(key, 0) for key in self.queues}

    def latest(self) -> Places:
        return {key: len(units) for key, units in self.queues.items()}

    def starts(self) -> Places:
        if isinstance(self.start, dict):
            return {**self.earliest(), **self.start}
        return self.latest() if self.start == "latest" else self.earliest()

    def units(self, key: QueueKey, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        return iter(self.queues[key][begin:end])

    def first_place(self, key: QueueKey, offset: int) -> int:
        return self.queues[key][offset][1]


def course(store: FakeStore, clock: ManualClock | None = None, **options: Any) -> Course:
    return Course(ReadOptions(path="/fake", **options), store, clock=clock)


def through_spark(offset: dict[str, Any]) -> dict[str, Any]:
    """Spark keeps the text of an offset, and hands back what it parses from it."""
    parsed: dict[str, Any] = json.loads(json.dumps(offset))
    return parsed


def run(
    way: Course, store: FakeStore, place: dict[str, Any] | None = None
) -> tuple[list[Any], dict[str, Any]]:
    """Batches until there are no more: the ranges of each, and where the query stands."""
    place = through_spark(way.initial() if place is None else place)
    batches = []
    while (end := through_spark(way.latest(place))) != place:
        batches.append(way.ranges(place, end))
        way.commit(end)
        place = end
    return batches, place


def test_batches_cover_what_there_is_and_then_nothing() -> None:
    store = FakeStore()
    store.put(T0, 3)
    store.put(T1, 2)
    way = course(store)
    batches, place = run(way, store)
    assert batches == [{T0: (0, 3), T1: (0, 2)}]
    store.put(T1)
    batches, _ = run(way, store, place)
    assert batches == [{T1: (2, 3)}]


def test_killed_in_batch_0_with_start_latest_nothing_is_lost() -> None:
    """Spark logs the end of batch 0, dies, and asks a new process for the initial offset."""
    store = FakeStore("latest")
    store.put(T0, 15)
    before = course(store)
    start = through_spark(before.initial())
    store.put(T0, 5)
    logged = through_spark(before.latest(start))
    for more in (0, 10):
        store.put(T0, more)
        after = course(store)
        assert after.ranges(through_spark(after.initial()), logged) == {T0: (15, 20)}


def test_start_is_the_same_however_often_it_is_asked() -> None:
    store = FakeStore("latest")
    store.put(T0, 15)
    way = course(store)
    first = way.initial()
    store.put(T0, 5)
    assert way.initial() == first


def test_kept_start_survives_a_death_before_anything_was_logged(tmp_path: Path) -> None:
    store = FakeStore("latest")
    store.put(T0, 15)
    first = course(store, stateLocation=str(tmp_path)).initial()
    store.put(T0, 5)
    way = course(store, stateLocation=str(tmp_path))
    assert way.initial() == first
    assert run(way, store)[0] == [{T0: (15, 20)}]


def test_start_behind_the_end_is_an_error() -> None:
    store = FakeStore({T0: 7})
    store.put(T0, 5)
    with pytest.raises(StoreError, match=r"begin at offset 7 of queue t/0, which ends at 5"):
        course(store).initial()


def test_start_that_retention_took_is_a_loss() -> None:
    store = FakeStore({T0: 1})
    store.put(T0, 5)
    store.expire(T0, 3)
    way = course(store)
    with pytest.raises(DataLost) as caught:
        way.latest(way.initial())
    assert caught.value.ranges == (("t", 0, 1, 3),)


def test_available_now_ends_at_the_frozen_target_while_a_producer_appends() -> None:
    store = FakeStore()
    store.put(T0, 10)
    way = course(store, maxOffsetsPerTrigger=3)
    way.freeze_target()
    place = way.initial()
    seen = 0
    while (end := way.latest(place)) != place:
        (begin, stop) = way.ranges(place, end)[T0]
        seen += stop - begin
        place = end
        store.put(T0, 4)
        store.put(("new", 0))
    assert (seen, place["q"]) == (10, {"t": {"0": 10}})
    assert way.report()["q"] == {"new": {"0": 4}, "t": {"0": 26}}


def test_available_now_from_latest_reads_nothing_and_ends() -> None:
    """The target is taken before the start is: a message between the two must not look like a rewind."""
    store = FakeStore("latest")
    store.put(T0, 10)
    way = course(store)
    way.freeze_target()
    store.put(T0, 1)
    store.put(T1, 1)
    place = way.initial()
    assert way.latest(place) == place


def test_available_now_takes_less_than_the_least_batch_at_its_end() -> None:
    store = FakeStore()
    store.put(T0, 10)
    way = course(store, minOffsetsPerTrigger=7, maxOffsetsPerTrigger=8)
    way.freeze_target()
    assert [r[T0] for r in run(way, store)[0]] == [(0, 8), (8, 10)]


def test_small_batch_waits_for_more_or_for_its_delay() -> None:
    store, clock = FakeStore(), ManualClock()
    store.put(T0, 3)
    way = course(store, clock, minOffsetsPerTrigger=5, maxTriggerDelay=60.0)
    batches, place = run(way, store)
    assert batches == [{T0: (0, 3)}], "the first batch does not wait"
    store.put(T0, 4)
    assert way.latest(place) == place
    clock.advance(59_000)
    assert way.latest(place) == place
    clock.advance(1_000)
    batches, place = run(way, store, place)
    assert batches == [{T0: (3, 7)}], "the delay is over"
    store.put(T0, 5)
    assert run(way, store, place)[0] == [{T0: (7, 12)}], "enough has come"


def test_trigger_once_takes_everything_whatever_the_limits() -> None:
    store = FakeStore()
    store.put(T0, 100)
    way = course(store, maxOffsetsPerTrigger=3, maxBytesPerTrigger=10)
    assert way.latest(way.initial(), everything=True)["q"] == {"t": {"0": 100}}


def test_limits_in_offsets_and_bytes_hold_together() -> None:
    store = FakeStore()
    for _ in range(10):
        store.put(T0, size=100)
        store.put(T1, size=1)
    way = course(store, maxOffsetsPerTrigger=6, maxBytesPerTrigger=250)
    batches, place = run(way, store)
    assert place["q"] == {"t": {"0": 10, "1": 10}}
    for batch in batches:
        units = [u for key, span in batch.items() for u in store.queues[key][slice(*span)]]
        assert len(units) <= 6
        assert sum(size for _, _, size in units) <= 250


def test_new_queue_is_read_from_its_first_message_in_a_replay_too() -> None:
    store = FakeStore("latest")
    store.put(T0, 5)
    way = course(store)
    place = way.initial()
    store.put(T1, 3)
    end = through_spark(way.latest(place))
    assert course(store).ranges(course(store).initial(), end) == {T1: (0, 3)}


def test_loss_after_planning_fails_with_the_range_or_is_reported_in_the_next_batch() -> None:
    store = FakeStore()
    store.put(T0, 10)
    strict, lenient = course(store), course(store, failOnDataLoss=False)
    place = strict.initial()
    end = strict.latest(place)
    store.expire(T0, 4)
    with pytest.raises(DataLost, match=r"t/0 \[0, 4\)"):
        strict.ranges(place, end)
    with pytest.warns(DataLossWarning, match=r"t/0 \[0, 4\)"):
        assert lenient.ranges(place, end) == {T0: (4, 10)}
    store.put(T0, 1)
    with pytest.warns(DataLossWarning):
        following = lenient.latest(end)
    assert StreamOffset.parse(following).lost == (("t", 0, 0, 4),)


def test_loss_before_planning_is_in_the_offset() -> None:
    store = FakeStore()
    store.put(T0, 2)
    way = course(store, failOnDataLoss=False)
    _, place = run(way, store)
    store.put(T0, 10)
    store.expire(T0, 4)
    with pytest.warns(DataLossWarning, match=r"t/0 \[2, 4\)"):
        end = way.latest(place)
    assert StreamOffset.parse(end).lost == (("t", 0, 2, 4),)
    assert way.ranges(place, through_spark(end)) == {T0: (4, 12)}


def test_idle_polling_does_not_look_at_queues() -> None:
    store = FakeStore()
    store.put(T0, 10)
    way = course(store)
    _, place = run(way, store)
    looks = store.looks
    for _ in range(100):
        assert way.latest(place) is place
    assert store.looks == looks


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from([T0, T1, ("u", 0)]), st.integers(1, 5)),
        st.tuples(st.just("batch"), st.booleans(), st.just(0)),
        st.tuples(st.just("restart"), st.booleans(), st.just(0)),
    ),
    max_size=40,
)


@given(EVENTS, st.sampled_from([{}, {"maxOffsetsPerTrigger": 2}, {"maxBytesPerTrigger": 25}]))
def test_every_message_after_the_start_is_read_exactly_once_over_crashes(
    events: list[Any], options: dict[str, int]
) -> None:
    """Spark's offset and commit log, with deaths between any two steps; a replayed batch reads the same."""
    store = FakeStore("latest")
    store.put(T0, 3)
    way = course(store, **options)
    log: list[dict[str, Any]] = []
    committed = 0
    read: dict[int, Any] = {}

    def batch(number: int) -> None:
        nonlocal committed
        start = log[number - 1] if number else through_spark(way.initial())
        ranges = way.ranges(start, log[number])
        assert read.setdefault(number, ranges) == ranges
        committed = number + 1

    for kind, what, count in events:
        if kind == "put":
            store.put(what, count)
        elif kind == "restart":
            way = course(store, **options)
        elif committed < len(log):
            batch(committed)
        else:
            start = log[-1] if log else through_spark(way.initial())
            end = through_spark(way.latest(start))
            if end != start or not log:
                log.append(end)
                if what:
                    batch(len(log) - 1)
    if not log:
        return
    while committed < len(log):
        batch(committed)
    rest, place = run(course(store, **options), store, log[-1])
    assert StreamOffset.parse(place).queues == store.latest()
    begun = StreamOffset.parse(log[0]).origin
    spans: dict[QueueKey, list[tuple[int, int]]] = {}
    for ranges in [*(read[number] for number in sorted(read)), *rest]:
        for key, span in ranges.items():
            spans.setdefault(key, []).append(span)
    for key, end in store.latest().items():
        pieces = spans.get(key, [])
        edges = [begun.get(key, 0), *(edge for piece in pieces for edge in piece), end]
        assert edges[::2] == edges[1::2], f"{key}: {pieces}"
