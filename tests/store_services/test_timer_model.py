"""A timer under any sequence of puts, time, restarts and kills."""

from __future__ import annotations

from collections import Counter

import pytest
from fakestore import FakeStore
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_timer import open_timer, put

from penstock.clock import ManualClock
from penstock.config import StoreConfig
from penstock.files.memory import MemoryStorage

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 60_000)),
        st.tuples(st.just("put"), st.integers(1, 60_000)),
        st.tuples(st.just("pass"), st.integers(1, 9_000)),
        st.tuples(st.just("stop"), st.integers(0, 9_000)),
        st.tuples(st.just("kill"), st.integers(0, 9_000)),
        st.tuples(st.just("back"), st.integers(1, 90_000)),
    ),
    max_size=40,
)


@pytest.fixture(autouse=True, scope="module")
def small_wheel() -> object:
    """A wheel of twenty minutes, or every example would copy the file of a fortnight."""
    patch = pytest.MonkeyPatch()
    slots = 2 * 640
    for module in ("timerwheel", "timerrecovery", "timer"):
        for name, value in (("SLOTS", slots), ("SLOTS_TOTAL", slots // 2), ("SIZE", slots * 32)):
            patch.setattr(f"penstock.store.{module}.WHEEL_{name}", value, raising=False)
    yield
    patch.undo()


# Set back by a moment and killed: the slot that was emptied already comes again.
@example(steps=[("put", 1), ("pass", 877), ("back", 1), ("kill", 0)], window=2, precision=1000)
@settings(max_examples=60)
@given(steps=STEPS, window=st.sampled_from([2, 7, 30, 500]), precision=st.sampled_from([1000, 200]))
def test_every_message_fires_once_and_none_early_whatever_happens(
    steps: list[tuple[str, int]], window: int, precision: int
) -> None:
    clock = ManualClock(1_700_000_000_123)
    storage = MemoryStorage(clock=clock)
    storage.makedirs("/store/config")
    config = StoreConfig(
        timer_roll_window_slot=window, timer_precision_ms=precision, mapped_file_size_timer_log=300
    )
    store = FakeStore(clock, storage, config)
    timer = open_timer(store)
    timer.run_once()
    deliver_at: dict[bytes, int] = {}
    for number, (kind, amount) in enumerate(steps):
        if kind == "put":
            body = str(number).encode()
            deliver_at[body] = clock.now_ms() + amount
            put(store, body, amount)
            timer.run_once()
        elif kind == "pass":
            clock.advance(amount)
            timer.run_once()
        elif kind == "back":
            clock.set(clock.now_ms() - amount)
            timer.run_once()
        else:
            (timer.close if kind == "kill" else timer.stop)()
            clock.advance(amount)
            timer = open_timer(store)
            timer.run_once()
    for _ in range(600):
        clock.advance(1000)
        timer.run_once()
    timer.close()
    counts = Counter(store.bodies("t"))
    assert counts.keys() == deliver_at.keys()
    assert all(count == 1 for count in counts.values())
    fired = [record for record in store.log if record.topic == "t"]
    assert all(record.store_timestamp >= deliver_at[record.body] for record in fired)
