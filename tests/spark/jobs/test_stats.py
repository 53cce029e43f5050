"""Statistics against plain counting, and against what verify says."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from golden_store import unpack
from penstock import Message, open_store
from penstock.clock import ManualClock
from penstock.errors import NotAStore, UsageError
from penstock.spark import jobs
from penstock.spark.jobs.retention import DAY_MS, project
from penstock.spark.jobs.stats import HourStats, StatsResult
from penstock.store.verify import verify_store

from .stores import CONFIG, messages_of, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3_600_000
NOW = 1_790_000_000_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five hours of three topics, with more different keys than a summary holds."""
    rng = random.Random(3)
    clock = ManualClock(NOW)
    path = tmp_path_factory.mktemp("stats") / "store"
    with open_store(path, clock=clock, config=CONFIG) as opened:
        number = 0
        for _ in range(5):
            clock.advance(HOUR)
            for _ in range(800):
                number += 1
                keys = rng.choice([f"u{number}", f"u{number} hot", "warm", None])
                opened.put(
                    Message(
                        rng.choice(["a", "a", "b", "c<i>"]),
                        bytes(rng.randrange(200)),
                        keys=keys,
                        tags=rng.choice(["x", "y", None]),
                        queue_id=rng.randrange(3),
                        born_timestamp=clock.now_ms() - rng.randrange(-5, 500),
                    )
                )
        opened.consumer_offsets.commit("g", "a", 0, 10)
        opened.consumer_offsets.commit("g", "a", 1, 10**9)
    return path


@pytest.fixture(scope="module")
def result(store: Path, spark: SparkSession) -> StatsResult:
    return jobs.stats(spark, store, split_bytes=100_000, hot_keys=5, now_ms=NOW + 10 * HOUR, disk_bytes=10**9)


def test_totals_are_those_of_verify(store: Path, result: StatsResult) -> None:
    report = verify_store(str(store))
    assert result.records == report.records
    assert result.bytes == sum(m.size for m in messages_of(store))
    assert sum(topic.rows for topic in result.topics) == report.records
    assert (result.log_begin, result.log_end) == (report.log_begin, report.log_end)


@pytest.mark.parametrize("case", ["basic", "hosts-ipv6", "batches", "broker", "v4-basic", "deleted-head"])
def test_totals_of_rocketmqs_stores_are_those_of_verify(
    case: str, tmp_path: Path, spark: SparkSession
) -> None:
    golden = unpack(case, tmp_path)
    counted = jobs.stats(spark, golden.path, split_bytes=50_000)
    assert counted.records == verify_store(str(golden.path)).records
    assert counted.bytes == sum(m.size for m in messages_of(golden.path))


