"""The check of open transactions: everybody is asked, nobody twice for nothing, and it always moves on."""

from __future__ import annotations

import pytest
from fakestore import FAKE_ONLY, FakeStore
from test_transaction import COMMIT, half_message, verdict

from penstock.clock import ManualClock
from penstock.errors import StoreReadOnly
from penstock.message import Message
from penstock.message.topic import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from penstock.store.transaction import EndTransaction, TransactionService
from penstock.store.transactioncheck import CHECK_GROUP, CheckRequest, TransactionCheckService
from penstock.store.transactionops import TransactionOps


class Offsets:
    """Progress of the check, as ``consumerOffset.json`` keeps it."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, str, int], int] = {}

    def query(self, group: str, topic: str, queue_id: int) -> int:
        return self.table.get((group, topic, queue_id), -1)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.table[group, topic, queue_id] = offset

    @property
    def half(self) -> int:
        return self.query(CHECK_GROUP, TRANS_HALF_TOPIC, 0)

    @property
    def op(self) -> int:
        return self.query(CHECK_GROUP, TRANS_OP_HALF_TOPIC, 0)


class Fixture:
    """A transaction service, its check, and the questions asked."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.offsets = Offsets()
        self.asked: list[CheckRequest] = []
        self.restart()

    def restart(self) -> None:
        """New services over the same store and the same kept progress."""
        self.ops = TransactionOps(self.store)
        self.transactions = TransactionService(self.store, self.ops)
        self.check = TransactionCheckService(self.store, self.offsets, self.ops, self.asked.append)

    def put(self, body: bytes = b"x", **properties: str) -> None:
        assert self.transactions.put_half(half_message(body, **properties)).ok

    def halves(self) -> list[bytes]:
        return self.store.bodies(TRANS_HALF_TOPIC)


@pytest.fixture
def fixture(store: FakeStore) -> Fixture:
    return Fixture(store)


def test_producer_of_an_open_half_message_is_asked_about_a_copy(fixture: Fixture, clock: ManualClock) -> None:
    fixture.put()
    clock.advance(6001)
    report = fixture.check.run_once()
    assert (report.asked, fixture.offsets.half) == (1, 1)
    (request,) = fixture.asked
    copy = fixture.store.log[-1]
    assert (request.producer_group, request.times) == ("group", 1)
    assert (request.queue_offset, request.physical_offset) == (1, copy.physical_offset)
    assert copy.properties == {**fixture.store.log[0].properties, "TRANSACTION_CHECK_TIMES": "1"}
    answer = EndTransaction(request.physical_offset, request.queue_offset, "group", COMMIT, from_check=True)
    assert fixture.transactions.end(answer).ok
    assert fixture.store.bodies("trade") == [b"x"]


def test_ended_half_message_is_not_asked_about(fixture: Fixture, clock: ManualClock) -> None:
    for number in range(3):
        fixture.put(str(number).encode())
        fixture.transactions.end(verdict(fixture.store, number, COMMIT))
    clock.advance(10_000)
    report = fixture.check.run_once()
    assert (report.over, report.asked) == (3, 0)
    assert (fixture.offsets.half, fixture.offsets.op) == (3, 1)


@FAKE_ONLY
def test_verdict_still_in_memory_counts(fixture: Fixture, clock: ManualClock) -> None:
    fixture.put()
    clock.advance(10_000)
    fixture.store.dispatching = False
    fixture.transactions.end(verdict(fixture.store, 0, COMMIT))
    assert fixture.check.run_once().asked == 0


def test_young_half_message_is_left_for_the_next_pass(fixture: Fixture, clock: ManualClock) -> None:
    fixture.put()
    clock.advance(6000)
    assert fixture.check.run_once().asked == 0
    assert fixture.offsets.half == 0
    clock.advance(1)
    assert fixture.check.run_once().asked == 1


def test_s22_half_message_stored_in_the_millisecond_of_a_pass_is_checked_by_a_later_one(
    fixture: Fixture, clock: ManualClock
) -> None:
    clock.advance(10_000)
    fixture.put()
    assert fixture.check.run_once(clock.now_ms()).asked == 0
    assert fixture.offsets.half == 0
    clock.advance(6001)
    assert fixture.check.run_once().asked == 1


