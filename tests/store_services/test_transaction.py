"""Half messages, commit, rollback and op messages."""

from __future__ import annotations

import pytest
from fakestore import FAKE_ONLY, FakeStore

from penstock.clock import ManualClock
from penstock.message import Message
from penstock.message.topic import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from penstock.store.transaction import EndTransaction, TransactionService
from penstock.store.transactionops import TransactionOps

COMMIT, ROLLBACK = 8, 12


@pytest.fixture
def ops(store: FakeStore) -> TransactionOps:
    return TransactionOps(store)


@pytest.fixture
def transactions(store: FakeStore, ops: TransactionOps) -> TransactionService:
    return TransactionService(store, ops)


def half_message(body: bytes = b"x", **properties: str) -> Message:
    return Message(
        "trade",
        body,
        tags="TagA",
        queue_id=2,
        sys_flag=4,
        unique_key="U1",
        properties={"TRAN_MSG": "true", "PGROUP": "group", **properties},
    )


def verdict(store: FakeStore, index: int, verdict: int, **changes: object) -> EndTransaction:
    half = [record for record in store.log if record.topic == TRANS_HALF_TOPIC][index]
    fields = {"producer_group": "group", "action": verdict, "half_queue_offset": half.queue_offset}
    return EndTransaction(commit_log_offset=half.physical_offset, **(fields | changes))  # type: ignore[arg-type]


def test_half_message_is_stored_where_nobody_subscribes(
    store: FakeStore, transactions: TransactionService
) -> None:
    assert transactions.put_half(half_message()).ok
    (half,) = store.log
    assert (half.topic, half.queue_id, half.sys_flag) == (TRANS_HALF_TOPIC, 0, 0)
    assert half.properties == {
        "TRAN_MSG": "true",
        "PGROUP": "group",
        "TAGS": "TagA",
        "UNIQ_KEY": "U1",
        "__transactionId__": "U1",
        "REAL_TOPIC": "trade",
        "REAL_QID": "2",
    }


def test_committed_message_appears_under_its_real_topic(
    store: FakeStore, transactions: TransactionService
) -> None:
    transactions.put_half(half_message(b"body"))
    outcome = transactions.end(verdict(store, 0, COMMIT))
    assert outcome.ok
    half, committed = store.log
    assert (committed.topic, committed.queue_id, committed.body) == ("trade", 2, b"body")
    assert committed.sys_flag == 8
    assert committed.prepared_transaction_offset == half.physical_offset
    assert committed.properties == {
        "TRAN_MSG": "true",
        "PGROUP": "group",
        "TAGS": "TagA",
        "UNIQ_KEY": "U1",
        "__transactionId__": "U1",
    }


def test_rolled_back_message_never_appears(store: FakeStore, transactions: TransactionService) -> None:
    transactions.put_half(half_message())
    assert transactions.end(verdict(store, 0, ROLLBACK)).ok
    transactions.ops.flush()
    assert store.bodies("trade") == []
    assert store.bodies(TRANS_OP_HALF_TOPIC) == [b"0,"]


def test_delay_of_a_half_message_begins_with_its_commit(
    store: FakeStore, transactions: TransactionService
) -> None:
    transactions.put_half(half_message(DELAY="3"))
    assert store.log[0].topic == TRANS_HALF_TOPIC
    assert transactions.end(verdict(store, 0, COMMIT)).ok
    delayed = store.log[1]
    assert (delayed.topic, delayed.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert (delayed.properties["REAL_TOPIC"], delayed.properties["REAL_QID"]) == ("trade", "2")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"producer_group": "other"}, "SYSTEM_ERROR"),
        ({"half_queue_offset": 1}, "SYSTEM_ERROR"),
        ({"action": 0}, "IGNORED"),
        ({"action": 4}, "IGNORED"),
    ],
)
def test_verdict_that_does_not_fit_changes_nothing(
    store: FakeStore, transactions: TransactionService, changes: dict[str, object], code: str
) -> None:
    transactions.put_half(half_message())
    assert transactions.end(verdict(store, 0, COMMIT, **changes)).code == code
    transactions.ops.flush()
    assert len(store.log) == 1


