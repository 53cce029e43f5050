"""Timer messages: at their time, once, whatever happens meanwhile."""

from __future__ import annotations

import pytest
from fakestore import FAKE_ONLY, FakeStore

from penstock.clock import ManualClock
from penstock.errors import FlushFailed, StoreReadOnly
from penstock.format.timerunit import TIMER_MAGIC_ROLL, WHEEL_SIZE
from penstock.message import Message
from penstock.message.topic import TIMER_TOPIC
from penstock.store.timer import TimerMessageStore

HOUR = 3_600_000


def open_timer(store: FakeStore) -> TimerMessageStore:
    timer = TimerMessageStore(store)
    timer.load()
    store.hooks = [timer.hook]
    return timer


def put(store: FakeStore, body: bytes, delay_ms: int, **properties: str) -> None:
    properties["TIMER_DELIVER_MS"] = str(store.clock.now_ms() + delay_ms)
    unique_key = f"K-{body.decode()}"
    assert store.put(Message("t", body, queue_id=1, unique_key=unique_key, properties=properties)).ok


def run(timer: TimerMessageStore, clock: ManualClock, ms: int, step: int = 1000) -> int:
    """Let time pass in steps; how many messages were delivered."""
    delivered = timer.run_once().delivered
    for _ in range(ms // step):
        clock.advance(step)
        delivered += timer.run_once().delivered
    return delivered


@pytest.mark.parametrize("delay", [1, 999, 1000, 1001, 2500, 60_000])
def test_s20_message_fires_at_the_tick_at_or_after_its_time(
    store: FakeStore, clock: ManualClock, delay: int
) -> None:
    clock.advance(345)
    timer = open_timer(store)
    timer.run_once()
    deliver = clock.now_ms() + delay
    put(store, b"x", delay)
    while not timer.run_once().delivered:
        assert clock.now_ms() < deliver + 1000
        clock.advance(1)
    assert deliver <= clock.now_ms() < deliver + 1000


def test_delivered_message_has_rocketmqs_properties(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    timer.run_once()
    put(store, b"x", 2500, colour="red")
    written = timer.write_time
    run(timer, clock, 3000)
    stored, delivered = store.log
    assert (delivered.topic, delivered.queue_id, delivered.body) == ("t", 1, b"x")
    assert delivered.properties == {
        **stored.properties,
        "TIMER_ENQUEUE_MS": str(written),
        "TIMER_DEQUEUE_MS": str(clock.now_ms()),
    }
    assert delivered.properties["REAL_TOPIC"] == "t"


def test_messages_of_a_tick_are_delivered_in_order(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    for number in range(100):
        put(store, str(number).encode(), 5000)
    assert run(timer, clock, 5000) == 100
    assert store.bodies("t") == [str(number).encode() for number in range(100)]


def test_message_that_reaches_the_wheel_too_late_is_delivered_at_once(
    store: FakeStore, clock: ManualClock
) -> None:
    timer = open_timer(store)
    timer.run_once()
    put(store, b"x", 2000)
    clock.advance(10_000)
    timer.write_time = timer.read_time = clock.now_ms()
    assert timer.run_once().delivered == 1
    assert store.log[-1].properties["TIMER_ENQUEUE_MS"] == "9223372036854775807"


def test_message_beyond_the_window_rolls_and_fires_in_time(store: FakeStore, clock: ManualClock) -> None:
    store.config = store.config.replace(timer_roll_window_slot=100)
    timer = open_timer(store)
    timer.run_once()
    deliver = clock.now_ms() + 250_000
    put(store, b"x", 250_000)
    while b"x" not in store.bodies("t"):
        clock.advance(1000)
        timer.run_once()
    assert deliver <= clock.now_ms() < deliver + 1000
    rolled = [record for record in store.log if record.topic == TIMER_TOPIC]
    assert [record.properties.get("TIMER_ROLL_TIMES") for record in rolled] == [None, "1", "2"]


def test_roll_goes_half_way_when_little_is_left(store: FakeStore, clock: ManualClock) -> None:
    store.config = store.config.replace(timer_roll_window_slot=90)
    timer = open_timer(store)
    timer.run_once()
    base = timer.write_time
    put(store, b"little", 91_000 + 29_000)
    put(store, b"much", 91_000 + 30_000)
    timer.run_once()
    units = list(timer.log.scan(0))
    assert all(unit.magic & TIMER_MAGIC_ROLL for unit in units)
    assert [unit.fires_at - base for unit in units] == [45_000, 90_000]


@pytest.mark.parametrize("key", ["K-b", "t+K-b"])
def test_deleted_message_does_not_fire(store: FakeStore, clock: ManualClock, key: str) -> None:
    timer = open_timer(store)
    for body in (b"a", b"b", b"c"):
        put(store, body, 5000)
    put(store, b"delete", 5000, TIMER_DEL_UNIQKEY=key)
    run(timer, clock, 6000)
    assert store.bodies("t") == [b"a", b"c"]
    assert timer.metrics.counts == {"t": 0}


def test_delete_of_another_tick_or_topic_deletes_nothing(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    put(store, b"a", 5000)
    put(store, b"later", 7000, TIMER_DEL_UNIQKEY="K-a")
    put(store, b"other", 5000, TIMER_DEL_UNIQKEY="u+K-a")
    run(timer, clock, 8000)
    assert store.bodies("t") == [b"a"]


def test_delete_that_waited_in_the_topic_while_the_timer_was_down_still_counts(
    store: FakeStore, clock: ManualClock
) -> None:
    timer = open_timer(store)
    timer.run_once()
    put(store, b"a", 5000)
    timer.run_once()
    timer.stop()
    put(store, b"delete", 5000, TIMER_DEL_UNIQKEY="K-a")
    clock.advance(HOUR)
    assert run(open_timer(store), clock, 0) == 0
    assert store.bodies("t") == []


def test_s20_nothing_fires_twice_after_a_stop(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    for number in range(10):
        put(store, str(number).encode(), 1000 * (number + 1))
    run(timer, clock, 5000)
    timer.stop()
    timer = open_timer(store)
    assert run(timer, clock, 10_000) == 5
    assert sorted(store.bodies("t")) == [str(number).encode() for number in range(10)]


def test_s20_message_delivered_at_once_is_not_delivered_again_after_a_stop(
    store: FakeStore, clock: ManualClock
) -> None:
    timer = open_timer(store)
    put(store, b"wheel", HOUR)
    timer.run_once()
    put(store, b"late", 1000)
    clock.advance(5000)
    timer.write_time = timer.read_time = clock.now_ms()
    timer.run_once()
    timer.stop()
    assert run(open_timer(store), clock, 5000) == 0
    assert store.bodies("t") == [b"late"]


def test_s20_batch_goes_on_with_the_message_that_failed(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    for number in range(5):
        put(store, str(number).encode(), 2000)
    run(timer, clock, 1000)
    store.refuse = lambda message: "OS_PAGE_CACHE_BUSY" if bytes(message.body) == b"3" else None
    assert run(timer, clock, 3000) == 3
    timer.flush()
    store.refuse = lambda message: None
    assert timer.run_once().delivered == 2
    assert store.bodies("t") == [b"0", b"1", b"2", b"3", b"4"]


def test_s20_enqueue_goes_on_with_the_messages_that_failed(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    for number in range(5):
        put(store, str(number).encode(), 2000)
        if number == 1:
            timer.run_once()
    before = timer.wheel.slot(clock.now_ms() + 1000)
    store.storage.fail("write", 28, times=1, path_glob="*/timerlog/*")
    with pytest.raises(OSError):
        timer.run_once()
    assert timer.wheel.slot(clock.now_ms() + 1000) == before  # it leads to what is in the log, no further
    timer.run_once()
    assert len(list(timer.log.scan(0))) == 5
    assert run(timer, clock, 3000) == 5


def test_s20_error_of_the_store_leaves_the_message_for_later(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    put(store, b"x", 1000)

    def refuse(message: Message) -> None:
        raise StoreReadOnly("no")

    run(timer, clock, 0)
    store.refuse = refuse
    clock.advance(1000)
    with pytest.raises(StoreReadOnly):
        timer.run_once()
    store.refuse = lambda message: None
    assert timer.run_once().delivered == 1


def test_s20_message_no_topic_takes_does_not_stop_the_wheel(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    for body in (b"a", b"b", b"c"):
        put(store, body, 1000)
    timer.run_once()
    store.refuse = lambda message: "MESSAGE_ILLEGAL" if bytes(message.body) == b"b" else None
    assert run(timer, clock, 1000) == 2
    assert store.bodies("t") == [b"a", b"c"]


@FAKE_ONLY
def test_s20_message_that_is_gone_does_not_stop_the_wheel(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    for body in (b"a", b"b"):
        put(store, body, 1000)
    timer.run_once()
    store.removed.add(store.log[0].physical_offset)
    assert run(timer, clock, 1000) == 1


def test_s20_broken_chain_does_not_stop_the_wheel(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    for number in range(3):
        put(store, str(number).encode(), 1000)
    put(store, b"next", 2000)
    timer.run_once()
    store.storage.overwrite("/store/timerlog/" + "0" * 20, 52, bytes(52))
    assert run(timer, clock, 3000) == 2
    assert store.bodies("t") == [b"2", b"next"]


def test_s20_clock_set_back_a_little_makes_nothing_early_and_nothing_lost(
    store: FakeStore, clock: ManualClock
) -> None:
    timer = open_timer(store)
    run(timer, clock, 10_000)
    clock.set(clock.now_ms() - 5000)
    deliver = clock.now_ms() + 1000
    put(store, b"x", 1000)
    while not timer.run_once().delivered:
        clock.advance(1000)
        assert clock.now_ms() < deliver + 10_000
    assert clock.now_ms() >= deliver


def test_s20_clock_set_back_by_a_year_does_not_stop_the_timer(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    put(store, b"before", 1000)
    run(timer, clock, 2000)
    clock.set(clock.now_ms() - 365 * 24 * HOUR)
    timer.run_once()
    put(store, b"after", 2000)
    assert run(timer, clock, 3000) == 1
    assert store.bodies("t") == [b"before", b"after"]


def test_s20_what_fired_before_the_clock_was_set_back_does_not_fire_again(
    store: FakeStore, clock: ManualClock
) -> None:
    timer = open_timer(store)
    put(store, b"x", 100_000)
    run(timer, clock, 200_000)
    clock.set(clock.now_ms() - 190_000)
    assert run(timer, clock, 200_000) == 0
    assert store.bodies("t") == [b"x"]


def test_long_pause_is_caught_up(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    for number in range(20):
        put(store, str(number).encode(), 1000 + number * 60_000)
    timer.run_once()
    clock.advance(24 * HOUR)
    assert timer.run_once().delivered == 20
    assert store.bodies("t") == [str(number).encode() for number in range(20)]


def test_flush_is_in_the_order_that_loses_nothing(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    put(store, b"x", HOUR)
    run(timer, clock, 2000)
    order: list[str] = []
    store.storage.on_step = None
    store.flush = lambda: order.append("store")  # type: ignore[method-assign]
    for name, part in (("log", timer.log), ("wheel", timer.wheel), ("check", timer._checkpoint_file)):
        method = "save" if name == "check" else "flush"
        setattr(part, method, lambda *args, name=name: order.append(name))
    timer._dirty = True
    timer.flush()
    assert order == ["store", "log", "wheel", "check"]


@pytest.mark.parametrize("name", ["timerlog/*", "timerwheel", "config/timercheck"])
@FAKE_ONLY
def test_s01_failed_sync_is_terminal_and_keeps_no_progress(
    store: FakeStore, clock: ManualClock, name: str
) -> None:
    timer = open_timer(store)
    put(store, b"x", 1000)
    timer.run_once()
    clock.advance(1000)
    store.storage.fail("sync", 5, times=1, path_glob=f"/store/{name}")
    for _ in range(2):
        with pytest.raises(FlushFailed):
            timer.run_once()
        clock.advance(1000)
    with pytest.raises(FlushFailed):
        timer.stop()
    assert store.bodies("t") == [b"x"]
    store.storage = next(iter(store.storage.crash_states(limit=1)))
    assert run(open_timer(store), clock, 1000) == 0
    assert store.bodies("t") == [b"x"]  # no progress was kept, but the commit log has it


def test_idle_timer_writes_nothing(store: FakeStore, clock: ManualClock) -> None:
    timer = open_timer(store)
    put(store, b"x", 1000)
    run(timer, clock, 5000)
    flushes = store.flushes
    before = store.storage.read_file("/store/config/timercheck")
    run(timer, clock, 60_000)
    assert store.flushes == flushes
    assert store.storage.read_file("/store/config/timercheck") == before


def test_wheel_file_has_rocketmqs_size_and_no_other_is_taken(store: FakeStore) -> None:
    open_timer(store).stop()
    assert store.storage.stat("/store/timerwheel").size == WHEEL_SIZE
    store.storage.truncate("/store/timerwheel", WHEEL_SIZE - 32)
    with pytest.raises(Exception, match="timerwheel"):
        TimerMessageStore(store)


def test_timer_runs_on_its_own_thread(store: FakeStore, clock: ManualClock) -> None:
    import threading

    timer = open_timer(store)
    put(store, b"x", 1000)
    clock.advance(1000)
    delivered = threading.Event()

    def refuse(message: Message) -> None:
        delivered.set()

    store.refuse = refuse
    timer.start()
    assert delivered.wait(10)
    timer.stop()
    assert store.bodies("t") == [b"x"]
