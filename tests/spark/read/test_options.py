"""Options are text, names in any case; what is wrong with one is said with its name."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from penstock.errors import UsageError
from penstock.spark.options import OPTIONS, ReadOptions, parse_duration, parse_size, parse_time


def parse(**options: Any) -> ReadOptions:
    return ReadOptions.parse({"path": "/store", **options})


def test_defaults_read_everything_and_forgive_nothing() -> None:
    options = parse()
    assert (options.view, options.badRecords, options.failOnDataLoss, options.verifyCrc) == (
        "queue",
        "fail",
        True,
        True,
    )
    assert (options.splitBytes, options.maxBatchRows, options.maxBatchBytes) == (128 << 20, 16384, 4 << 20)
    assert options.pushFilters is False
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("subscribe", "a, b,a", ("a", "b")),
        ("assign", '{"a":[1,0,1]}', {"a": (1, 0)}),
        ("startingOffsets", "Earliest", "earliest"),
        ("endingOffsets", '{"a":{"3":-1}}', {"a": {3: -1}}),
        ("startingTimestamp", "1700000000000", 1_700_000_000_000),
        ("endingTimestamp", "2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("endingTimestamp", "2023-11-14T22:13:20", 1_700_000_000_000),
        ("endingTimestamp", "2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("startingOffsetsByTimestamp", '{"a":{"0":5}}', {"a": {0: 5}}),
        ("tags", " red||green ", ("red", "green")),
        ("tags", "*", None),
        ("keys", "a,b", ("a", "b")),
        ("keys", '["a,b"]', ("a,b",)),
        ("view", "CommitLog", "commitlog"),
        ("failOnDataLoss", "FALSE", False),
        ("splitBytes", "64m", 64 << 20),
        ("minPartitions", "7", 7),
        ("badRecords", "quarantine", "quarantine"),
        ("maxTriggerDelay", "15m", 900.0),
        ("maxBytesPerTrigger", "1 GiB", 1 << 30),
        ("stateLocation", "/tmp/x", "/tmp/x"),
    ],
)
def test_values_are_read(name: str, text: str, value: Any) -> None:
    assert getattr(parse(**{name: text}), name) == value
    assert getattr(parse(**{name.lower(): text}), name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("subscribe", " , "),
        ("subscribePattern", "("),
        ("assign", '{"a":"0"}'),
        ("assign", "a:0"),
        ("startingOffsets", "newest"),
        ("startingOffsets", '{"a":{"0":-3}}'),
        ("startingOffsets", '{"a":{"x":1}}'),
        ("endingTimestamp", "yesterday"),
        ("view", "both"),
        ("failOnDataLoss", "maybe"),
        ("splitBytes", "0"),
        ("splitBytes", "64q"),
        ("minPartitions", "-1"),
        ("badRecords", "ignore"),
        ("maxTriggerDelay", "soon"),
        ("keys", "[1]"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_option(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=rf"the option {name} is .*{name} is") as caught:
        parse(**{name.lower(): text})
    assert text.strip() in str(caught.value) or repr(text) in str(caught.value)


def test_an_unknown_option_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="no option 'startingoffset'; do you mean startingOffsets") as caught:
        parse(startingoffset="earliest")
    assert all(name in str(caught.value) for name in OPTIONS)


def test_what_spark_adds_by_itself_is_no_error() -> None:
    given = {"path": "/s", "option.path": "/t", "owner": "me", "provider": "rocketmq", "location": "/t"}
    assert ReadOptions.parse(given) == ReadOptions(path="/s")
    assert ReadOptions.parse({"location": "/s", "owner": "me"}) == ReadOptions(path="/s")
    assert ReadOptions.parse({"option.path": "/s", "option.tags": "t"}) == parse(path="/s", tags="t")


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "a", "subscribePattern": "b"},
        {"subscribe": "a", "assign": '{"a":[0]}'},
        {"startingOffsets": "earliest", "startingTimestamp": "5"},
        {"startingGroup": "g", "startingTimestamp": "5"},
        {"endingOffsets": "latest", "endingTimestamp": "5"},
        {"startingTimestamp": "6", "endingTimestamp": "5"},
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"say different things|before startingTimestamp"):
        parse(**options)


def test_a_path_or_a_name_server_is_needed_and_not_both() -> None:
    with pytest.raises(UsageError, match="neither a path nor a namesrv"):
        ReadOptions.parse({})
    with pytest.raises(UsageError, match="name two places"):
        ReadOptions.parse({"namesrv": "localhost:9876", "path": "/data"})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"namesrv": "localhost:9876", "view": "commitlog"}, "by queue"),
        ({"path": "/data", "requestTimeout": "5s"}, "about brokers"),
        ({"path": "/data", "consumerGroup": "g"}, "about brokers"),
        ({"namesrv": "localhost:9876", "retryTimeout": "0"}, "not between"),
    ],
)
def test_what_makes_no_sense_for_the_place_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        ReadOptions.parse(options)


def test_sizes_durations_and_times_have_units() -> None:
    assert [parse_size(text) for text in ("5", "5k", "5 MB", "1GiB")] == [5, 5 << 10, 5 << 20, 1 << 30]
    assert [parse_duration(text) for text in ("5", "500ms", "2h", "1.5 min")] == [5.0, 0.5, 7200.0, 90.0]
    assert parse_time("-5") == -5


def test_topics_are_chosen_by_the_options() -> None:
    assert parse().wants_topic("orders") and parse().wants_topic("%RETRY%g") and parse().wants_topic("%DLQ%g")
    assert not parse().wants_topic("SCHEDULE_TOPIC_XXXX") and not parse().wants_topic("%LMQ%a")
    assert parse(includeSystemTopics="true").wants_topic("rmq_sys_wheel_timer")
    assert parse(subscribe="SCHEDULE_TOPIC_XXXX").wants_topic("SCHEDULE_TOPIC_XXXX")
    assert parse(subscribePattern="o.*").wants_topic("orders")
    assert not parse(subscribePattern="o").wants_topic("orders")
    assert parse(assign='{"a":[1]}').wants_queue("a", 1) and not parse(assign='{"a":[1]}').wants_queue("a", 0)
