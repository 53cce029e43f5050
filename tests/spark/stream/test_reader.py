"""The stream reader as Spark drives it, on real stores, without a session: quick enough to try everything."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from golden_store import unpack
from penstock import Message
from penstock.errors import DataLost, StoreLocked, UsageError
from penstock.spark.batches import record_batches
from penstock.spark.course import DataLossWarning
from penstock.spark.options import ReadOptions
from penstock.spark.planning import plan_places
from penstock.spark.streaming import StreamReader
from spark.stream.stores import CONFIG, drop_segments, fill, opened, put

GOLDEN = ("batches", "broker", "deleted-head", "lmq", "long-topics", "queue-ext", "transactions", "v4-basic")
COLUMNS = ("topic", "queueId", "queueOffset", "body")


def reader(path: Path, **options: Any) -> StreamReader:
    return StreamReader(ReadOptions.parse({"path": str(path), **options}), COLUMNS)


class Query:
    """Spark's side: the offset log, and readers that are pickled for the tasks."""

    def __init__(self, path: Path, *, now: bool = False, **options: Any) -> None:
        self.reader = reader(path, **options)
        self.log: list[str] = []
        self.rows: list[tuple[str, int, int, bytes]] = []
        if now:
            self.reader.prepareForTriggerAvailableNow()

    def batch(self) -> bool:
        """Make the next batch and read it; False if there is none."""
        start = json.loads(self.log[-1] if self.log else json.dumps(self.reader.initialOffset()))
        end = json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        if self.log and end == self.log[-1]:
            return False
        self.log.append(end)
        if len(self.log) > 1:
            self.reader.commit(start)
        self.rows += self.read(start, json.loads(end))
        return True

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int, bytes]]:
        copy = pickle.loads(pickle.dumps(reader_for_tasks(self.reader)))
        return [
            (row["topic"], row["queueId"], row["queueOffset"], row["body"])
            for partition in self.reader.partitions(start, end)
            for batch in copy.read(pickle.loads(pickle.dumps(partition)))
            for row in batch.to_pylist()
        ]

    def run(self) -> Query:
        while self.batch():
            pass
        return self

    @property
    def numbers(self) -> list[int]:
        return sorted(int(row[3].rstrip(b".")) for row in self.rows)


def reader_for_tasks(original: StreamReader) -> StreamReader:
    """Spark pickles a reader of its own for the tasks."""
    return StreamReader(original._options, original._columns)


def test_reader_pickles_without_what_it_has_open(tmp_path: Path) -> None:
    fill(tmp_path, range(10))
    query = Query(tmp_path).run()
    copy = pickle.loads(pickle.dumps(query.reader))
    assert copy._opened is None
    assert copy.initialOffset() == query.reader.initialOffset()


@pytest.mark.parametrize("view", ["queue", "commitlog"])
@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "7"}, {"maxBytesPerTrigger": "1500"}])
def test_every_message_comes_once_in_both_views(tmp_path: Path, view: str, limit: dict[str, str]) -> None:
    with opened(tmp_path) as store:
        put(store, range(50))
        put(store, range(100, 120), topic="u", queues=3)
        query = Query(tmp_path, view=view, **limit).run()
        put(store, range(50, 90))
        query.run()
    assert query.numbers == [*range(90), *range(100, 120)]


