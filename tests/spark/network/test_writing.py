"""Rows become messages at brokers: every column arrives, a repetition sends only what is missing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock import Message
from penstock.config import StoreConfig
from penstock.errors import MessageRejected, UsageError
from penstock.format.javahash import java_hash
from penstock.spark.network.access import Access
from penstock.spark.network.outbox import Outbox
from penstock.spark.network.rowsender import Identity, RowSender, Written
from penstock.spark.rowencoder import WritePlan
from penstock.spark.writeoptions import WriteOptions
from penstock.testing import RunningBroker
from spark.network.rows import rows


def send(broker: RunningBroker, batches: list[pa.RecordBatch], name: str = "w", **options: Any) -> Written:
    """What a task does with its rows."""
    given = WriteOptions.parse({"namesrv": broker.namesrv, "topic": "t", **options})
    plan = WritePlan(given, tuple(batches[0].schema.names), StoreConfig())
    return RowSender(plan, Access(broker.namesrv), Identity(name, 0)).send(iter(batches))


def bodies(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": pa.array([b"%d" % number for number in numbers], pa.binary())})


def stored(broker: RunningBroker) -> list[int]:
    return sorted(int(row["body"]) for row in rows(broker.namesrv, ["body"], subscribe="t"))


def test_every_column_arrives(penstock_broker: RunningBroker) -> None:
    born = datetime(2024, 5, 1, 12, tzinfo=UTC)
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["a", "t"],
            "body": [b"one", b"two"],
            "keys": ["k1 k2", None],
            "tags": ["red", None],
            "properties": [[("x", "1")], None],
            "queueId": [3, 1],
            "uniqKey": ["U1", None],
            "flag": [7, None],
            "bornTimestamp": [born, born],
        },
        schema=pa.schema(
            {
                **dict.fromkeys(("topic", "keys", "tags", "uniqKey"), pa.string()),
                "body": pa.binary(),
                "properties": pa.map_(pa.string(), pa.string()),
                **dict.fromkeys(("queueId", "flag"), pa.int32()),
                "bornTimestamp": pa.timestamp("us", "UTC"),
            }
        ),
    )
    batch = batch.select(
        ["topic", "body", "keys", "tags", "properties", "queueId", "uniqKey", "flag", "bornTimestamp"]
    )
    assert send(penstock_broker, [batch]) == Written(2, 0)
    (one,) = rows(penstock_broker.namesrv, subscribe="a")
    (two,) = rows(penstock_broker.namesrv, subscribe="t")
    assert (one["body"], one["keys"], one["tags"], one["flag"], one["queueId"]) == (
        b"one",
        "k1 k2",
        "red",
        7,
        3,
    )
    assert one["uniqKey"] == "U1" and one["properties"]["x"] == "1"
    assert one["bornTimestamp"] == two["bornTimestamp"] == 1714564800000
    assert (two["queueId"], len(two["uniqKey"])) == (1, 32)


def test_rows_spread_over_the_queues_and_keep_their_order_there(penstock_broker: RunningBroker) -> None:
    penstock_broker.create_topic("t", 3)
    assert send(penstock_broker, [bodies(*range(1000)), bodies(*range(1000, 3000))]).sent == 3000
    found = rows(penstock_broker.namesrv, ["queueId", "body"], subscribe="t")
    for queue in range(3):
        numbers = [int(row["body"]) for row in found if row["queueId"] == queue]
        assert numbers == sorted(numbers) and len(numbers) == 1000


def test_an_order_key_goes_where_rocketmqs_selector_has_it_go(penstock_broker: RunningBroker) -> None:
    for topic, queues in (("t", 5), ("u", 8)):
        penstock_broker.create_topic(topic, queues)
    keys = [f"customer-{number}" for number in range(40)]
    for topics, queues in ((["t"] * 40, 5), (["u"] * 40, 8)):
        batch = pa.RecordBatch.from_pydict(
            {"topic": topics, "body": [k.encode() for k in keys], "orderKey": keys}
        )
        send(penstock_broker, [batch], name=topics[0])
        for row in rows(penstock_broker.namesrv, ["queueId", "body"], subscribe=topics[0]):
            assert row["queueId"] == abs(java_hash(row["body"].decode())) % queues


def test_a_repeated_task_sends_nothing_again(penstock_broker: RunningBroker) -> None:
    assert send(penstock_broker, [bodies(*range(500))]) == Written(500, 0)
    assert send(penstock_broker, [bodies(*range(500))]) == Written(0, 500)
    assert stored(penstock_broker) == list(range(500))
    assert send(penstock_broker, [bodies(*range(500))], name="another write") == Written(500, 0)


def test_a_task_that_died_half_way_is_completed(
    penstock_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, seen = Outbox.put, []

    def dies(self: Outbox, parcel: Any) -> None:
        seen.append(parcel)
        if len(seen) > 3:
            raise KeyboardInterrupt
        put(self, parcel)
        self.finish()

    monkeypatch.setattr("penstock.spark.network.rowsender.BATCH_MESSAGES", 10)
    with monkeypatch.context() as patched:
        patched.setattr(Outbox, "put", dies)
        with pytest.raises(KeyboardInterrupt):
            send(penstock_broker, [bodies(*range(200))])
    half = len(stored(penstock_broker))
    assert 0 < half < 200
    assert send(penstock_broker, [bodies(*range(200))]) == Written(200 - half, half)
    assert stored(penstock_broker) == list(range(200))


def test_rows_that_changed_between_two_attempts_are_sent_never_taken_for_stored(
    penstock_broker: RunningBroker,
) -> None:
    send(penstock_broker, [bodies(1, 2, 3)])
    assert send(penstock_broker, [bodies(1, 3, 4)]) == Written(2, 1)
    assert set(stored(penstock_broker)) == {1, 2, 3, 4}


def test_a_broker_that_restarts_in_the_middle_of_a_write_gets_each_row_once(
    penstock_broker: RunningBroker,
) -> None:
    def batches() -> Any:
        yield bodies(*range(2000))
        penstock_broker.restart()
        yield bodies(*range(2000, 4000))
        penstock_broker.restart()
        yield bodies(*range(4000, 5000))

    penstock_broker.create_topic("t", 4)
    given = WriteOptions.parse({"namesrv": penstock_broker.namesrv, "topic": "t"})
    plan = WritePlan(given, ("body",), StoreConfig())
    sender = RowSender(plan, Access(penstock_broker.namesrv), Identity("w", 0))
    assert sum((lambda w: (w.sent, w.skipped))(sender.send(batches()))) == 5000
    assert stored(penstock_broker) == list(range(5000))


def test_later_delivery_is_left_to_the_broker(penstock_broker: RunningBroker) -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"1", b"2"], "delay": pa.array([3, None], pa.int32())})
    assert send(penstock_broker, [batch]).sent == 2
    assert stored(penstock_broker) == [2]
    waiting = rows(penstock_broker.namesrv, ["body", "properties"], subscribe="SCHEDULE_TOPIC_XXXX")
    assert [(row["body"], row["properties"]["REAL_TOPIC"]) for row in waiting] == [(b"1", "t")]


def test_an_empty_dataframe_sends_nothing(penstock_broker: RunningBroker) -> None:
    assert send(penstock_broker, [bodies()]) == Written(0, 0)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"namesrv": "a:1", "path": "/data"}, "about a store directory"),
        ({"path": "/data", "producerGroup": "g"}, "about brokers"),
        ({"namesrv": "a:1", "requestTimeout": "soon"}, "requestTimeout can't be read"),
    ],
)
def test_options_of_the_other_body_are_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        WriteOptions.parse({"topic": "t", **options})


def test_a_row_that_no_broker_takes_is_told_with_its_number(penstock_broker: RunningBroker) -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"1", b"2"], "keys": ["a", "b\x01"]})
    with pytest.raises(MessageRejected, match="row 1 of the partition"):
        send(penstock_broker, [batch])


def test_a_message_is_the_same_by_a_producer_and_by_a_row(penstock_broker: RunningBroker) -> None:
    from penstock.client.sync import Producer

    with Producer(namesrv=penstock_broker.namesrv) as producer:
        producer.send(Message("t", b"x", tags="red", keys="k"))
    send(penstock_broker, [pa.RecordBatch.from_pydict({"body": [b"x"], "tags": ["red"], "keys": ["k"]})])
    one, two = (
        {
            name: value
            for name, value in row.items()
            if name in ("topic", "tags", "keys", "body", "flag", "sysFlag")
        }
        for row in rows(penstock_broker.namesrv, subscribe="t")
    )
    assert one == two
