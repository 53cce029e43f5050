"""What brokers give is what their store gives, whatever the options."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client.sync import PullConsumer
from penstock.errors import DataLost, RemotingError, UsageError
from penstock.spark.network.planning import plan_brokers
from penstock.spark.options import ReadOptions
from penstock.testing import RunningBroker
from spark.network.rows import batches, in_order, planned, rows
from spark.read.rows import rows as rows_of_path
from spark.read.stores import START, STEP

OPTIONS: list[dict[str, Any]] = [
    {},
    {"subscribe": "orders"},
    {"subscribe": "orders,audit", "minPartitions": 7},
    {"subscribePattern": "a.*|p.*"},
    {"assign": '{"orders":[1]}'},
    {"subscribe": "orders", "startingOffsets": '{"orders":{"0":17}}', "endingOffsets": '{"orders":{"1":55}}'},
    {"startingOffsets": "latest"},
    {"endingOffsets": "earliest"},
    {"startingTimestamp": START + 100 * STEP, "endingTimestamp": START + 321 * STEP},
    {"startingTimestamp": START + 10_000 * STEP},
    {"subscribe": "orders", "startingOffsetsByTimestamp": f'{{"orders":{{"1":{START + 300 * STEP}}}}}'},
    {"subscribe": "orders", "endingOffsetsByTimestamp": f'{{"orders":{{"0":{START + 300 * STEP}}}}}'},
    {"tags": "red"},
    {"tags": "red || green", "startingTimestamp": START + 50 * STEP},
    {"tags": "nobody"},
    {"keys": "k17"},
    {"keys": "k17,ten3,nobody"},
    {"keys": "ten3", "endingTimestamp": START + 99 * STEP},
    {"splitBytes": "8k"},
    {"maxBatchRows": 7},
    {"maxBatchBytes": "2k", "verifyCrc": "false"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_brokers_give_the_rows_that_their_store_gives(served: RunningBroker, options: dict[str, Any]) -> None:
    wanted = in_order(rows_of_path(served.path, **options))
    assert in_order(rows(served.namesrv, **options)) == wanted
    assert wanted or str(options) in map(str, (OPTIONS[6], OPTIONS[7], OPTIONS[9], OPTIONS[14]))


def test_a_projection_decodes_only_its_columns(served: RunningBroker) -> None:
    columns = ["queueOffset", "topic"]
    found = rows(served.namesrv, columns, subscribe="orders")
    assert sorted(map(str, found)) == sorted(map(str, rows_of_path(served.path, columns, subscribe="orders")))
    assert sum(batch.num_rows for batch in batches(served.namesrv, [])) == 600


def test_each_queue_comes_in_its_order(served: RunningBroker) -> None:
    last: dict[tuple[str, int], int] = {}
    for row in rows(served.namesrv, minPartitions=5):
        key = (row["topic"], row["queueId"])
        assert row["queueOffset"] == last.get(key, -1) + 1
        last[key] = row["queueOffset"]
    assert len(last) == 6


def test_batches_are_bounded_in_rows_and_bytes(served: RunningBroker) -> None:
    assert max(batch.num_rows for batch in batches(served.namesrv, maxBatchRows=10)) == 10
    assert max(batch.nbytes for batch in batches(served.namesrv, maxBatchBytes="4k")) < 3 * 4096


def test_tasks_share_the_offsets_evenly(served: RunningBroker) -> None:
    _, splits = planned(served.namesrv, minPartitions=8)
    sizes = [sum(part.end - part.start for part in split.ranges) for split in splits]
    assert sizes == [75] * 8


def test_a_read_begins_where_a_group_is(served: RunningBroker) -> None:
    with PullConsumer("reading-group", namesrv=served.namesrv) as consumer:
        queue = next(queue for queue in consumer.topic_queues("orders") if queue.queue_id == 1)
        served.run(_commit(served, "reading-group", queue.queue_id, 42))
    found = rows(served.namesrv, subscribe="orders", startingGroup="reading-group")
    firsts = {row["queueId"]: row["queueOffset"] for row in reversed(found)}
    assert firsts == {0: 0, 1: 42}
    with pytest.raises(UsageError, match="has no offset in any of these queues"):
        rows(served.namesrv, subscribe="orders", startingGroup="nobody")


async def _commit(broker: RunningBroker, group: str, queue_id: int, offset: int) -> None:
    broker.broker.commit_offset(group, "orders", queue_id, offset)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"subscribe": "nothing"}, "no message of nothing"),
        ({"subscribe": "orders", "startingOffsets": '{"orders":{"9":1}}'}, "queues that are not read"),
        ({"subscribe": "orders", "startingOffsets": '{"orders@elsewhere":{"0":1}}'}, "orders@elsewhere/0"),
        (
            {"startingTimestamp": START + 10_000 * STEP, "startingOffsetsByTimestampStrategy": "error"},
            "no message stored",
        ),
    ],
)
def test_names_that_are_not_there_are_told(
    served: RunningBroker, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        rows(served.namesrv, **options)


def test_queues_may_be_named_with_their_broker(served: RunningBroker) -> None:
    name = f"orders@{served.broker.config.broker_name}"
    by_broker = rows(served.namesrv, assign=f'{{"{name}":[0]}}', startingOffsets=f'{{"{name}":{{"0":5}}}}')
    plainly = rows(served.namesrv, assign='{"orders":[0]}', startingOffsets='{"orders":{"0":5}}')
    assert by_broker == plainly != []


def test_offsets_that_are_yet_to_come_are_data_loss(served: RunningBroker) -> None:
    asked = {"subscribe": "orders", "endingOffsets": '{"orders":{"0":150}}'}
    with pytest.raises(DataLost) as failed:
        rows(served.namesrv, **asked)
    assert [(queue, start, end) for _, queue, start, end in failed.value.ranges] == [(0, 100, 150)]
    assert len(rows(served.namesrv, **asked, failOnDataLoss="false")) == 200


def test_an_address_that_nobody_listens_at_is_told_soon() -> None:
    options = ReadOptions.parse({"namesrv": "127.0.0.1:1", "requestTimeout": "300ms"})
    with pytest.raises(RemotingError, match=r"127\.0\.0\.1:1"):
        plan_brokers(options)
