"""Brokers that go away, messages that go away, bytes that are wrong."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Message
from penstock.client.sync import Producer
from penstock.config import StoreConfig
from penstock.errors import CorruptRecord, DataLost
from penstock.spark.network.access import Access
from penstock.spark.network.brokers import Brokers
from penstock.spark.network.pulls import Pulls
from penstock.spark.network.reading import BrokerSplit, broker_batches
from penstock.spark.options import ReadOptions
from penstock.spark.ranges import QueueRange
from penstock.testing import RunningBroker
from spark.network.rows import planned, rows

SMALL = StoreConfig(
    mapped_file_size_commit_log=1 << 16,
    mapped_file_size_consume_queue=20 * 100,
    max_hash_slot_num=64,
    max_index_num=4000,
    delete_commit_log_files_interval_ms=0,
    file_reserved_time_hours=1,
)
NUMBERS = 900
Factory = Callable[..., RunningBroker]


@pytest.fixture
def filled(penstock_broker_factory: Factory) -> RunningBroker:
    """A broker with messages of one topic in three queues and several log files."""
    broker = penstock_broker_factory(store=SMALL)
    broker.create_topic("t", 3)
    with Producer(namesrv=broker.namesrv) as producer:
        for first in range(0, NUMBERS, 100):
            some = range(first, first + 100)
            producer.send_batch([Message("t", b"%d." % number * 40, keys=f"k{number}") for number in some])
    return broker


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["body"].partition(b".")[0]) for row in found)


def read(splits: list[BrokerSplit], columns: list[str], options: ReadOptions) -> list[dict[str, Any]]:
    """The rows of planned tasks."""
    made = (batch for split in splits for batch in broker_batches(split, columns, options))
    return [row for batch in made for row in batch.to_pylist()]


def ranges_of(broker: RunningBroker) -> list[QueueRange]:
    name = f"t@{broker.broker.config.broker_name}"
    return [QueueRange(name, queue, 0, broker.store.max_offset("t", queue)) for queue in range(3)]


def test_a_broker_that_restarts_in_the_middle_of_a_read_loses_and_repeats_nothing(
    filled: RunningBroker,
) -> None:
    options, splits = planned(filled.namesrv, minPartitions=4, maxBatchRows=50)
    found: list[dict[str, Any]] = []
    for number, split in enumerate(splits):
        for turn, batch in enumerate(broker_batches(split, ["body"], options)):
            found += batch.to_pylist()
            if turn == 0 and number < 2:
                filled.restart()
    assert numbers(found) == list(range(NUMBERS))


def test_a_read_waits_for_a_broker_that_is_down(filled: RunningBroker) -> None:
    options, splits = planned(filled.namesrv)
    filled.stop()
    starting = threading.Timer(0.3, filled.start)
    starting.start()
    found = read(splits, ["body"], options)
    starting.join()
    assert numbers(found) == list(range(NUMBERS))


def test_a_broker_that_stays_away_is_an_error_within_the_patience(filled: RunningBroker) -> None:
    options, splits = planned(filled.namesrv, requestTimeout="200ms", retryTimeout="400ms")
    namesrv = filled.namesrv
    filled.stop()
    with pytest.raises(Exception, match="was asked for") as failed:
        list(broker_batches(splits[0], ["body"], options))
    assert namesrv.rpartition(":")[0] in str(failed.value)


def test_what_is_fetched_ahead_is_bounded_however_slow_the_reader(filled: RunningBroker) -> None:
    brokers = Brokers.of(Access(filled.namesrv))
    with Pulls(brokers, ranges_of(filled), chunk=50, ahead=3, buffer=4096) as pulls:
        made = iter(pulls)
        pieces = [next(made)]
        chunks = list(pulls.under_way)
        for _ in range(20):  # whatever the loop still does: nothing is read here meanwhile
            brokers.run(_a_moment())
        assert len(chunks) == 3
        largest = max(len(piece.records) for piece in pieces)
        assert all(chunk.held <= 4096 + max(largest, 256 << 10) for chunk in chunks)
        assert sum(chunk.held for chunk in chunks) < 3 * (4096 + largest)
        pieces += made
    assert sum(len(piece.records) for piece in pieces) == sum(
        row["size"] for row in rows(filled.namesrv, ["size"])
    )


async def _a_moment() -> None:
    import asyncio

    await asyncio.sleep(0.001)


def test_a_reader_that_stops_early_leaves_nothing_running(filled: RunningBroker) -> None:
    brokers = Brokers.of(Access(filled.namesrv))
    with Pulls(brokers, ranges_of(filled), chunk=20, ahead=4, buffer=1) as pulls:
        next(iter(pulls))
    brokers.run(_a_moment())
    brokers.run(_a_moment())
    assert not pulls.tasks


def make_old(broker: RunningBroker, files: int) -> None:
    """Let retention take the first files of the log."""
    for file in sorted((broker.path / "commitlog").iterdir())[:files]:
        os.utime(file, (1, 1))

    async def clean() -> int:
        return broker.store.clean()

    assert broker.run(clean()) == files


def test_messages_that_retention_took_after_planning_are_lost_with_their_ranges(
    filled: RunningBroker,
) -> None:
    options, splits = planned(filled.namesrv)
    make_old(filled, 2)
    firsts = {queue: filled.store.min_offset("t", queue) for queue in range(3)}
    with pytest.raises(DataLost) as failed:
        for split in splits:
            list(broker_batches(split, ["body"], options))
    name, queue, begin, end = failed.value.ranges[0]
    assert (name.partition("@")[0], begin, end) == ("t", 0, firsts[queue])
    relaxed, _ = planned(filled.namesrv, failOnDataLoss="false")
    found = read(splits, ["queueId", "queueOffset"], relaxed)
    for queue, first in firsts.items():
        assert min(row["queueOffset"] for row in found if row["queueId"] == queue) == first
    assert len(found) == NUMBERS - sum(firsts.values())


def test_offsets_that_were_taken_back_are_lost_with_their_ranges(
    filled: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.network.pulls._ODD_ANSWERS", 2)
    options, splits = planned(filled.namesrv, subscribe="t")
    part = splits[0].ranges[0]
    longer = type(splits[0])(splits[0].access, (part._replace(end=part.end + 30),))
    with pytest.raises(DataLost) as failed:
        list(broker_batches(longer, ["body"], options))
    assert failed.value.ranges == ((part.topic, part.queue_id, part.end, part.end + 30),)


def spoil(broker: RunningBroker, body: bytes) -> None:
    """Turn one byte of a stored body."""
    for file in sorted((broker.path / "commitlog").iterdir()):
        at = file.read_bytes().find(body)
        if at >= 0:
            with file.open("r+b") as opened:
                opened.seek(at)
                opened.write(b"X")
            return
    raise AssertionError("no such body")


def test_a_record_that_is_damaged_fails_the_read_or_is_set_aside(filled: RunningBroker) -> None:
    spoil(filled, b"417." * 40)
    with pytest.raises(CorruptRecord, match="as the broker sent it"):
        rows(filled.namesrv)
    others = [number for number in range(NUMBERS) if number != 417]
    assert numbers(rows(filled.namesrv, badRecords="skip")) == others
    found = rows(filled.namesrv, badRecords="quarantine")
    bad = [row for row in found if row["badRecord"] is not None]
    assert numbers([row for row in found if row["badRecord"] is None]) == others
    assert len(bad) == 1 and b"X17." in bad[0]["body"] and bad[0]["size"] == len(bad[0]["body"])
    assert len(rows(filled.namesrv, verifyCrc="false")) == NUMBERS


def test_more_messages_of_a_key_than_an_index_tells_at_once_are_all_found(
    penstock_broker_factory: Factory,
) -> None:
    broker = penstock_broker_factory(store=SMALL)
    broker.create_topic("t", 2)
    with Producer(namesrv=broker.namesrv) as producer:
        producer.send_batch([Message("t", b"%d." % n, keys=f"same k{n}") for n in range(200)])
    assert numbers(rows(broker.namesrv, keys="same")) == list(range(200))
    assert numbers(rows(broker.namesrv, keys="k7,k150")) == [7, 150]


def test_compressed_bodies_come_plain_unless_they_are_not_wanted_so(penstock_broker: RunningBroker) -> None:
    penstock_broker.create_topic("t", 1)
    with Producer(namesrv=penstock_broker.namesrv) as producer:
        producer.send(Message("t", b"long " * 5000))
    assert [row["body"] for row in rows(penstock_broker.namesrv)] == [b"long " * 5000]
    assert len(rows(penstock_broker.namesrv, decompress="false")[0]["body"]) < 5000


def test_messages_of_an_inner_batch_are_rows_of_their_own(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "b", store=SMALL) as broker:

        async def make() -> None:
            broker.store.make_batch_topic("inner", save=False)
            broker.broker.topics.ensure("inner", 1)

        broker.run(make())
        with Producer(namesrv=broker.namesrv) as producer:
            for first in range(0, 60, 20):
                producer.send_batch([Message("inner", b"%d." % n) for n in range(first, first + 20)])
        found = rows(broker.namesrv, ["queueOffset", "body"], subscribe="inner")
        assert [(row["queueOffset"], int(row["body"][:-1])) for row in found] == [(n, n) for n in range(60)]
        some = rows(
            broker.namesrv,
            ["queueOffset"],
            startingOffsets='{"inner":{"0":7}}',
            endingOffsets='{"inner":{"0":33}}',
            subscribe="inner",
            minPartitions=3,
        )
        assert [row["queueOffset"] for row in some] == list(range(7, 33))