def test_s22_check_goes_on_when_the_clock_was_set_back(fixture: Fixture, clock: ManualClock) -> None:
    fixture.put(b"first")
    clock.set(clock.now_ms() - 3_600_000)
    fixture.put(b"second")
    clock.advance(6001)
    report = fixture.check.run_once()
    assert [request.half.body for request in fixture.asked] == [b"first", b"second"]
    assert report.half_offset == 2


def test_s22_pass_ends_at_the_copies_it_made(fixture: Fixture, clock: ManualClock) -> None:
    for number in range(3):
        fixture.put(str(number).encode())
    clock.advance(6001)
    assert fixture.check.run_once().asked == 3
    assert fixture.halves() == [b"0", b"1", b"2"] * 2
    assert fixture.offsets.half == 3


def test_s22_listener_that_raises_does_not_freeze_the_offsets(fixture: Fixture, clock: ManualClock) -> None:
    def listener(request: CheckRequest) -> None:
        if request.half.body == b"0":
            raise RuntimeError("producer is gone")
        fixture.asked.append(request)

    for number in range(3):
        fixture.put(str(number).encode())
    clock.advance(6001)
    check = TransactionCheckService(fixture.store, fixture.offsets, fixture.ops, listener)
    report = check.run_once()
    assert (report.asked, report.failed) == (3, 1)
    assert [request.half.body for request in fixture.asked] == [b"1", b"2"]
    assert fixture.offsets.half == 3


@FAKE_ONLY
def test_s22_record_that_cannot_be_understood_is_set_aside(fixture: Fixture, clock: ManualClock) -> None:
    for number in range(3):
        fixture.put(str(number).encode())
    clock.advance(6001)
    bad = fixture.store.log[1]
    object.__setattr__(bad, "born_timestamp", None)
    report = fixture.check.run_once()
    assert (report.asked, report.failed, report.discarded) == (2, 1, 1)
    assert fixture.offsets.half == 3
    assert fixture.store.bodies(TRANS_CHECK_MAX_TIME_TOPIC) == [b"1"]


@FAKE_ONLY
def test_s22_unreadable_half_message_is_passed_over(fixture: Fixture, clock: ManualClock) -> None:
    for number in range(3):
        fixture.put(str(number).encode())
    clock.advance(6001)
    fixture.store.removed.add(fixture.store.log[1].physical_offset)
    report = fixture.check.run_once()
    assert (report.asked, report.missing, report.half_offset) == (2, 1, 3)


def test_s22_progress_is_kept_when_the_store_fails_in_the_middle(
    fixture: Fixture, clock: ManualClock
) -> None:
    for number in range(3):
        fixture.put(str(number).encode())
    clock.advance(6001)

    def refuse(message: Message) -> None:
        if message.body == b"1":
            raise StoreReadOnly("sync failed")

    fixture.store.refuse = refuse
    with pytest.raises(StoreReadOnly):
        fixture.check.run_once()
    assert fixture.offsets.half == 1
    fixture.store.refuse = lambda message: None
    fixture.check.run_once()
    assert [request.half.body for request in fixture.asked] == [b"0", b"1", b"2", b"0"]


def test_s22_copy_too_large_to_store_is_set_aside(fixture: Fixture, clock: ManualClock) -> None:
    for number in range(2):
        fixture.put(str(number).encode())
    clock.advance(6001)
    fixture.store.refuse = lambda message: (
        "PROPERTIES_SIZE_EXCEEDED" if message.topic == TRANS_HALF_TOPIC and message.body == b"0" else None
    )
    report = fixture.check.run_once()
    assert (report.asked, report.discarded, report.half_offset) == (1, 1, 2)


