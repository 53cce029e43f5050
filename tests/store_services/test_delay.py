"""Delay levels: nothing early, nothing lost, nothing twice after a stop."""

from __future__ import annotations

import pytest
from fakestore import FAKE_ONLY, FakeStore

from penstock.clock import ManualClock
from penstock.errors import StoreReadOnly
from penstock.message import Message
from penstock.message.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from penstock.store.delay import ScheduleMessageService
from penstock.store.delayhook import delay_level_hook


def service_of(store: FakeStore) -> ScheduleMessageService:
    service = ScheduleMessageService(store)
    service.load()
    return service


def test_delayed_message_is_stored_under_the_schedule_topic_with_its_real_place(store: FakeStore) -> None:
    store.put(Message("orders", b"x", tags="TagA", queue_id=3, delay_level=2))
    (record,) = store.log
    assert (record.topic, record.queue_id) == (SCHEDULE_TOPIC, 1)
    wanted = {"TAGS": "TagA", "DELAY": "2", "REAL_TOPIC": "orders", "REAL_QID": "3"}
    assert wanted.items() <= record.properties.items()
    assert record.properties["UNIQ_KEY"]


def test_level_above_the_highest_counts_as_the_highest(store: FakeStore) -> None:
    store.put(Message("orders", b"x", properties={"DELAY": "99"}))
    assert store.log[0].queue_id == 17
    assert store.log[0].properties["DELAY"] == "18"


@pytest.mark.parametrize("text", ["0", "-1", "soon", ""])
def test_message_without_a_positive_level_is_left_alone(store: FakeStore, text: str) -> None:
    message = Message("orders", b"x", properties={"DELAY": text})
    assert delay_level_hook(message, store) is message


@pytest.mark.parametrize(("sys_flag", "delayed"), [(0, True), (4, False), (8, True), (12, False)])
def test_only_messages_that_get_a_queue_place_are_delayed(
    store: FakeStore, sys_flag: int, delayed: bool
) -> None:
    message = Message("orders", b"x", sys_flag=sys_flag, delay_level=1)
    assert (delay_level_hook(message, store).topic == SCHEDULE_TOPIC) is delayed


def test_message_is_delivered_when_its_time_has_come_and_not_before(
    store: FakeStore, clock: ManualClock
) -> None:
    store.put(Message("orders", b"x", queue_id=3, delay_level=2))
    service = service_of(store)
    clock.advance(4999)
    assert service.run_once() == 0
    clock.advance(1)
    assert service.run_once() == 1
    delivered = store.log[-1]
    assert (delivered.topic, delivered.queue_id, delivered.body) == ("orders", 3, b"x")
    assert delivered.properties_bytes == store.log[0].properties_bytes
    assert service.run_once() == 0


def test_delivery_keeps_born_data_and_flags(store: FakeStore, clock: ManualClock) -> None:
    store.put(
        Message("t", b"x", flag=7, sys_flag=2, born_timestamp=5, born_host="[::1]:9", reconsume_times=4,
                delay_level=1)
    )  # fmt: skip
    clock.advance(1000)
    service_of(store).run_once()
    delivered = store.log[-1]
    assert (delivered.flag, delivered.sys_flag & 0xF, delivered.born_timestamp) == (7, 2, 5)
    assert (delivered.born_host, delivered.reconsume_times) == ("[::1]:9", 4)


def test_messages_of_a_level_are_delivered_in_order(store: FakeStore, clock: ManualClock) -> None:
    for number in range(5):
        store.put(Message("t", str(number).encode(), delay_level=1))
    clock.advance(1000)
    assert service_of(store).run_once() == 5
    assert store.bodies("t") == [b"0", b"1", b"2", b"3", b"4"]


def test_clock_that_was_set_back_does_not_hold_messages_for_longer_than_their_level(
    store: FakeStore, clock: ManualClock
) -> None:
    store.put(Message("t", b"x", delay_level=1))
    clock.set(clock.now_ms() - 3_600_000)
    assert service_of(store).run_once() == 1


def test_failed_put_is_tried_again_from_the_same_message(store: FakeStore, clock: ManualClock) -> None:
    for number in range(3):
        store.put(Message("t", str(number).encode(), delay_level=1))
    clock.advance(1000)
    service = service_of(store)
    store.refuse = lambda message: "OS_PAGE_CACHE_BUSY" if bytes(message.body) == b"1" else None
    assert service.run_once() == 1
    store.refuse = lambda message: None
    assert service.run_once() == 2
    assert store.bodies("t") == [b"0", b"1", b"2"]


def test_message_no_topic_takes_does_not_stop_its_level(store: FakeStore, clock: ManualClock) -> None:
    for number in range(3):
        store.put(Message("t", str(number).encode(), delay_level=1))
    clock.advance(1000)
    store.refuse = lambda message: "MESSAGE_ILLEGAL" if bytes(message.body) == b"1" else None
    service_of(store).run_once()
    assert store.bodies("t") == [b"0", b"2"]


