"""What a timer makes of its files after a crash, a loss or a cut log."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from fakestore import FAKE_ONLY, FakeStore
from test_timer import HOUR, open_timer, put, run

from penstock.clock import ManualClock
from penstock.errors import CorruptFile
from penstock.files.memory import MemoryStorage
from penstock.message.topic import TIMER_TOPIC
from penstock.store.timer import TimerMessageStore

FIRST_FILE = "/store/timerlog/" + "0" * 20


@pytest.fixture(autouse=True)
def small_files(store: FakeStore) -> None:
    store.config = store.config.replace(mapped_file_size_timer_log=1040)


@pytest.fixture
def small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel of twenty minutes: a crash image copies the whole file."""
    slots = 2 * 640
    for module in ("timerwheel", "timerrecovery", "timer"):
        for name, value in (("SLOTS", slots), ("SLOTS_TOTAL", slots // 2), ("SIZE", slots * 32)):
            monkeypatch.setattr(f"penstock.store.{module}.WHEEL_{name}", value, raising=False)


def slots(timer: TimerMessageStore) -> list[tuple[int, int, int, int]]:
    """Time, first and last position and count of every slot to come."""
    found = timer.wheel.used(timer.read_time, timer.read_time + 100 * HOUR)
    return [(time, slot.first_position, slot.last_position, slot.message_count) for time, slot in found]


def fill(store: FakeStore, timer: TimerMessageStore, count: int = 50) -> None:
    """Messages over ten ticks an hour from now, in several files."""
    for number in range(count):
        put(store, str(number).encode(), HOUR + 1000 * (number % 10))
    timer.run_once()


def test_s20_lost_wheel_is_made_again_from_the_timer_log(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    fill(store, timer)
    expected = slots(timer)
    timer.stop()
    store.storage.unlink("/store/timerwheel")
    timer = TimerMessageStore(store)
    assert timer.load().wheel_rebuilt
    assert slots(timer) == expected
    assert run(timer, clock, 2 * HOUR, step=60_000) == 50
    assert len(store.bodies("t")) == 50


def test_s20_wheel_behind_the_log_is_brought_up(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    fill(store, timer, 20)
    timer.flush()
    fill(store, timer, 30)
    expected = slots(timer)
    timer.close()
    timer = TimerMessageStore(store)
    found = timer.load()
    assert (found.queue_offset, found.wheel_rebuilt) == (50, False)
    assert slots(timer) == expected
    assert timer.run_once().enqueued == 0


def test_s20_killed_process_loses_and_doubles_nothing_in_the_wheel(
    store: FakeStore, clock: ManualClock
) -> None:
    timer = open_timer(store)
    fill(store, timer)
    timer.close()
    timer = open_timer(store)
    assert run(timer, clock, 2 * HOUR, step=60_000) == 50
    assert Counter(store.bodies("t")) == Counter(str(number).encode() for number in range(50))


def test_s20_wheel_that_contradicts_the_log_is_made_again(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    fill(store, timer)
    expected = slots(timer)
    time = expected[3][0]
    timer.wheel.put(time, 0, 52 * 1000, 5)
    timer.stop()
    timer = TimerMessageStore(store)
    assert timer.load().wheel_rebuilt
    assert slots(timer) == expected


def test_s20_lost_timer_log_is_made_again_from_the_topic_without_firing_again(
    store: FakeStore, clock: ManualClock
) -> None:
    timer = open_timer(store)
    for number in range(10):
        put(store, f"early{number}".encode(), 1000)
        put(store, f"late{number}".encode(), HOUR)
    run(timer, clock, 5000)
    timer.stop()
    for entry in store.storage.listdir("/store/timerlog"):
        store.storage.unlink(f"/store/timerlog/{entry.name}")
    timer = open_timer(store)
    assert run(timer, clock, 2 * HOUR, step=60_000) == 10
    assert all(count == 1 for count in Counter(store.bodies("t")).values())
    assert len(store.bodies("t")) == 20


@FAKE_ONLY
def test_s07_units_of_a_cut_log_are_dropped(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    fill(store, timer)
    timer.stop()
    store.cut(30)
    timer = TimerMessageStore(store)
    found = timer.load()
    assert (found.cut, found.queue_offset) == (20, 30)
    for number in range(30, 50):
        put(store, f"new{number}".encode(), HOUR)
    assert run(timer, clock, 2 * HOUR, step=60_000) == 50
    old = [str(number).encode() for number in range(30)]
    new = [f"new{number}".encode() for number in range(30, 50)]
    assert Counter(store.bodies("t")) == Counter(old + new)


@FAKE_ONLY
def test_s07_log_cut_to_nothing_empties_the_wheel(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    fill(store, timer)
    timer.stop()
    store.cut(0)
    timer = TimerMessageStore(store)
    found = timer.load()
    assert (found.cut, found.queue_offset, found.log_end) == (50, 0, 0)
    assert slots(timer) == []
    assert run(timer, clock, 2 * HOUR, step=60_000) == 0


@FAKE_ONLY
def test_s07_cut_units_do_not_come_back_behind_new_ones(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    fill(store, timer)
    timer.stop()
    store.cut(10)
    timer = open_timer(store)
    put(store, b"new", HOUR)
    timer.run_once()
    timer.close()
    timer = TimerMessageStore(store)
    assert timer.load().log_end == 11 * 52
    assert run(timer, clock, 2 * HOUR, step=60_000) == 11


def test_torn_unit_at_the_end_is_cut_and_enqueued_again(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    fill(store, timer, 10)
    timer.close()
    store.storage.overwrite(FIRST_FILE, 9 * 52 + 38, bytes(14))
    timer = open_timer(store)
    assert timer.queue_offset == 9
    assert run(timer, clock, 2 * HOUR, step=60_000) == 10


def test_s30_restart_goes_on_where_it_was(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    fill(store, timer)
    run(timer, clock, 2 * HOUR, step=60_000)
    timer.stop()
    clock.advance(8 * 24 * HOUR)
    timer = TimerMessageStore(store)
    found = timer.load()
    assert found.queue_offset == 50
    assert timer.run_once().delivered == 0


@FAKE_ONLY
def test_files_the_commit_log_has_left_behind_are_deleted(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    fill(store, timer)
    names = [entry.name for entry in store.storage.listdir("/store/timerlog")]
    assert names == ["0" * 20, f"{1040:020d}", f"{2080:020d}"]
    store.min_physical_offset = store.log[25].physical_offset
    assert timer.clean() == 1
    store.min_physical_offset = store.max_physical_offset
    assert timer.clean() == 1
    assert [entry.name for entry in store.storage.listdir("/store/timerlog")] == [f"{2080:020d}"]
    timer.stop()
    timer = TimerMessageStore(store)
    timer.load()
    assert timer.log.begin_position == 2080


@FAKE_ONLY
def test_cleaning_runs_every_half_minute(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    fill(store, timer)
    store.min_physical_offset = store.max_physical_offset
    clock.advance(29_000)
    timer.run_once()
    assert len(store.storage.listdir("/store/timerlog")) == 3
    clock.advance(1000)
    timer.run_once()
    assert len(store.storage.listdir("/store/timerlog")) == 1


def test_timer_log_of_another_file_size_is_taken_as_it_is(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    fill(store, timer)
    timer.stop()
    store.config = store.config.replace(mapped_file_size_timer_log=100 << 20)
    timer = open_timer(store)
    assert timer.log.file_size == 1040
    assert run(timer, clock, 2 * HOUR, step=60_000) == 50


@FAKE_ONLY
def test_foreign_file_and_gap_in_the_timer_log_are_named(store: FakeStore) -> None:
    timer = open_timer(store)
    fill(store, timer)
    timer.stop()
    copy = store.storage.copy()
    store.storage.unlink(f"/store/timerlog/{1040:020d}")
    with pytest.raises(CorruptFile, match=f"{2080:020d}"):
        TimerMessageStore(store).load()
    copy.create_file(f"/store/timerlog/{3120:020d}", bytes(7))
    store.storage = copy
    with pytest.raises(CorruptFile, match=f"{3120:020d}"):
        TimerMessageStore(store).load()


def test_empty_last_file_is_dropped(store: FakeStore) -> None:
    timer = open_timer(store)
    fill(store, timer)
    timer.stop()
    store.storage.create_file(f"/store/timerlog/{3120:020d}")
    assert TimerMessageStore(store).load().queue_offset == 50


@pytest.mark.usefixtures("small_wheel")
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.crash) for n in range(2, 40))])
@FAKE_ONLY
def test_s20_power_cut_at_any_moment_loses_no_message_and_makes_none_early_or_come_twice(
    store: FakeStore, clock: ManualClock, seed: int
) -> None:
    """Everything the disk may hold after a cut, at several moments: each message fires, at its time or later.

    The commit log of this store is durable at once; what may be lost are the timer's own files.
    """
    timer = open_timer(store)
    deliver_at: dict[bytes, int] = {}
    images: list[tuple[MemoryStorage, int, int]] = []

    def cut_the_power() -> None:
        states = store.storage.crash_states(limit=4, seed=seed, torn=seed % 2 == 1)
        images.extend((image, clock.now_ms(), len(store.log)) for image in states)

    # In the middle of a flush too: before the wheel, before the checkpoint.
    for part, name in ((timer.wheel, "flush"), (timer._checkpoint_file, "save")):
        real = getattr(part, name)
        setattr(part, name, lambda *args, real=real: (cut_the_power(), real(*args)))
    for round_number in range(6):
        for number in range(8):
            body, delay = f"{round_number}-{number}".encode(), 1000 + 700 * number
            deliver_at[body] = clock.now_ms() + delay
            put(store, body, delay)
        timer.run_once()
        cut_the_power()
        clock.advance(600)
    timer.close()
    whole = list(store.log)
    assert len(images) > 20
    for image, now, count in images:
        clock.set(now)
        survivor = dataclasses.replace(store, storage=image, log=whole[:count])
        survivor.dispatch()
        recovered = open_timer(survivor)
        expected = {record.body for record in survivor.log if record.topic == TIMER_TOPIC}
        run(recovered, clock, 10_000, step=500)
        recovered.close()
        assert set(survivor.bodies("t")) == expected
        delivered = [record for record in survivor.log[count:] if record.topic == "t"]
        assert all(record.store_timestamp >= deliver_at[record.body] for record in delivered)
        assert max(Counter(survivor.bodies("t")).values()) == 1


def wheel_copies(store: FakeStore) -> list[str]:
    return [e.name for e in store.storage.listdir("/store") if e.name.startswith("timerwheel.")]


def test_s20_wheel_written_whole_is_brought_up_from_the_timer_log(
    store: FakeStore, clock: ManualClock, small_wheel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two whole copies the timer log alone knows what was added: nothing is lost or doubled."""
    monkeypatch.setattr("penstock.store.timersnapshot.WHEEL_SIZE", 2 * 640 * 32)
    store.config = store.config.replace(timer_wheel_snapshot_flush=True)
    timer = open_timer(store)
    for number in range(20):
        put(store, str(number).encode(), 60_000 + 1000 * (number % 10))
    timer.run_once()
    timer.flush()
    (first,) = wheel_copies(store)
    for number in range(20, 50):
        put(store, str(number).encode(), 60_000 + 1000 * (number % 10))
    timer.run_once()
    timer.flush()
    assert wheel_copies(store) == [first]  # too soon for another
    expected = slots(timer)
    timer.abandon()
    timer = TimerMessageStore(store)
    assert not timer.load().wheel_rebuilt
    assert slots(timer) == expected
    timer.stop()
    assert len(wheel_copies(store)) == 1 and wheel_copies(store) != [first]
    timer = open_timer(store)
    assert run(timer, clock, 120_000, step=1000) == 50
    assert len(store.bodies("t")) == 50


def test_whole_copies_of_another_owner_go_when_the_wheel_moves_on(store: FakeStore) -> None:
    """RocketMQ would take the copy for newer than the file."""
    store.storage.create_file("/store/timerwheel.5200", b"x")
    timer = open_timer(store)
    fill(store, timer)
    timer.stop()
    assert wheel_copies(store) == []


def test_s20_what_rolled_while_the_timer_was_down_still_meets_what_deletes_it(
    store: FakeStore, clock: ManualClock
) -> None:
    """A long stop: the slots of the rolls and the last one are over when the timer comes back."""
    store.config = store.config.replace(timer_roll_window_slot=10)
    timer = open_timer(store)
    timer.run_once()
    deliver = clock.now_ms() + 25_000
    for body in (b"a", b"b", b"c"):
        put(store, body, deliver - clock.now_ms())
    timer.run_once()
    clock.advance(3000)
    put(store, b"delete", deliver - clock.now_ms(), TIMER_DEL_UNIQKEY="K-b")
    timer.run_once()
    timer.close()
    clock.advance(HOUR)
    timer = open_timer(store)
    run(timer, clock, 2000)
    assert store.bodies("t") == [b"a", b"c"]
