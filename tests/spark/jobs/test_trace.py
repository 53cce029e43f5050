"""The life of a message: every step of it, the same by index and by scan."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from golden_store import unpack
from penstock import Message, open_store
from penstock.clock import ManualClock
from penstock.errors import UsageError
from penstock.message.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from penstock.spark import jobs
from penstock.spark.jobs.trace import TraceResult, trace_by_index
from penstock.store.messagestore import MessageStore
from penstock.store.retry import send_back
from penstock.store.transaction import EndTransaction, TransactionService
from penstock.store.transactionops import TransactionOps

from .stores import CONFIG, messages_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = 1_790_000_000_000
COMMIT, ROLLBACK = 8, 12


def transact(store: MessageStore, key: str, action: int | None) -> None:
    ops = TransactionOps(store)
    service = TransactionService(store, ops)
    half = service.put_half(
        Message("orders", b"paid", keys=key, properties={"PGROUP": "shop", "TRAN_MSG": "true"})
    )
    assert half.ok
    store.flush()
    store.dispatch()
    if action is not None:
        verdict = EndTransaction(half.physical_offset, half.queue_offset, "shop", action)
        assert service.end(verdict).ok
        ops.flush()


def fail(store: MessageStore, clock: ManualClock, topic: str, offset: int, **options: int) -> None:
    """A group gives a message back; the delay passes."""
    store.flush()
    store.dispatch()
    (message,) = store.get(topic, 0, offset, 1).messages
    assert store.put(send_back(message, "billing", **options)).ok
    store.flush()
    store.dispatch()
    clock.advance(3 * 3_600_000)
    store.schedules.delay.run_once()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lives of all kinds, among messages that have nothing to do with them."""
    clock = ManualClock(NOW)
    path = tmp_path_factory.mktemp("trace") / "store"
    with open_store(path, config=CONFIG, clock=clock, background=False) as opened:
        assert isinstance(opened, MessageStore)
        opened.put_many([Message("noise", b"x" * 50, keys=f"n{n}") for n in range(300)])
        transact(opened, "committed", COMMIT)
        transact(opened, "rolled-back", ROLLBACK)
        transact(opened, "open", None)
        assert opened.put(Message("jobs", b"later", keys="delayed", delay_level=2)).ok
        opened.flush()
        opened.dispatch()
        clock.advance(60_000)
        opened.schedules.delay.run_once()
        assert opened.put(Message("mail", b"hard", keys="failing shared")).ok
        fail(opened, clock, "mail", 0)
        fail(opened, clock, "%RETRY%billing", 0, max_reconsume_times=1)
        assert opened.put(Message("mail", b"", keys="shared")).ok
        opened.put_many([Message("noise", b"x" * 50, keys=f"n{n}") for n in range(300)])
        opened.consumer_offsets.commit("billing", "mail", 0, 1)
    return path


def both(spark: SparkSession, path: Path, key: str) -> TraceResult:
    """By index and by scan; they agree, and every step is a record of the log."""
    by_index = jobs.trace(spark, path, key, via="index")
    by_scan = jobs.trace(spark, path, key, via="scan", split_bytes=20_000)
    assert by_index.steps == by_scan.steps
    assert (by_index.via, by_scan.via) == ("index", "scan")
    return by_index


def kinds(result: TraceResult) -> list[tuple[str, str]]:
    return [(step.kind, step.topic) for step in result.steps]


def test_committed_transaction(store: Path, spark: SparkSession) -> None:
    result = both(spark, store, "committed")
    assert kinds(result) == [
        ("half", TRANS_HALF_TOPIC),
        ("committed", "orders"),
        ("op", TRANS_OP_HALF_TOPIC),
    ]
    half, _, op = result.steps
    assert "shop" in half.meaning and "orders" in half.meaning
    assert "committed" in op.meaning
    assert len(result.messages) == 1


def test_rolled_back_transaction(store: Path, spark: SparkSession) -> None:
    result = both(spark, store, "rolled-back")
    assert kinds(result) == [("half", TRANS_HALF_TOPIC), ("op", TRANS_OP_HALF_TOPIC)]
    assert "rolled back" in result.steps[1].meaning


