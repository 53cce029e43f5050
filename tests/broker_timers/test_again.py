"""Timers over stops, kills and clocks that jump: never early, never lost, never twice."""

from __future__ import annotations

from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_timers.timing import NOW, Stage, play, timed
from penstock.clock import ManualClock

PLACES = {"killed": True, "stopped": False}


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("killed", PLACES.values(), ids=PLACES)
def test_s20_timers_go_on_after_the_broker_comes_back(tmp_path: Path, flush: str, killed: bool) -> None:
    clock = ManualClock(NOW)

    async def before(stage: Stage) -> None:
        for number in range(40):
            text = timed(f"K{number}", TIMER_DELIVER_MS=NOW + 100 + 250 * number)
            assert (await stage.client.send("T", str(number).encode(), properties=text)).code == 0
        stage.pass_time(4655)  # in the middle: some are out, some of them not yet in any checkpoint
        assert 0 < len(await stage.delivered()) < 40

    async def after(stage: Stage) -> None:
        clock.advance(2000)
        stage.pass_time(10_000)
        found = await stage.delivered()
        assert Counter(record.body for record in found) == Counter(str(n).encode() for n in range(40))
        for record in found:
            assert record.store_timestamp >= int(record.properties["TIMER_DELIVER_MS"])

    play(tmp_path, before, clock=clock, killed=killed, flush=flush)
    play(tmp_path, after, clock=clock, killed=killed, flush=flush)
    play(tmp_path, after, clock=clock, flush=flush)


def test_s20_a_slot_that_is_left_in_the_middle_is_finished_and_not_repeated(tmp_path: Path) -> None:
    """A disk that refuses in the middle of a tick, then a stop: the next run delivers the rest."""
    clock = ManualClock(NOW)

    async def before(stage: Stage) -> None:
        for number in range(20):
            text = timed(f"K{number}", TIMER_DELIVER_MS=NOW + 3000)
            await stage.client.send("T", str(number).encode(), properties=text)
        stage.pass_time(2000)
        store, real = stage.broker.store, stage.broker.store.append_records
        left = [7]

        class Busy:
            ok = False
            status = "OS_PAGE_CACHE_BUSY"

        def append_records(records: bytearray, slots: array[int], queues: Any) -> int:
            count, left[0] = left[0], 0
            end = 0
            for _ in range(count):
                end += int.from_bytes(records[end : end + 4], "big")
            return real(records[:end], slots[:count], queues) if count else 0

        store.append_records = append_records  # type: ignore[method-assign, assignment]
        store.put_raw = lambda message: Busy()  # type: ignore[method-assign, assignment, return-value]
        stage.pass_time(2000)
        assert len(await stage.delivered()) == 7

    async def after(stage: Stage) -> None:
        stage.pass_time(2000)
        assert await stage.bodies() == [str(number).encode() for number in range(20)]

    play(tmp_path, before, clock=clock)
    play(tmp_path, after, clock=clock)


JUMPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 30_000)),
        st.tuples(st.just("send"), st.integers(1, 30_000)),
        st.tuples(st.just("pass"), st.integers(1, 9000)),
        st.tuples(st.just("jump"), st.integers(-200_000, 200_000)),
    ),
    min_size=2,
    max_size=20,
)


@settings(max_examples=8, deadline=None)
@given(jumps=JUMPS)
def test_s20_a_clock_that_jumps_back_and_forth_loses_and_repeats_nothing(
    tmp_path_factory: pytest.TempPathFactory, jumps: list[tuple[str, int]]
) -> None:
    async def scene(stage: Stage) -> None:
        sent: dict[bytes, int] = {}
        for number, (kind, amount) in enumerate(jumps):
            if kind == "send":
                body = str(number).encode()
                sent[body] = stage.clock.now_ms() + amount
                text = timed(f"K{number}", TIMER_DELIVER_MS=sent[body])
                assert (await stage.client.send("T", body, properties=text)).code == 0
            elif kind == "pass":
                stage.clock.advance(amount)
            else:
                stage.clock.set(stage.clock.now_ms() + amount)
            stage.step()
        stage.pass_time(20 * 230_000, step=7000)
        found = await stage.delivered()
        assert Counter(record.body for record in found) == Counter(sent.keys())
        assert all(record.store_timestamp >= sent[record.body] for record in found)

    play(tmp_path_factory.mktemp("jumps"), scene, flush="async")