def test_error_in_one_level_does_not_stop_the_others(store: FakeStore, clock: ManualClock) -> None:
    store.put(Message("bad", b"x", delay_level=1))
    store.put(Message("good", b"x", delay_level=2))
    clock.advance(5000)

    def refuse(message: Message) -> None:
        if message.topic == "bad":
            raise StoreReadOnly("no")

    store.refuse = refuse
    service = service_of(store)
    with pytest.raises(StoreReadOnly):
        service.run_once()
    assert store.bodies("good") == [b"x"]
    assert service.offsets == {1: 0, 2: 1}


def test_half_message_is_never_delivered_by_a_delay(store: FakeStore, clock: ManualClock) -> None:
    store.put(Message(TRANS_HALF_TOPIC, b"x", delay_level=1))
    clock.advance(1000)
    service_of(store).run_once()
    assert store.bodies(TRANS_HALF_TOPIC) == []


def test_s21_nothing_is_delivered_again_after_a_stop(store: FakeStore, clock: ManualClock) -> None:
    for number in range(3):
        store.put(Message("t", str(number).encode(), delay_level=1))
    clock.advance(1000)
    first = service_of(store)
    first.run_once()
    first.stop()
    second = service_of(store)
    assert second.offsets == {1: 3}
    assert second.run_once() == 0
    store.put(Message("t", b"3", delay_level=1))
    clock.advance(1000)
    assert second.run_once() == 1
    assert store.bodies("t") == [b"0", b"1", b"2", b"3"]


def test_s21_offsets_are_written_in_intervals_and_after_what_they_stand_for(
    store: FakeStore, clock: ManualClock
) -> None:
    service = service_of(store)
    store.put(Message("t", b"x", delay_level=1))
    clock.advance(9000)
    service.run_once()
    assert not store.storage.exists("/store/config/delayOffset.json")
    clock.advance(1000)
    service.run_once()
    assert store.storage.exists("/store/config/delayOffset.json")
    assert store.flushed == len(store.log)


def test_s21_crash_before_offsets_were_written_delivers_again_and_loses_nothing(
    store: FakeStore, clock: ManualClock
) -> None:
    store.put(Message("t", b"x", delay_level=1))
    clock.advance(1000)
    service_of(store).run_once()
    assert service_of(store).run_once() == 1
    assert store.bodies("t") == [b"x", b"x"]


def test_s21_offsets_stay_behind_when_the_flush_fails(store: FakeStore, clock: ManualClock) -> None:
    store.put(Message("t", b"x", delay_level=1))
    clock.advance(1000)
    service = service_of(store)
    service.run_once()

    def fail() -> None:
        raise StoreReadOnly("sync failed")

    store.flush = fail  # type: ignore[method-assign]
    with pytest.raises(StoreReadOnly):
        service.stop()
    assert not store.storage.exists("/store/config/delayOffset.json")


@FAKE_ONLY
def test_s07_offset_behind_a_cut_queue_is_moved_to_its_end(store: FakeStore, clock: ManualClock) -> None:
    for number in range(3):
        store.put(Message("t", str(number).encode(), delay_level=1))
    clock.advance(1000)
    first = service_of(store)
    first.run_once()
    first.stop()
    store.cut(1)
    second = service_of(store)
    assert second.offsets == {1: 1}
    store.put(Message("t", b"new", delay_level=1))
    clock.advance(1000)
    assert second.run_once() == 1
    assert store.bodies("t") == [b"new"]


def test_offsets_file_of_rocketmq_is_read(store: FakeStore) -> None:
    for _ in range(3):
        store.put(Message("t", b"x", delay_level=1))
        store.put(Message("t", b"x", delay_level=18))
    text = (
        '{\n\t"dataVersion":{\n\t\t"counter":4,\n\t\t"stateVersion":0,\n\t\t"timestamp":1794712596439\n\t},'
    )
    text += '\n\t"offsetTable":{\n\t\t1:2,\n\t\t18:0\n\t}\n}'
    store.storage.write_atomic("/store/config/delayOffset.json", text.encode())
    service = service_of(store)
    assert service.offsets == {1: 2, 18: 0}
    service.persist()
    assert store.storage.read_file("/store/config/delayOffset.json").decode() == text


def test_offsets_file_of_rocketmq_4_has_no_version(store: FakeStore) -> None:
    store.put(Message("t", b"x", delay_level=1))
    store.storage.write_atomic("/store/config/delayOffset.json", b'{"offsetTable":{1:1}}')
    assert service_of(store).offsets == {1: 1}


def test_service_delivers_on_its_own_thread(store: FakeStore, clock: ManualClock) -> None:
    import threading

    delivered = threading.Event()
    store.put(Message("t", b"x", delay_level=1))
    clock.advance(1000)

    def refuse(message: Message) -> None:
        delivered.set()

    store.refuse = refuse
    service = service_of(store)
    service.start()
    assert delivered.wait(10)
    service.stop()
    assert store.bodies("t") == [b"x"]
    assert service.offsets == {1: 1}