def test_tags_choose_rows_and_offsets_go_on(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for number in range(30):
            body = str(number).encode()
            store.put(Message("t", body, tags="AB"[number % 2], keys=f"k{number % 3}"))
        store.flush()
        store.dispatch()
        query = Query(tmp_path, tags="A", maxOffsetsPerTrigger="4").run()
        assert query.numbers == list(range(0, 30, 2))
        assert json.loads(query.log[-1])["q"] == {"t": {"0": 30}}
        keyed = Query(tmp_path, keys="k1").run()
        assert keyed.numbers == list(range(1, 30, 3))
        store.put(Message("t", b"31", keys="k1"))
        store.flush()
        store.dispatch()
        assert keyed.run().numbers == [*range(1, 30, 3), 31]


def test_default_limit_tells_spark_that_there_is_one(tmp_path: Path) -> None:
    fill(tmp_path, range(4))
    assert reader(tmp_path).getDefaultReadLimit() == ReadAllAvailable()
    assert reader(
        tmp_path, maxOffsetsPerTrigger=3, maxBytesPerTrigger=9
    ).getDefaultReadLimit() == ReadMaxRows(3)
    assert reader(tmp_path, maxBytesPerTrigger="1k").getDefaultReadLimit() == ReadMaxBytes(1024)
    assert reader(tmp_path, minOffsetsPerTrigger=3).getDefaultReadLimit() == ReadMinRows(3)


def test_start_by_time_and_by_group_is_frozen_at_the_first_question(tmp_path: Path) -> None:
    fill(tmp_path, range(20))
    with opened(tmp_path) as store:
        when = next(iter(store.get("t", 0, 5, 1).messages)).store_timestamp
        store.consumer_offsets.commit("g", "t", 0, 7)
        store.consumer_offsets.commit("g", "t", 1, 3)
    group = Query(tmp_path, startingGroup="g").run()
    assert Counter(row[1] for row in group.rows) == {0: 3, 1: 7}
    timed = Query(tmp_path, startingTimestamp=str(when)).run()
    assert timed.rows and set(timed.rows) <= set(Query(tmp_path).run().rows)
    late = reader(tmp_path, startingTimestamp=str(when + 10**9), startingOffsetsByTimestampStrategy="latest")
    assert late.initialOffset()["q"] == {"t": {"0": 10, "1": 10}}
    with pytest.raises(UsageError, match="no message stored at"):
        reader(
            tmp_path, startingTimestamp=str(when + 10**9), startingOffsetsByTimestampStrategy="error"
        ).initialOffset()


def test_replay_after_retention_fails_with_the_ranges_or_reports_them(tmp_path: Path) -> None:
    fill(tmp_path, range(900))
    strict, lenient = Query(tmp_path), Query(tmp_path, failOnDataLoss="false")
    strict.batch()
    drop_segments(tmp_path, 2)
    start = json.loads(json.dumps(lenient.reader.initialOffset()))
    with pytest.raises(DataLost) as caught:
        Query(tmp_path).read(start, json.loads(strict.log[0]))
    lost = caught.value.ranges
    assert [(topic, queue, begin) for topic, queue, begin, _ in lost] == [("t", 0, 0), ("t", 1, 0)]
    with pytest.warns(DataLossWarning, match=r"t/0 \[0, "):
        rows = lenient.read(start, json.loads(strict.log[0]))
    left = sorted((queue, offset) for _, queue, offset, _ in rows)
    assert left == [(queue, n) for _, queue, _, low in lost for n in range(low, 450)]


def test_topic_that_is_removed_keeps_its_place(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, range(10), topic="gone")
        put(store, range(10, 20))
    query = Query(tmp_path).run()
    with opened(tmp_path) as store:
        store._queues.remove_expired("gone", store.max_physical_offset)
    fill(tmp_path, range(20, 30))
    query = restarted(query, tmp_path).run()
    assert query.numbers == list(range(30))
    assert json.loads(query.log[-1])["q"]["gone"] == {"0": 5, "1": 5}


def restarted(query: Query, path: Path, **options: Any) -> Query:
    """The same query in a new process."""
    again = Query(path, **options)
    again.log, again.rows = query.log, query.rows
    return again


@pytest.mark.parametrize("case", GOLDEN)
@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "7"}, {"maxBytesPerTrigger": "3000"}])
def test_stream_of_a_rocketmq_store_has_the_rows_of_a_batch_read(
    tmp_path: Path, case: str, limit: dict[str, str]
) -> None:
    """Inner batches and light queues too; a limit may fall into the middle of a batch."""
    path = unpack(case, tmp_path).path
    given = {"includeSystemTopics": "true", "decompress": "false"}
    options = ReadOptions.parse({"path": str(path), **given})
    read = [
        (row["topic"], row["queueId"], row["queueOffset"], row["body"])
        for split in plan_places(options)
        for batch in record_batches(split, COLUMNS, options)
        for row in batch.to_pylist()
    ]
    assert read
    streamed = Query(path, **given, **limit).run().rows
    assert sorted(streamed) == sorted(read)


def test_group_is_published_up_to_the_last_batch(tmp_path: Path) -> None:
    fill(tmp_path, range(50))
    query = Query(tmp_path, now=True, commitGroup="g", maxOffsetsPerTrigger="20").run()
    from penstock.store.readonly import ReadOnlyStore

    with ReadOnlyStore(tmp_path) as store:
        assert store.consumer_offsets.offsets("g", "t") == {0: 25, 1: 25}
    fill(tmp_path, range(50, 60))
    again = Query(tmp_path, startingGroup="g").run()
    assert (query.numbers, again.numbers) == (list(range(50)), list(range(50, 60)))
    with opened(tmp_path), pytest.raises(StoreLocked, match="group g"):
        Query(tmp_path, commitGroup="g").batch()


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(["t", "u"]), st.integers(1, 30)),
        st.tuples(st.just("batch"), st.just(""), st.just(0)),
        st.tuples(st.just("restart"), st.just(""), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    EVENTS,
    st.sampled_from([{}, {"maxOffsetsPerTrigger": "5"}, {"maxBytesPerTrigger": "900"}]),
    st.sampled_from(["earliest", "latest"]),
)
def test_stream_of_a_live_store_agrees_with_the_store(
    tmp_path_factory: pytest.TempPathFactory, events: list[Any], limit: dict[str, str], begin: str
) -> None:
    path = tmp_path_factory.mktemp("live")
    with opened(path) as store:
        put(store, range(5))
        query = Query(path, startingOffsets=begin, **limit)
        if begin == "earliest":
            expected = list(range(5))
        else:
            query.batch()
            expected = []
        number = 100
        for kind, topic, count in events:
            if kind == "put":
                put(store, range(number, number + count), topic=topic, queues=3)
                expected += range(number, number + count)
                number += count
            elif kind == "restart":
                query = restarted(query, path, startingOffsets=begin, **limit)
            else:
                query.batch()
        query = restarted(query, path, startingOffsets=begin, **limit).run()
    assert query.numbers == sorted(expected)


def test_stream_of_a_store_that_its_owner_cleans(tmp_path: Path) -> None:
    """The owner removes files under the stream; what was lost and what is left is everything."""
    with opened(tmp_path, config=CONFIG.replace(file_reserved_time_hours=0)) as store:
        put(store, range(50))
        strict = Query(tmp_path)
        strict.batch()
        lenient = restarted(strict, tmp_path, failOnDataLoss="false")
        lenient.log, lenient.rows = list(strict.log), list(strict.rows)
        put(store, range(50, 900))
        assert store.clean() > 0
        low = {queue: store.min_offset("t", queue) for queue in (0, 1)}
        assert min(low.values()) > 25
        with pytest.raises(DataLost) as caught:
            strict.batch()
        assert caught.value.ranges == (("t", 0, 25, low[0]), ("t", 1, 25, low[1]))
        with pytest.warns(DataLossWarning):
            lenient.run()
    for queue in (0, 1):
        offsets = sorted(row[2] for row in lenient.rows if row[1] == queue)
        assert offsets == [*range(25), *range(low[queue], 450)]