def test_verdict_on_a_message_that_is_no_half_message_is_refused(
    store: FakeStore, transactions: TransactionService
) -> None:
    store.put(Message("plain", b"x", properties={"PGROUP": "group", "REAL_TOPIC": "t", "REAL_QID": "0"}))
    assert transactions.end(EndTransaction(0, 0, "group", COMMIT)).code == "SYSTEM_ERROR"
    assert transactions.end(EndTransaction(12345, 0, "group", COMMIT)).code == "SYSTEM_ERROR"
    assert len(store.log) == 1


def test_verdict_after_the_immunity_time_is_left_to_the_check(
    store: FakeStore, transactions: TransactionService, clock: ManualClock
) -> None:
    transactions.put_half(half_message(CHECK_IMMUNITY_TIME_IN_SECONDS="10"))
    clock.advance(10_001)
    assert transactions.end(verdict(store, 0, COMMIT)).code == "ILLEGAL_OPERATION"
    assert transactions.end(verdict(store, 0, COMMIT, from_check=True)).ok


def test_half_message_stays_open_when_the_committed_one_is_not_stored(
    store: FakeStore, transactions: TransactionService, ops: TransactionOps
) -> None:
    transactions.put_half(half_message())
    store.refuse = lambda message: "OS_PAGE_CACHE_BUSY"
    assert transactions.end(verdict(store, 0, COMMIT)).code == "SYSTEM_ERROR"
    assert not ops.is_over(0)


def test_op_message_has_rocketmqs_bytes(store: FakeStore, ops: TransactionOps) -> None:
    for offset in (0, 1, 3, 4, 7, 6):
        ops.mark(offset)
    ops.flush()
    (record,) = store.log
    assert (record.topic, record.queue_id, record.body) == (TRANS_OP_HALF_TOPIC, 0, b"0,1,3,4,7,6,")
    assert record.properties == {"WAIT": "true", "TAGS": "d"}


def test_op_messages_are_written_after_their_interval(
    store: FakeStore, ops: TransactionOps, clock: ManualClock
) -> None:
    ops.mark(5)
    clock.advance(2999)
    assert ops.run_once() == 0
    clock.advance(1)
    assert ops.run_once() == 1
    assert store.bodies(TRANS_OP_HALF_TOPIC) == [b"5,"]


def test_op_message_is_written_at_once_when_it_is_large(store: FakeStore, ops: TransactionOps) -> None:
    for offset in range(1000, 2000):
        ops.mark(offset)
    bodies = store.bodies(TRANS_OP_HALF_TOPIC)
    assert len(bodies) == 1
    assert 4096 <= len(bodies[0]) <= 4096 + 5
    ops.stop()
    named = b"".join(store.bodies(TRANS_OP_HALF_TOPIC)).decode().strip(",").split(",")
    assert named == [str(offset) for offset in range(1000, 2000)]


def test_names_stay_when_an_op_message_is_not_stored(store: FakeStore, ops: TransactionOps) -> None:
    ops.mark(5)
    store.refuse = lambda message: "OS_PAGE_CACHE_BUSY"
    assert ops.flush() == 0
    assert ops.is_over(5)
    store.refuse = lambda message: None
    assert ops.flush() == 1
    assert store.bodies(TRANS_OP_HALF_TOPIC) == [b"5,"]


@FAKE_ONLY
def test_half_message_counts_as_over_before_a_reader_can_see_its_op_message(
    store: FakeStore, ops: TransactionOps
) -> None:
    store.dispatching = False
    ops.mark(5)
    ops.flush()
    assert ops.is_over(5)
    store.dispatch()
    assert not ops.is_over(5)
