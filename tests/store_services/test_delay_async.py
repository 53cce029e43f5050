"""Asynchronous delivery of delay levels: bounded, in order, no progress past what was not delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from fakestore import FAKE_ONLY, FakeStore

from penstock.clock import ManualClock
from penstock.message import Message
from penstock.message.topic import SCHEDULE_TOPIC
from penstock.store import delaypipeline
from penstock.store.delay import ScheduleMessageService


class ByHand(Executor):
    """Runs what was submitted when it is told to."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks.append(lambda: fn(*args, **kwargs))
        return Future()

    def run(self) -> None:
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task()


@pytest.fixture
def asynchronous(store: Any) -> Iterator[Any]:
    store.config = store.config.replace(enable_schedule_async_deliver=True)
    yield store


def service_of(store: Any, hands: Executor | None = None) -> ScheduleMessageService:
    service = ScheduleMessageService(store, executor=hands)
    service.load()
    return service


def put(store: Any, count: int, level: int = 1, start: int = 0) -> None:
    for number in range(start, start + count):
        store.put(Message("orders", b"%d" % number, delay_level=level))


def numbers(store: Any) -> list[int]:
    return [int(body) for body in store.bodies("orders")]


def test_offsets_move_only_when_a_message_was_delivered(asynchronous: Any, clock: ManualClock) -> None:
    put(asynchronous, 3)
    hands = ByHand()
    service = service_of(asynchronous, hands)
    clock.advance(1000)
    assert service.run_once() == 0
    assert (service.offsets, numbers(asynchronous)) == ({1: 0}, [])
    hands.run()
    assert numbers(asynchronous) == [0, 1, 2]
    assert service.run_once() == 3
    assert service.offsets == {1: 3}
    assert service.run_once() == 0


def test_nothing_comes_early(asynchronous: Any, clock: ManualClock) -> None:
    put(asynchronous, 1, level=2)
    hands = ByHand()
    service = service_of(asynchronous, hands)
    clock.advance(4999)
    service.run_once()
    assert hands.tasks == []
    clock.advance(1)
    service.run_once()
    hands.run()
    assert numbers(asynchronous) == [0]


def test_deliveries_under_way_are_bounded(
    asynchronous: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delaypipeline.DelayLine.__init__, "__defaults__", (3,))
    put(asynchronous, 8)
    hands = ByHand()
    service = service_of(asynchronous, hands)
    clock.advance(1000)
    seen = []
    for _ in range(4):
        service.run_once()
        hands.run()
        seen.append(len(numbers(asynchronous)))
    assert seen == [3, 6, 8, 8]
    assert numbers(asynchronous) == list(range(8))


@FAKE_ONLY
def test_message_that_fails_is_tried_again_later_and_holds_up_its_level_only(
    asynchronous: FakeStore, clock: ManualClock
) -> None:
    put(asynchronous, 3)
    asynchronous.put(Message("others", b"9", delay_level=2))
    hands = ByHand()
    service = service_of(asynchronous, hands)
    tries = []

    def refuse(message: Message) -> str | None:
        if message.topic != "orders" or message.body != b"1" or len(tries) >= 3:
            return None
        tries.append(clock.monotonic())
        if len(tries) == 2:
            raise OSError("the disk hiccups")
        return "OS_PAGE_CACHE_BUSY"

    asynchronous.refuse = refuse
    clock.advance(5000)
    start = clock.monotonic()
    for _ in range(100):
        service.run_once()
        hands.run()
        clock.advance(10)
    assert [round(at - start, 2) for at in tries] == [0, 0.1, 0.3], "after 100 ms, then after 200 more"
    assert numbers(asynchronous) == [0, 1, 2], "in the order of the queue, each once"
    assert asynchronous.bodies("others") == [b"9"]
    assert service.offsets == {1: 3, 2: 1}


@FAKE_ONLY
def test_message_that_can_never_be_stored_is_dropped(asynchronous: FakeStore, clock: ManualClock) -> None:
    put(asynchronous, 3)
    hands = ByHand()
    service = service_of(asynchronous, hands)
    asynchronous.refuse = lambda message: "MESSAGE_ILLEGAL" if message.body == b"1" else None
    clock.advance(1000)
    service.run_once()
    hands.run()
    service.run_once()
    assert (numbers(asynchronous), service.offsets) == ([0, 2], {1: 3})


@FAKE_ONLY
def test_record_that_is_gone_is_passed_over(asynchronous: FakeStore, clock: ManualClock) -> None:
    put(asynchronous, 3)
    asynchronous.removed.add(asynchronous.queues[(SCHEDULE_TOPIC, 0)][1].physical_offset)
    hands = ByHand()
    service = service_of(asynchronous, hands)
    clock.advance(1000)
    service.run_once()
    hands.run()
    service.run_once()
    assert (numbers(asynchronous), service.offsets) == ([0, 2], {1: 3})


def test_kill_between_the_looking_and_the_delivery_loses_nothing(
    asynchronous: Any, clock: ManualClock
) -> None:
    put(asynchronous, 4)
    hands = ByHand()
    service = service_of(asynchronous, hands)
    clock.advance(1000)
    service.run_once()
    service.persist()
    service.abandon()  # four were under way, none was delivered
    again = service_of(asynchronous, hands)
    again.run_once()
    hands.run()
    again.run_once()
    assert numbers(asynchronous) == [0, 1, 2, 3]
    again.stop()
    assert service_of(asynchronous, hands).offsets == {1: 4}


def test_threads_deliver_all_levels_and_a_stop_keeps_what_they_did(
    asynchronous: Any, clock: ManualClock
) -> None:
    for level in (1, 2, 3):
        put(asynchronous, 20, level=level, start=level * 100)
    service = service_of(asynchronous)
    clock.advance(10_000)
    delivered = service.run_once()
    while delivered < 60:
        delivered += service.run_once()
    service.stop()
    for level in (1, 2, 3):
        mine = [number for number in numbers(asynchronous) if number // 100 == level]
        assert mine == list(range(level * 100, level * 100 + 20))
    again = service_of(asynchronous)
    assert again.offsets == {1: 20, 2: 20, 3: 20}
    assert again.run_once() == 0
    again.stop()


def test_what_is_delivered_while_a_line_is_looked_at_is_not_put_into_it_again(
    asynchronous: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(asynchronous, 5)
    hands = ByHand()
    service = service_of(asynchronous, hands)
    clock.advance(1000)
    service.run_once()
    settle = delaypipeline.DelayLine.settle

    def settle_before_a_delivery(line: delaypipeline.DelayLine) -> tuple[int, int]:
        answer = settle(line)
        hands.run()
        return answer

    monkeypatch.setattr(delaypipeline.DelayLine, "settle", settle_before_a_delivery)
    service.run_once()
    service.run_once()
    hands.run()
    assert numbers(asynchronous) == [0, 1, 2, 3, 4]
    service.stop()
