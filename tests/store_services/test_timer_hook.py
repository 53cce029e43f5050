"""Which messages a timer takes, and what is stored for them."""

from __future__ import annotations

import random

import pytest
from fakestore import FakeStore

from penstock.clock import ManualClock
from penstock.message import Message, encode_properties
from penstock.message.topic import SCHEDULE_TOPIC, TIMER_TOPIC
from penstock.store.timerhook import ScheduleHook, schedule_hook, wheel_time

NOW = 1_700_000_000_000


def timed(**properties: str) -> Message:
    return Message("orders", b"x", tags="TagA", queue_id=3, properties=properties)


@pytest.mark.parametrize(
    ("properties", "out"),
    [
        ({"TIMER_DELAY_SEC": "10"}, NOW + 9000),
        ({"TIMER_DELAY_MS": "1500"}, NOW + 1000),
        ({"TIMER_DELAY_MS": "1"}, NOW),
        ({"TIMER_DELIVER_MS": str(NOW + 2500)}, NOW + 2000),
        ({"TIMER_DELIVER_MS": str(NOW + 3000)}, NOW + 2000),
        ({"TIMER_DELAY_SEC": "10", "TIMER_DELAY_MS": "1", "TIMER_DELIVER_MS": "1"}, NOW + 9000),
    ],
)
def test_timer_message_is_stored_under_the_timer_topic_with_its_tick(
    store: FakeStore, properties: dict[str, str], out: int
) -> None:
    assert store.put(timed(**properties)).ok
    (record,) = store.log
    assert (record.topic, record.queue_id) == (TIMER_TOPIC, 0)
    wanted = {"TIMER_OUT_MS": str(out), "REAL_TOPIC": "orders", "REAL_QID": "3", "TAGS": "TagA", **properties}
    assert wanted.items() <= record.properties.items()


def test_request_in_a_finished_property_string_is_seen(store: FakeStore) -> None:
    raw = encode_properties({"TIMER_DELAY_SEC": "10"})
    answer = schedule_hook(Message("orders", b"x", raw_properties=raw), store)
    assert isinstance(answer, Message)
    assert answer.topic == TIMER_TOPIC


@pytest.mark.parametrize(
    ("properties", "status"),
    [
        ({"TIMER_DELAY_SEC": "soon"}, "WHEEL_TIMER_MSG_ILLEGAL"),
        ({"TIMER_DELIVER_MS": ""}, "WHEEL_TIMER_MSG_ILLEGAL"),
        ({"TIMER_DELIVER_MS": "9" * 30}, "WHEEL_TIMER_MSG_ILLEGAL"),
        ({"TIMER_DELAY_SEC": "259201"}, "WHEEL_TIMER_MSG_ILLEGAL"),
        ({"TIMER_DELIVER_MS": str(NOW), "TIMER_DEL_UNIQKEY": "U"}, "WHEEL_TIMER_MSG_ILLEGAL"),
    ],
)
def test_request_that_makes_no_sense_is_refused(
    store: FakeStore, properties: dict[str, str], status: str
) -> None:
    assert store.put(timed(**properties)).status == status
    assert store.log == []


def test_timer_that_is_switched_off_is_said_so(store: FakeStore) -> None:
    store.config = store.config.replace(timer_wheel_enable=False)
    assert store.put(timed(TIMER_DELAY_SEC="1")).status == "WHEEL_TIMER_NOT_ENABLE"


@pytest.mark.parametrize("deliver", [NOW, NOW - 1, 0, -5])
def test_time_that_has_passed_means_now(store: FakeStore, deliver: int) -> None:
    message = timed(TIMER_DELIVER_MS=str(deliver))
    assert schedule_hook(message, store) is message


@pytest.mark.parametrize(
    "message",
    [
        Message("orders", b"x"),
        timed(TIMER_DELAY_SEC="1", TIMER_OUT_MS="5"),
        Message(TIMER_TOPIC, b"x", properties={"TIMER_DELAY_SEC": "1"}),
        Message("orders", b"x", sys_flag=4, properties={"TIMER_DELAY_SEC": "1"}),
        Message("orders", b"x", sys_flag=12, properties={"TIMER_DELAY_SEC": "1"}),
    ],
)
def test_message_that_asks_for_nothing_or_was_here_before_is_left_alone(
    store: FakeStore, message: Message
) -> None:
    assert schedule_hook(message, store) is message


def test_delay_level_wins_over_a_timer_request(store: FakeStore) -> None:
    store.put(timed(TIMER_DELAY_SEC="1", TIMER_DELIVER_MS="5", DELAY="2"))
    (record,) = store.log
    assert record.topic == SCHEDULE_TOPIC
    assert not any(name.startswith("TIMER_") for name in record.properties)


def test_full_slot_refuses_more_and_more(store: FakeStore) -> None:
    store.config = store.config.replace(timer_congest_num_each_slot=100)

    def put(count: int) -> str:
        answer = ScheduleHook(lambda time: count, rng=random.Random(1))(timed(TIMER_DELAY_SEC="9"), store)
        return answer if isinstance(answer, str) else "taken"

    assert (put(0), put(100), put(200)) == ("taken", "taken", "WHEEL_TIMER_FLOW_CONTROL")


@pytest.mark.parametrize("precision", [100, 200, 500, 1000])
def test_s20_slot_of_a_time_is_over_at_that_time_and_at_most_a_tick_later(
    precision: int, clock: ManualClock
) -> None:
    for deliver in range(NOW, NOW + 3 * precision + 1):
        over = wheel_time(deliver, precision) + precision
        assert deliver <= over < deliver + precision
