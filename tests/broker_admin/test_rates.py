"""Rates over the last minute, hour and day."""

from __future__ import annotations

import pytest

from penstock.broker.puttimes import PutTimes
from penstock.broker.rates import SAMPLE_SECONDS, Rates
from penstock.broker.stats import BrokerStats


class Course:
    """A broker whose topic gets so many messages in each ten seconds."""

    def __init__(self) -> None:
        self.time = 0.0
        self.stats = BrokerStats()
        self.rates = Rates(self.stats, lambda: self.time, today=lambda: self.time // 86400)

    def run(self, samples: int, messages: int) -> None:
        for _ in range(samples):
            self.stats.count_put("T", messages, 100 * messages)
            self.time += SAMPLE_SECONDS
            self.rates.sample()


def test_rate_of_the_last_minute_forgets_what_was_before() -> None:
    course = Course()
    course.run(60, 1000)
    assert course.rates.put_tps("T") == pytest.approx(100)
    course.run(6, 0)
    assert course.rates.put_tps("T") == 0
    assert course.rates.put_tps("nothing") == 0


def test_hour_and_day_sum_up_longer() -> None:
    course = Course()
    course.run(360, 10)
    course.run(360, 0)
    found = course.rates.figures("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert found["statsMinute"]["sum"] == 0
    assert found["statsHour"]["sum"] == 0
    assert found["statsDay"]["sum"] == 3600
    assert course.rates.broker_tps("BROKER_PUT_NUMS")[2] == pytest.approx(0.5)
    assert course.rates.figures("TOPIC_PUT_NUMS", "X") is None
    assert course.rates.figures("NO_SUCH", "T") is None


def test_windows_do_not_grow() -> None:
    course = Course()
    course.run(10_000, 1)
    assert [len(window.samples) for window in course.rates._windows] == [7, 7, 25]


def test_totals_of_this_morning_and_the_one_before_are_kept() -> None:
    course = Course()
    key = ("BROKER_PUT_NUMS", "")
    course.run(8640, 1)
    assert [morning.get(key, 0) for morning in course.rates.mornings] == [8640, 0]
    course.run(8640, 2)
    assert [morning.get(key, 0) for morning in course.rates.mornings] == [3 * 8640, 8640]


def test_put_times_are_told_in_ranges_and_percentiles() -> None:
    times = PutTimes()
    assert times.percentile(0.99, 10) == 0.0
    times.add(0.0004, 97)
    times.add(0.030, 2)
    times.add(700.0, 1)
    assert times.ranges(110).split()[:3] == ["[<=0ms]:107", "[0~10ms]:0", "[10~50ms]:2"]
    assert times.ranges(110).endswith("[10s~]:1 ")
    assert 0.4 <= times.percentile(0.9, 100) < 0.6
    assert 30 <= times.percentile(0.99, 100) < 40
    assert times.percentile(0.999, 100) == times.longest_ms == 700_000