def test_s22_check_counter_does_not_burn_during_the_immunity_time(
    fixture: Fixture, clock: ManualClock
) -> None:
    fixture.put(CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    for _ in range(20):
        clock.advance(30_000)
        report = fixture.check.run_once()
        assert (report.postponed, report.discarded, report.asked) == (1, 0, 0)
    copy = fixture.store.log[-1]
    assert "TRANSACTION_CHECK_TIMES" not in copy.properties
    assert copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    clock.advance(3_600_000)
    assert fixture.check.run_once().asked == 1
    assert fixture.asked[0].times == 1


def test_s22_verdict_on_the_original_ends_its_immune_copy(fixture: Fixture, clock: ManualClock) -> None:
    fixture.put(CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    clock.advance(30_000)
    assert fixture.check.run_once().postponed == 1
    fixture.transactions.end(verdict(fixture.store, 0, COMMIT))
    fixture.ops.flush()
    fixture.restart()
    clock.advance(100_000)
    report = fixture.check.run_once()
    assert (report.over, report.asked) == (1, 0)
    assert (fixture.offsets.half, fixture.offsets.op) == (2, 1)


def test_s22_late_verdict_waits_for_a_pass_that_reaches_its_copy(
    fixture: Fixture, clock: ManualClock
) -> None:
    fixture.put(b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="40")
    clock.advance(30_000)
    fixture.put(b"young")
    assert fixture.check.run_once().postponed == 1
    assert fixture.halves() == [b"immune", b"young", b"immune"]
    fixture.transactions.end(verdict(fixture.store, 0, COMMIT))
    fixture.ops.flush()
    fixture.restart()
    clock.advance(5000)
    fixture.check.run_once()
    assert fixture.offsets.op == 0
    clock.advance(60_000)
    report = fixture.check.run_once()
    assert [request.half.body for request in fixture.asked] == [b"young"]
    assert (report.over, fixture.offsets.op) == (1, 1)


def test_half_message_checked_too_often_goes_to_the_discard_topic(
    fixture: Fixture, clock: ManualClock
) -> None:
    fixture.put()
    for _ in range(15):
        clock.advance(30_000)
        assert fixture.check.run_once().asked == 1
    clock.advance(30_000)
    report = fixture.check.run_once()
    assert (report.asked, report.discarded) == (0, 1)
    assert [request.times for request in fixture.asked] == list(range(1, 16))
    (record,) = [r for r in fixture.store.log if r.topic == TRANS_CHECK_MAX_TIME_TOPIC]
    assert (record.queue_id, record.body) == (0, b"x")


def test_half_message_older_than_the_log_is_kept_is_discarded(fixture: Fixture, clock: ManualClock) -> None:
    fixture.put()
    clock.advance(72 * 3_600_000 + 1)
    assert fixture.check.run_once().discarded == 1


def test_op_message_is_done_only_when_all_its_half_messages_are(fixture: Fixture, clock: ManualClock) -> None:
    for number in range(2):
        fixture.put(str(number).encode())
    clock.advance(10_000)
    fixture.put(b"young")
    fixture.put(b"ended")
    for index in (0, 3):
        fixture.transactions.end(verdict(fixture.store, index, COMMIT))
    fixture.check.run_once()
    assert (fixture.offsets.half, fixture.offsets.op) == (2, 0)
    clock.advance(10_000)
    fixture.check.run_once()
    assert fixture.offsets.op == 1
    assert [request.half.body for request in fixture.asked] == [b"1", b"young", b"1"]


def test_s30_check_goes_on_where_it_was_after_a_restart(fixture: Fixture, clock: ManualClock) -> None:
    for number in range(5):
        fixture.put(str(number).encode())
        fixture.transactions.end(verdict(fixture.store, number, COMMIT))
    clock.advance(10_000)
    fixture.check.run_once()
    fixture.restart()
    report = fixture.check.run_once()
    assert (report.over, report.asked, report.half_offset) == (0, 0, 5)


def test_s30_missing_progress_starts_at_the_head_and_finds_the_verdicts(
    fixture: Fixture, clock: ManualClock
) -> None:
    for number in range(3):
        fixture.put(str(number).encode())
        fixture.transactions.end(verdict(fixture.store, number, COMMIT))
    clock.advance(10_000)
    fixture.check.run_once()
    fixture.offsets.table.clear()
    fixture.restart()
    report = fixture.check.run_once()
    assert (report.over, report.asked) == (3, 0)


@FAKE_ONLY
def test_s07_progress_behind_a_cut_queue_is_moved_to_its_end(fixture: Fixture, clock: ManualClock) -> None:
    for number in range(3):
        fixture.put(str(number).encode())
        fixture.transactions.end(verdict(fixture.store, number, COMMIT))
    clock.advance(10_000)
    fixture.check.run_once()
    fixture.store.cut(2)
    fixture.restart()
    fixture.check.run_once()
    assert fixture.offsets.half == 1
    fixture.put(b"new")
    clock.advance(6001)
    assert fixture.check.run_once().asked == 1


def test_stopping_asks_nobody(fixture: Fixture, clock: ManualClock) -> None:
    fixture.put()
    clock.advance(6001)
    fixture.check.start()
    fixture.check.stop()
    fixture.ops.stop()
    assert fixture.asked == []
    assert len(fixture.halves()) == 1
