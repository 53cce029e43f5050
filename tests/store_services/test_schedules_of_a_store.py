"""Delay, timer and transactions of a real store, from opening to reopening."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from realstore import CONFIG

from golden_store import unpack
from penstock.clock import ManualClock
from penstock.files.memory import MemoryStorage
from penstock.message import Message
from penstock.message.topic import TIMER_TOPIC, TRANS_HALF_TOPIC
from penstock.store.messagestore import MessageStore
from penstock.store.opening import open_writable
from penstock.store.transaction import EndTransaction, TransactionService
from penstock.store.transactioncheck import CHECK_GROUP, CheckRequest, TransactionCheckService
from penstock.store.transactionops import TransactionOps


@pytest.fixture
def storage(clock: ManualClock) -> MemoryStorage:
    return MemoryStorage(clock=clock)


def open_at(storage: MemoryStorage, clock: ManualClock) -> MessageStore:
    return open_writable("/store", storage=storage, clock=clock, config=CONFIG, background=False)


def step(store: MessageStore) -> None:
    """What the threads of a running store would do by now."""
    store.flush()
    store.dispatch()
    store.schedules.delay.run_once()
    store.schedules.timer.run_once()
    store.flush()
    store.dispatch()


def bodies(store: MessageStore, topic: str = "t") -> list[bytes]:
    return [bytes(message.body) for message in store.follow(topic, wait=False)]


def later(body: bytes, ms: int) -> Message:
    return Message("t", body, properties={"TIMER_DELAY_MS": str(ms)})


def test_delayed_and_timed_messages_come_at_their_time(storage: MemoryStorage, clock: ManualClock) -> None:
    with open_at(storage, clock) as store:
        store.put(Message("t", b"level", delay_level=2))
        store.put(later(b"timer", 3000))
        for _ in range(2):
            clock.advance(1000)
            step(store)
        assert bodies(store) == []
        clock.advance(1000)
        step(store)
        assert bodies(store) == [b"timer"]
        clock.advance(2000)
        step(store)
        assert bodies(store) == [b"timer", b"level"]


def test_timed_messages_that_are_not_alike_come_in_their_order(
    storage: MemoryStorage, clock: ManualClock
) -> None:
    """In the middle of a tick: one for light queues, one for a queue that cannot be, one taken back."""
    config = CONFIG.replace(enable_lmq=True, enable_multi_dispatch=True)
    with open_writable("/store", storage=storage, clock=clock, config=config, background=False) as store:
        for number in range(12):
            more = {"INNER_MULTI_DISPATCH": "%LMQ%a"} if number == 4 else {}
            store.put(
                Message(
                    "t",
                    str(number).encode(),
                    unique_key=f"K{number}",
                    properties={"TIMER_DELIVER_MS": str(clock.now_ms() + 2000), **more},
                )
            )
        out = str(clock.now_ms() + 1000)
        astray = {"TIMER_OUT_MS": out, "REAL_TOPIC": "a/b", "REAL_QID": "0"}
        assert store.put_raw(Message(TIMER_TOPIC, b"astray", properties=astray)).ok
        taken_back = {"TIMER_DELIVER_MS": str(clock.now_ms() + 2000), "TIMER_DEL_UNIQKEY": "K7"}
        store.put(Message("t", b"delete", properties=taken_back))
        store.put(later(b"last", 2000))
        for _ in range(3):
            clock.advance(1000)
            step(store)
        assert bodies(store) == [str(number).encode() for number in range(12) if number != 7] + [b"last"]
        assert bodies(store, "%LMQ%a") == [b"4"]


def test_timed_messages_come_into_a_log_with_whole_record_checksums(
    storage: MemoryStorage, clock: ManualClock
) -> None:
    config = CONFIG.replace(enabled_append_prop_crc=True)
    with open_writable("/store", storage=storage, clock=clock, config=config, background=False) as store:
        for number in range(5):
            store.put(later(str(number).encode(), 2000))
        for _ in range(3):
            clock.advance(1000)
            step(store)
        assert bodies(store) == [str(number).encode() for number in range(5)]


def test_s21_closing_and_opening_neither_loses_nor_repeats(
    storage: MemoryStorage, clock: ManualClock
) -> None:
    sent = 0
    for _ in range(4):
        with open_at(storage, clock) as store:
            for _ in range(3):
                store.put(Message("t", str(sent).encode(), delay_level=2))
                store.put(later(str(sent + 1).encode(), 4500))
                sent += 2
                clock.advance(1000)
                step(store)
    clock.advance(60_000)
    with open_at(storage, clock) as store:
        step(store)
        assert sorted(map(int, bodies(store))) == list(range(sent))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.crash) for seed in range(1, 8))])
def test_s20_acknowledged_message_is_delivered_after_a_power_cut(
    storage: MemoryStorage, clock: ManualClock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = 2 * 640
    for module in ("timerwheel", "timerrecovery", "timer"):
        for name, value in (("SLOTS", slots), ("SLOTS_TOTAL", slots // 2), ("SIZE", slots * 32)):
            monkeypatch.setattr(f"penstock.store.{module}.WHEEL_{name}", value, raising=False)
    store = open_at(storage, clock)
    acknowledged: list[bytes] = []
    images: list[tuple[MemoryStorage, int, list[bytes]]] = []
    for number in range(12):
        body = str(number).encode()
        message = later(body, 2500) if number % 2 else Message("t", body, delay_level=1)
        assert store.put(message).status == "PUT_OK"
        acknowledged.append(body)
        clock.advance(700)
        step(store)
        states = storage.crash_states(limit=3, seed=seed)
        images += [(image, clock.now_ms(), list(acknowledged)) for image in states]
    store.abandon()
    for image, now, expected in images:
        clock.set(now)
        with open_at(image, clock) as survivor:
            for _ in range(4):
                clock.advance(1500)
                step(survivor)
            found = Counter(bodies(survivor))
        assert set(found) == set(expected)
        assert max(found.values()) <= 2


def test_services_run_by_themselves_in_a_running_store(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_writable(tmp_path / "store", clock=clock, config=CONFIG) as store:
        store.put(Message("t", b"level", delay_level=1))
        store.put(later(b"timer", 1000))
        clock.advance(1000)
        found = {bytes(message.body) for message in islice(store.follow("t", timeout=20), 2)}
        assert found == {b"level", b"timer"}


def half(body: bytes) -> Message:
    return Message("t", body, properties={"TRAN_MSG": "true", "PGROUP": "g"}, sys_flag=4)


def test_s30_transactions_go_on_after_reopening(storage: MemoryStorage, clock: ManualClock) -> None:
    asked: list[CheckRequest] = []
    with open_at(storage, clock) as store:
        ops = TransactionOps(store)
        transactions = TransactionService(store, ops)
        for number in range(4):
            result = transactions.put_half(half(str(number).encode()))
            if number != 2:
                verdict = EndTransaction(
                    result.physical_offset, result.queue_offset, "g", 8 if number else 12
                )
                assert transactions.end(verdict).ok
        ops.stop()
        store.dispatch()
        assert bodies(store) == [b"1", b"3"]
        clock.advance(10_000)
        report = TransactionCheckService(store, store.consumer_offsets, ops, asked.append).run_once()
        assert (report.over, report.asked) == (3, 1)
    with open_at(storage, clock) as store:
        assert store.consumer_offsets.query(CHECK_GROUP, TRANS_HALF_TOPIC, 0) == 4
        ops = TransactionOps(store)
        (request,) = asked
        answer = EndTransaction(request.physical_offset, request.queue_offset, "g", 8, from_check=True)
        assert TransactionService(store, ops).end(answer).ok
        ops.stop()
        store.dispatch()
        assert bodies(store) == [b"1", b"3", b"2"]
        report = TransactionCheckService(store, store.consumer_offsets, ops, asked.append).run_once()
        assert (report.over, report.asked) == (1, 0)


def test_directory_of_a_real_broker_goes_on(tmp_path: Path) -> None:
    golden = unpack("broker", tmp_path)
    manifest = golden.manifest
    clock = ManualClock(manifest["log"][-1]["storeTimestamp"] + 1000)
    # Segment sizes are read off the files; RocketMQ's index is not needed here.
    settings = CONFIG.replace(message_index_enable=False)
    with open_writable(golden.path, clock=clock, config=settings, background=False) as store:
        table = manifest["tables"]["delayOffset"]
        assert store.schedules.delay.offsets == {int(level): offset for level, offset in table.items()}
        assert store.schedules.timer.queue_offset == 35
        before = len(bodies(store, "golden_timer"))
        step(store)
        assert len(bodies(store, "golden_timer")) == before
        clock.advance(25 * 3_600_000)
        step(store)
        assert len(bodies(store, "golden_timer")) == before + 3
        delayed = [f"delay level {level}".encode() for level in (1, 1, 2, 5, 18, 99)]
        assert Counter(bodies(store, "golden_delay")) == Counter(delayed)
