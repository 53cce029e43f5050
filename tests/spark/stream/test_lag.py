"""Lag is exact in offsets, bytes and seconds, and reads each unit once."""

from __future__ import annotations

import pytest

from penstock.clock import ManualClock
from penstock.spark.lag import LagMeter, LagReport, QueueLag


class Sizes:
    """A store whose message ``n`` has ``n + 1`` bytes and was stored at second ``n``."""

    def __init__(self) -> None:
        self.units_read = 0

    def bytes_between(self, topic: str, queue_id: int, begin: int, end: int) -> int:
        self.units_read += end - begin
        return sum(range(begin + 1, end + 1))

    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        return offset * 1000


@pytest.fixture
def store() -> Sizes:
    return Sizes()


def test_lag_is_what_lies_between_place_and_end(store: Sizes) -> None:
    meter = LagMeter(store, ManualClock(100_000))
    assert meter.measure({("t", 0): 3, ("t", 1): 5}, {("t", 0): 6, ("t", 1): 5, ("u", 0): 2}) == (
        QueueLag("t", 0, 3, 6, 4 + 5 + 6, 97.0),
        QueueLag("t", 1, 5, 5, 0, 0.0),
        QueueLag("u", 0, 0, 2, 1 + 2, 100.0),
    )


def test_long_lag_is_summed_once_and_then_kept_up(store: Sizes) -> None:
    meter = LagMeter(store, ManualClock(10**9))
    meter.measure({("t", 0): 0}, {("t", 0): 10_000})
    for step in range(1, 100):
        (lag,) = meter.measure({("t", 0): step * 10}, {("t", 0): 10_000 + step})
        assert lag.bytes == sum(range(step * 10 + 1, 10_000 + step + 1))
    assert store.units_read == 10_000 + 99 * 11


def test_place_that_jumps_is_measured_anew(store: Sizes) -> None:
    meter = LagMeter(store, ManualClock(10**9))
    for begin, end in [(0, 10), (20, 30), (5, 8), (5, 4)]:
        (lag,) = meter.measure({("t", 0): begin}, {("t", 0): end})
        assert lag.bytes == sum(range(begin + 1, end + 1))


def test_report_adds_up_by_topic() -> None:
    report = LagReport(
        "id",
        "name",
        7,
        (QueueLag("a", 0, 1, 4, 30, 2.5), QueueLag("a", 1, 4, 4, 0, 0.0), QueueLag("b", 0, 0, 1, 10, 9.0)),
        (("a", 0, 0, 1),),
    )
    assert (report.offsets, report.bytes, report.seconds) == (4, 40, 9.0)
    assert report.as_dict()["topics"] == {
        "a": {"offsets": 3, "bytes": 30, "seconds": 2.5},
        "b": {"offsets": 1, "bytes": 10, "seconds": 9.0},
    }
    assert report.of("b").lost == ()


def test_total_of_something_unknown_is_unknown() -> None:
    report = LagReport("id", None, 0, (QueueLag("a", 0, 1, 4), QueueLag("a", 1, 4, 4, 0, 0.0)))
    assert (report.offsets, report.bytes, report.seconds) == (3, None, None)
