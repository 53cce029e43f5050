"""What is stored for a message that is sent back."""

from __future__ import annotations

import dataclasses

import pytest
from fakestore import FakeRecord, FakeStore

from penstock.message import Message, parse_properties
from penstock.store.retry import (
    dead_letter_topic,
    group_of,
    pop_retry_topic,
    redirect_exhausted,
    retry_topic,
    send_back,
)


@pytest.fixture
def record(store: FakeStore) -> FakeRecord:
    store.put(Message("orders", b"x", tags="TagA", flag=3, born_timestamp=9, unique_key="U"))
    return store.log[0]


def test_names_of_retry_and_dead_letter_topics() -> None:
    assert (retry_topic("g"), dead_letter_topic("g")) == ("%RETRY%g", "%DLQ%g")
    assert (pop_retry_topic("g", "t"), pop_retry_topic("g", "t", separator="_")) == (
        "%RETRY%g+t",
        "%RETRY%g_t",
    )
    assert [group_of(topic) for topic in ("%RETRY%g", "%DLQ%g", "orders")] == ["g", "g", None]


def test_first_retry_waits_level_three(record: FakeRecord) -> None:
    message = send_back(record, "g")
    assert (message.topic, message.reconsume_times, message.flag) == ("%RETRY%g", 1, 3)
    assert message.born_timestamp == 9
    assert parse_properties(message.raw_properties or b"") == {
        "TAGS": "TagA",
        "UNIQ_KEY": "U",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": record.message_id,
        "WAIT": "false",
        "DELAY": "3",
    }


@pytest.mark.parametrize(("tries", "level"), [(1, "4"), (5, "8"), (15, "18")])
def test_each_retry_waits_a_level_more(record: FakeRecord, tries: int, level: str) -> None:
    message = send_back(dataclasses.replace(record, reconsume_times=tries), "g")
    assert parse_properties(message.raw_properties or b"")["DELAY"] == level


def test_level_of_the_consumers_choice_is_taken(record: FakeRecord) -> None:
    message = send_back(record, "g", delay_level=7, queue_id=2)
    assert parse_properties(message.raw_properties or b"")["DELAY"] == "7"
    assert message.queue_id == 2


@pytest.mark.parametrize(("tries", "level"), [(16, 0), (0, -1), (20, 5)])
def test_message_tried_too_often_or_given_up_goes_to_the_dead_letters(
    record: FakeRecord, tries: int, level: int
) -> None:
    message = send_back(
        dataclasses.replace(record, reconsume_times=tries), "g", delay_level=level, queue_id=3
    )
    assert (message.topic, message.queue_id, message.reconsume_times) == ("%DLQ%g", 0, tries + 1)
    assert parse_properties(message.raw_properties or b"")["DELAY"] == "0"


def test_origin_survives_a_second_retry(store: FakeStore, record: FakeRecord) -> None:
    store.put_raw(send_back(record, "g"))
    message = send_back(store.log[1], "g")
    properties = parse_properties(message.raw_properties or b"")
    assert properties["RETRY_TOPIC"] == "orders"
    assert properties["ORIGIN_MESSAGE_ID"] == record.message_id


def test_sent_back_message_waits_in_the_schedule_topic(store: FakeStore, record: FakeRecord) -> None:
    store.put(send_back(record, "g"))
    waiting = store.log[1]
    assert (waiting.topic, waiting.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert waiting.properties["REAL_TOPIC"] == "%RETRY%g"


@pytest.mark.parametrize(
    ("tries", "ordered", "topic"), [(16, False, "%RETRY%g"), (17, False, "%DLQ%g"), (0, True, "%DLQ%g")]
)
def test_plain_send_to_a_retry_topic_ends_in_the_dead_letters_when_exhausted(
    store: FakeStore, tries: int, ordered: bool, topic: str
) -> None:
    message = redirect_exhausted(
        Message("%RETRY%g", b"x", queue_id=1, reconsume_times=tries, delay_level=4), "g", ordered=ordered
    )
    assert message.topic == topic
    store.put(message)
    assert (store.log[0].topic == "SCHEDULE_TOPIC_XXXX") is (topic == "%RETRY%g")
