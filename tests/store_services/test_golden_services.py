"""The services against a directory that a real broker wrote, with messages of every kind."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
from fakestore import FakeRecord, FakeStore
from test_transaction_check import Offsets

from golden_store import GoldenStore, body_of, unpack
from penstock.clock import ManualClock
from penstock.files.disk import DiskStorage
from penstock.message import encode_properties
from penstock.message.topic import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from penstock.store.delay import ScheduleMessageService
from penstock.store.retry import send_back
from penstock.store.timer import TimerMessageStore
from penstock.store.timerhook import schedule_hook
from penstock.store.transaction import EndTransaction, TransactionService
from penstock.store.transactioncheck import CHECK_GROUP, CheckRequest, TransactionCheckService
from penstock.store.transactionops import TransactionOps, parse_op_body

GROUP = "golden_transactions"


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenStore:
    return unpack("broker", tmp_path_factory.mktemp("broker"))


def record_of(entry: dict[str, Any], delays: tuple[int, ...]) -> FakeRecord:
    properties = entry["properties"]
    due = entry["storeTimestamp"] + delays[int(properties.get("DELAY", 1)) - 1]
    return FakeRecord(
        entry["topic"],
        entry["queueId"],
        entry["queueOffset"],
        entry["offset"],
        entry["storeSize"],
        entry["sysFlag"],
        entry["flag"],
        entry["bornTimestamp"],
        entry["bornHost"],
        entry["storeTimestamp"],
        entry["storeHost"],
        entry["reconsumeTimes"],
        entry["preparedTransactionOffset"],
        encode_properties(properties),
        body_of(entry["body"]),
        due if entry["topic"] == SCHEDULE_TOPIC else 0,
    )


@pytest.fixture
def store(golden: GoldenStore, tmp_path: Path, clock: ManualClock) -> FakeStore:
    """A store with the records of the golden log, over a copy of its files."""
    path = tmp_path / "store"
    for part in ("config", "timerlog"):
        shutil.copytree(golden.path / part, path / part)
    shutil.copy(golden.path / "timerwheel", path / "timerwheel")
    store = FakeStore(clock, DiskStorage(), path=str(path), hooks=[schedule_hook])
    store.config = store.config.replace(mapped_file_size_timer_log=1040)
    store.log = [record_of(entry, store.config.delay_levels_ms) for entry in golden.manifest["log"]]
    store.dispatch()
    clock.set(store.log[-1].store_timestamp + 1000)
    return store


def records(store: FakeStore, topic: str) -> list[FakeRecord]:
    return [record for record in store.log if record.topic == topic]


def meaning(record: FakeRecord) -> dict[str, Any]:
    """What a consumer of the record could tell: everything but its place and time."""
    fields = dataclasses.asdict(record)
    for name in ("queue_offset", "physical_offset", "store_timestamp", "tags_code", "properties_bytes"):
        del fields[name]
    return fields | {"properties": record.properties}


def test_delay_offsets_are_read_and_written_as_rocketmq_does(golden: GoldenStore, store: FakeStore) -> None:
    file = Path(store.path) / "config/delayOffset.json"
    before = file.read_text()
    service = ScheduleMessageService(store)
    service.load()
    table = golden.manifest["tables"]["delayOffset"]
    assert service.offsets == {int(level): offset for level, offset in table.items()}
    service.persist()
    assert file.read_text() == before


def test_delayed_messages_are_delivered_as_rocketmq_does(store: FakeStore) -> None:
    due = records(store, "golden_delay") + records(store, "%RETRY%golden_consumer")
    waiting = records(store, SCHEDULE_TOPIC)
    store.log = list(waiting)
    store.dispatch()
    service = ScheduleMessageService(store)
    assert service.run_once() == len(due) == 6
    delivered = sorted(store.log[len(waiting) :], key=lambda record: record.unique_key or "")
    expected = sorted(due, key=lambda record: record.unique_key or "")
    assert [meaning(record) | {"size": 0} for record in delivered] == [
        meaning(record) | {"size": 0} for record in expected
    ]


def test_sent_back_messages_are_stored_as_rocketmq_does(store: FakeStore) -> None:
    waiting = [r for r in records(store, SCHEDULE_TOPIC) if "ORIGIN_MESSAGE_ID" in r.properties]
    assert len(waiting) == 3
    for expected in waiting:
        (origin,) = [
            record
            for record in records(store, "golden_topic")
            if record.message_id == expected.properties["ORIGIN_MESSAGE_ID"]
        ]
        store.put(send_back(origin, "golden_consumer"))
        assert meaning(store.log[-1]) | {"size": 0} == meaning(expected) | {"size": 0}


def test_timer_files_are_read_as_rocketmq_does(golden: GoldenStore, store: FakeStore) -> None:
    timer = TimerMessageStore(store)
    found = timer.load()
    timer.close()
    assert (found.queue_offset, found.log_end, found.cut, found.wheel_rebuilt) == (35, 1872, 0, False)
    assert found.read_time == golden.manifest["timerCheckpoint"]["lastReadTimeMs"]
    for time, first, last, count, magic in golden.manifest["timerWheel"][
        "slots[timeMs,firstPos,lastPos,num,magic]"
    ]:
        slot = timer.wheel.slot(time)
        assert slot is not None
        assert slot == (time // 1000, first, last, count, magic)
    assert timer.metrics.counts == {"golden_timer": 3}


def test_timer_files_are_written_byte_for_byte_as_rocketmq_does(
    golden: GoldenStore, store: FakeStore, clock: ManualClock, tmp_path: Path
) -> None:
    store.path = str(tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    messages = records(store, TIMER_TOPIC)
    timer = TimerMessageStore(store)
    for count, moment in ((34, 1_794_712_560_900), (35, 1_794_712_561_050)):
        store.log = messages[:count]
        store.dispatch()
        clock.set(moment)
        if timer.write_time == 0:
            timer.load()
        timer.read_time = timer.write_time = moment // 1000 * 1000
        assert timer.run_once(moment).enqueued
    timer.stop()
    for name in ("timerlog/" + "0" * 20, f"timerlog/{1040:020d}", "timerwheel"):
        ours = (Path(store.path) / name).read_bytes()
        assert ours == (golden.path / name).read_bytes(), name


def test_wheel_made_again_from_the_timer_log_is_rocketmqs(golden: GoldenStore, store: FakeStore) -> None:
    (Path(store.path) / "timerwheel").unlink()
    (Path(store.path) / "config/timercheck").unlink()
    timer = TimerMessageStore(store)
    assert timer.load().wheel_rebuilt
    timer.wheel.flush()
    timer.close()
    assert (Path(store.path) / "timerwheel").read_bytes() == (golden.path / "timerwheel").read_bytes()


def test_timer_checkpoint_goes_on_from_rocketmqs(golden: GoldenStore, store: FakeStore) -> None:
    timer = TimerMessageStore(store)
    timer.load()
    timer.stop()
    before = (golden.path / "config/timercheck").read_bytes()
    after = (Path(store.path) / "config/timercheck").read_bytes()
    assert len(after) == 4096
    assert after[:40] == before[:40]
    assert int.from_bytes(after[48:56]) == int.from_bytes(before[48:56]) + 1


def test_timer_messages_are_delivered_as_rocketmq_does(store: FakeStore, clock: ManualClock) -> None:
    timer = TimerMessageStore(store)
    timer.load()
    timer.read_time = 1_794_712_560_000
    expected = {record.unique_key: record for record in records(store, "golden_timer")}
    before = len(store.log)
    assert timer.run_once().delivered == len(expected) == 32
    timer.close()
    for record in store.log[before:]:
        theirs = meaning(expected[record.unique_key])
        ours = meaning(record)
        for side in (ours, theirs):
            assert side["properties"].pop("TIMER_DEQUEUE_MS")
        assert ours | {"size": 0} == theirs | {"size": 0}


def test_rest_of_the_timer_fires_at_its_time(store: FakeStore, clock: ManualClock) -> None:
    timer = TimerMessageStore(store)
    timer.load()
    delivered = len(records(store, "golden_timer"))
    for moment, count in ((1_794_716_160_999, 0), (1_794_716_161_000, 2), (1_794_798_961_000, 3)):
        clock.set(moment)
        timer.run_once()
        assert len(records(store, "golden_timer")) - delivered == count
    timer.close()


def test_committed_messages_are_stored_as_rocketmq_does(store: FakeStore) -> None:
    transactions = TransactionService(store, TransactionOps(store))
    expected = {record.prepared_transaction_offset: record for record in records(store, "golden_trade")}
    assert len(expected) == 3
    for offset, record in expected.items():
        half = store.lookup(offset)
        assert half is not None
        assert transactions.end(EndTransaction(offset, half.queue_offset, GROUP, 8)).ok
        assert meaning(store.log[-1]) | {"size": 0} == meaning(record) | {"size": 0}


def test_check_asks_about_the_messages_rocketmq_asked_about(
    golden: GoldenStore, store: FakeStore, clock: ManualClock
) -> None:
    copies = [r for r in records(store, TRANS_HALF_TOPIC) if "TRANSACTION_CHECK_TIMES" in r.properties]
    assert [record.queue_offset for record in copies] == [9, 10, 11]
    store.log = [record for record in store.log if record not in copies]
    store.dispatch()
    (op,) = records(store, TRANS_OP_HALF_TOPIC)
    assert parse_op_body(op) == [0, 1, 3, 4, 7, 6]
    offsets = Offsets()
    asked: list[CheckRequest] = []
    check = TransactionCheckService(store, offsets, TransactionOps(store), asked.append)
    check.run_once()
    ours = records(store, TRANS_HALF_TOPIC)[9:]
    assert [meaning(r) | {"size": 0} for r in ours] == [meaning(r) | {"size": 0} for r in copies]
    assert [request.producer_group for request in asked] == [GROUP] * 3
    table = golden.manifest["tables"]["consumerOffset"]
    assert offsets.half == table[f"{TRANS_HALF_TOPIC}@{CHECK_GROUP}"]["0"]
    assert offsets.op == table[f"{TRANS_OP_HALF_TOPIC}@{CHECK_GROUP}"]["0"]
