"""``config/transactionMetrics``: open transactions by topic, in RocketMQ's form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.message import Message
from penstock.message.topic import TRANS_HALF_TOPIC
from penstock.store.transaction import EndTransaction, TransactionService
from penstock.store.transactionops import TransactionOps

PATH = "/store/config/transactionMetrics"
COMMIT, ROLLBACK = 8, 12


def begin(service: TransactionService, topic: str) -> None:
    properties = {"TRAN_MSG": "true", "PGROUP": "g"}
    assert service.put_half(Message(topic, b"x", sys_flag=4, properties=properties)).ok


def end(store: Any, service: TransactionService, index: int, action: int) -> None:
    half = [record for record in store.log if record.topic == TRANS_HALF_TOPIC][index]
    verdict = EndTransaction(half.physical_offset, half.queue_offset, "g", action)
    assert service.end(verdict).ok


def test_open_transactions_are_counted_by_real_topic_and_read_back(store: Any, clock: ManualClock) -> None:
    ops = TransactionOps(store)
    service = TransactionService(store, ops)
    for topic in ("trade", "trade", "trade", "pay"):
        begin(service, topic)
    end(store, service, 0, COMMIT)
    end(store, service, 1, ROLLBACK)
    end(store, service, 1, ROLLBACK)  # said twice, over once
    assert ops.metrics.counts == {"trade": 1, "pay": 1}
    ops.stop()
    again = TransactionOps(store)
    assert again.metrics.counts == {"trade": 1, "pay": 1}
    end(store, TransactionService(store, again), 3, COMMIT)
    assert again.metrics.counts["pay"] == 0


def test_file_is_one_line_in_rocketmqs_form(store: Any, clock: ManualClock) -> None:
    ops = TransactionOps(store)
    begin(TransactionService(store, ops), "trade")
    ops.metrics.add("支付", 1)
    ops.stop()
    text = store.storage.read_file(PATH).decode()
    assert text.isascii() and "\n" not in text
    content = json.loads(text)
    assert content["transactionCount"] == {
        "trade": {"count": 1, "timeStamp": clock.now_ms()},
        "支付": {"count": 1, "timeStamp": clock.now_ms()},
    }
    assert content["dataVersion"] == {"counter": 2, "stateVersion": 0, "timestamp": clock.now_ms()}


def test_refused_half_message_is_not_counted(store: Any) -> None:
    ops = TransactionOps(store)
    store.refuse = lambda message: "SERVICE_NOT_AVAILABLE"
    service = TransactionService(store, ops)
    assert not service.put_half(Message("trade", b"x", sys_flag=4)).ok
    assert ops.metrics.counts == {}


@pytest.mark.parametrize("torn", [b"", b'{"transactionCount":{"trade":{"co'])
def test_torn_file_gives_way_to_its_backup(store: Any, torn: bytes) -> None:
    ops = TransactionOps(store)
    service = TransactionService(store, ops)
    begin(service, "trade")
    ops.stop()
    begin(service, "trade")
    ops.stop()
    store.storage.create_file(PATH, torn)
    assert TransactionOps(store).metrics.counts == {"trade": 1}, "what the backup says"
    store.storage.create_file(PATH + ".bak", b"{")
    store.storage.create_file(PATH, b"{")
    assert TransactionOps(store).metrics.counts == {}, "counts are for people: they start anew"


def test_discarded_half_message_is_open_no_more(store: Any, clock: ManualClock) -> None:
    from penstock.store.consumeroffset import ConsumerOffsets
    from penstock.store.transactioncheck import TransactionCheckService

    ops = TransactionOps(store)
    begin(TransactionService(store, ops), "trade")
    offsets = ConsumerOffsets(store.storage, "/store/config/consumerOffset.json", clock=clock)
    check = TransactionCheckService(store, offsets, ops, lambda request: None)
    clock.advance(store.config.file_reserved_time_hours * 3_600_000 + 1)
    assert check.run_once().discarded == 1
    assert ops.metrics.counts == {"trade": 0}