def test_open_transaction_is_a_half_message_only(store: Path, spark: SparkSession) -> None:
    assert kinds(both(spark, store, "open")) == [("half", TRANS_HALF_TOPIC)]


def test_delayed_message(store: Path, spark: SparkSession) -> None:
    result = both(spark, store, "delayed")
    assert kinds(result) == [("delayed", SCHEDULE_TOPIC), ("delivered", "jobs")]
    assert "5 s" in result.steps[0].meaning and "jobs" in result.steps[0].meaning


def test_message_that_fails_until_it_is_dead(store: Path, spark: SparkSession) -> None:
    result = both(spark, store, "failing")
    assert kinds(result) == [
        ("stored", "mail"),
        ("delayed", SCHEDULE_TOPIC),
        ("retry", "%RETRY%billing"),
        ("dead-letter", "%DLQ%billing"),
    ]
    stored, delayed, retry, dead = result.steps
    assert stored.consumed_by == ["billing"]
    assert "group billing could not consume it from mail" in delayed.meaning
    assert retry.reconsume_times == 1
    assert "gave up" in dead.meaning
    assert len(result.messages) == 1


def test_a_key_of_two_messages_gives_two_lives(store: Path, spark: SparkSession) -> None:
    result = both(spark, store, "shared")
    assert len(result.messages) == 2
    assert [step.message == result.messages[1] for step in result.steps] == [False] * 4 + [True]


def test_unique_key_and_message_id_lead_to_the_same_life(store: Path, spark: SparkSession) -> None:
    by_key = both(spark, store, "failing").steps
    first = by_key[0]
    assert both(spark, store, first.message).steps == by_key
    assert both(spark, store, first.message_id).steps == by_key


def test_steps_are_what_a_full_look_at_the_log_gives(store: Path, spark: SparkSession) -> None:
    unique = both(spark, store, "failing").messages[0]
    expected = [m.physical_offset for m in messages_of(store) if m.unique_key == unique]
    assert [step.physical_offset for step in both(spark, store, "failing").steps] == expected


def test_without_an_index_the_log_is_scanned(store: Path, tmp_path: Path, spark: SparkSession) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    shutil.rmtree(copy / "index")
    assert trace_by_index(copy, "failing") is None
    result = jobs.trace(spark, copy, "failing")
    assert result.via == "scan"
    assert [s.kind for s in result.steps] == ["stored", "delayed", "retry", "dead-letter"]
    with pytest.raises(UsageError, match="no index"):
        jobs.trace(spark, copy, "failing", via="index")


def test_segments_alone_are_scanned(store: Path, spark: SparkSession) -> None:
    result = jobs.trace(spark, store / "commitlog", "delayed")
    assert (result.via, [step.kind for step in result.steps]) == ("scan", ["delayed", "delivered"])


def test_an_unknown_key_has_no_life(store: Path, spark: SparkSession) -> None:
    result = jobs.trace(spark, store, "nobody")
    assert (result.via, result.steps, result.messages) == ("scan", [], [])


def test_every_key_of_a_real_brokers_store(tmp_path: Path, spark: SparkSession) -> None:
    """Messages that real clients sent through RocketMQ: transactions, delays, timers, retries."""
    golden = unpack("broker", tmp_path)
    messages = [m for m in messages_of(golden.path) if m.unique_key]
    seen: dict[str, list[str]] = {}
    for message in messages:
        seen.setdefault(message.topic, []).append(message.unique_key or "")
    for uniques in seen.values():
        result = both(spark, golden.path, uniques[0])
        offsets = {m.physical_offset for m in messages if m.unique_key == uniques[0]}
        steps = {s.physical_offset for s in result.steps if s.topic != TRANS_OP_HALF_TOPIC}
        assert steps == offsets


@pytest.mark.parametrize(("key", "via"), [("", "auto"), ("two words", "auto"), ("k", "magic")])
def test_what_makes_no_sense_is_refused(key: str, via: str, store: Path, spark: SparkSession) -> None:
    with pytest.raises(UsageError):
        jobs.trace(spark, store, key, via=via)