def test_traffic_is_by_topic_queue_and_hour(store: Path, result: StatsResult) -> None:
    rows: Counter[tuple[str, int, int]] = Counter()
    sizes: Counter[tuple[str, int, int]] = Counter()
    offsets: dict[tuple[str, int, int], list[int]] = {}
    for m in messages_of(store):
        place = (m.topic, m.queue_id, m.store_timestamp // HOUR * HOUR)
        rows[place] += 1
        sizes[place] += m.size
        offsets.setdefault(place, []).append(m.queue_offset)
    found = {(h.topic, h.queue_id, h.hour_ms): h for h in result.hours}
    assert {place: h.rows for place, h in found.items()} == rows
    assert {place: h.bytes for place, h in found.items()} == sizes
    for place, h in found.items():
        assert (h.first_offset, h.last_offset) == (min(offsets[place]), max(offsets[place]))


def test_quantiles_are_within_one_per_cent(store: Path, result: StatsResult) -> None:
    for topic in result.topics:
        mine = [m for m in messages_of(store) if m.topic == topic.topic]
        for spread, values in (
            (topic.sizes, sorted(m.size for m in mine)),
            (topic.delays_ms, sorted(m.store_timestamp - m.born_timestamp for m in mine)),
        ):
            assert (spread.low, spread.high) == (values[0], values[-1])
            for name, value in spread.quantiles.items():
                exact = values[math.floor(float(name[1:]) / 100 * (len(values) - 1))]
                assert abs(value - max(exact, 0)) <= 0.01 * max(exact, 0) + 1e-6
            assert sum(count for _, count in spread.histogram) == len(values)


def test_hot_keys_are_all_found_and_counted_exactly(store: Path, result: StatsResult) -> None:
    for topic in result.topics:
        exact = Counter(
            key
            for m in messages_of(store)
            if m.topic == topic.topic
            for key in (m.keys or "").split(" ")
            if key
        )
        assert topic.keys == sum(exact.values())
        assert len(exact) > 100
        found = {entry.item: entry.rows for entry in topic.hot_keys}
        assert found == {item: exact[item] for item in found}
        assert {key for key, count in exact.items() if count > topic.keys / 5} <= set(found)
        assert {"hot", "warm"} <= set(found)


def test_tags_are_counted(store: Path, result: StatsResult) -> None:
    for topic in result.topics:
        exact = Counter(m.tags for m in messages_of(store) if m.topic == topic.topic and m.tags)
        assert {entry.item: entry.rows for entry in topic.tags} == exact
        assert sum(entry.share for entry in topic.tags) == pytest.approx(1)


def test_a_second_pass_makes_counts_exact_where_a_summary_overflowed(
    tmp_path: Path, spark: SparkSession
) -> None:
    rng = random.Random(4)
    keys = [f"k{n}" for n in range(3000)] + ["often"] * 900 + ["seldom"] * 50
    rng.shuffle(keys)
    path = written(tmp_path / "s", [Message("t", b"", keys=key) for key in keys])
    (topic,) = jobs.stats(spark, path, hot_keys=5, split_bytes=1 << 30).topics
    assert (topic.hot_keys[0].item, topic.hot_keys[0].rows) == ("often", 900)
    assert topic.keys == len(keys)
    exact = Counter(keys)
    assert all(entry.rows == exact[entry.item] for entry in topic.hot_keys)


def test_lag_of_groups(store: Path, result: StatsResult) -> None:
    ends = Counter((m.topic, m.queue_id) for m in messages_of(store))
    behind, done = result.lag
    assert (behind.group, behind.topic, behind.queue_id, behind.committed) == ("g", "a", 0, 10)
    assert behind.offsets == ends["a", 0] - 10
    unread = next(m for m in messages_of(store) if (m.topic, m.queue_id, m.queue_offset) == ("a", 0, 10))
    assert behind.milliseconds == NOW + 10 * HOUR - unread.store_timestamp
    assert (done.queue_id, done.offsets, done.milliseconds) == (1, 0, 0)


def test_projection_is_what_happens(result: StatsResult) -> None:
    """A week of even traffic, then played on: the disk is full when the plan says."""
    hours = [HourStats("t", 0, NOW // HOUR * HOUR + n * HOUR, 10, 1000, 0, 0) for n in range(24 * 7)]
    plan = project(hours, log_bytes=168_000, disk_bytes=240_000)
    assert plan.bytes_per_day == 24_000
    assert plan.days_until_full == 3
    log, days = 168_000, 0
    while log < 240_000:
        log, days = log + 24_000, days + 1
    assert days == plan.days_until_full
    assert plan.kept_bytes[7] == 168_000 == sum(day.bytes for day in plan.days)
    assert sum(day.rows for day in plan.days) == 1680
    assert all(day.day_ms % DAY_MS == 0 for day in plan.days)
    assert result.retention is not None
    assert sum(day.bytes for day in result.retention.days) == result.bytes


def test_result_is_data_for_programs(result: StatsResult) -> None:
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(result.as_dict()))
    assert decoded["records"] == 4000
    assert {topic["topic"] for topic in decoded["topics"]} == {"a", "b", "c<i>"}


def test_segments_alone_have_no_lag(store: Path, result: StatsResult, spark: SparkSession) -> None:
    counted = jobs.stats(spark, store / "commitlog")
    assert (counted.records, counted.bytes, counted.lag) == (result.records, result.bytes, [])


def test_an_empty_store_has_nothing(tmp_path: Path, spark: SparkSession) -> None:
    path = written(tmp_path / "s", [])
    counted = jobs.stats(spark, path)
    assert (counted.records, counted.topics, counted.hours, counted.retention) == (0, [], [], None)


def test_wrong_paths_are_told(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        jobs.stats(None, tmp_path / "nothing")
    written(tmp_path / "s", [])
    with pytest.raises(UsageError):
        jobs.stats(None, tmp_path / "s", hot_keys=0)
