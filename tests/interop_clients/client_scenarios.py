"""What a client does in each scenario, and what of it must be the same on every broker.

A scenario gets the client's driver, the cluster and a word that nobody else uses in names. It asserts what
RocketMQ's documentation promises and returns what was observed, without what differs from run to run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from stage import Observed, Stage, bodies, numbered, plains, statuses, wait_until

from penstock.bench.child import ChildFailed

# -- producing ----------------------------------------------------------------------------------------


def send_and_consume(stage: Stage) -> Observed:
    """Synchronous sends reach a push consumer, each once, with everything that was sent."""
    topic, group = stage.topic(), stage.group()
    producer = stage.producer()
    sent = stage.send(producer, numbered(topic, 20))
    assert statuses(sent) == ["SEND_OK"] * 20
    got = stage.received(stage.consumer(topic, group), 20)
    assert bodies(got) == bodies(numbered(topic, 20))
    ids = {message["message_id"] for message in got}
    assert ids == {result["message_id"] for result in sent}
    return plains(got)


def send_asynchronously(stage: Stage) -> Observed:
    topic, group = stage.topic(), stage.group()
    producer = stage.producer()
    sent = stage.send(producer, numbered(topic, 50), "async")
    assert statuses(sent) == ["SEND_OK"] * 50
    got = stage.received(stage.consumer(topic, group), 50)
    return plains(got)


def send_one_way(stage: Stage) -> Observed:
    topic, group = stage.topic(), stage.group()
    producer = stage.producer()
    stage.send(producer, numbered(topic, 10), "oneway")
    return plains(stage.received(stage.consumer(topic, group), 10))


def send_a_batch(stage: Stage) -> Observed:
    """One request, three messages, one queue, consecutive offsets."""
    topic, group = stage.topic(1), stage.group()
    producer = stage.producer()
    sent = stage.driver.ask("send-batch", name=producer, messages=numbered(topic, 3))
    assert sent["status"] == "SEND_OK"
    assert len(sent["offset_message_id"].split(",")) == 3
    got = stage.received(stage.consumer(topic, group), 3)
    assert sorted(message["queue_offset"] for message in got) == [0, 1, 2]
    return plains(got)


def send_to_a_new_topic(stage: Stage) -> Observed:
    """Nobody made the topic: the broker does, with as many queues as the client asks for."""
    topic, group = stage.name("New"), stage.group()
    producer = stage.producer()
    sent = stage.send(producer, numbered(topic, 8))
    assert statuses(sent) == ["SEND_OK"] * 8
    assert {result["queue_id"] for result in sent} <= {0, 1, 2, 3}
    return plains(stage.received(stage.consumer(topic, group), 8))


def send_large_bodies_compressed(stage: Stage) -> Observed:
    topic, group = stage.topic(), stage.group()
    producer = stage.producer()
    text = "compress me " * 1000
    assert statuses(stage.send(producer, [{"topic": topic, "body": text}])) == ["SEND_OK"]
    got = stage.received(stage.consumer(topic, group), 1)
    assert got[0]["body"] == text
    return plains(got)


def refuse_bad_sends(stage: Stage) -> Observed:
    """System topics and oversized bodies are refused with RocketMQ's codes."""
    topic = stage.topic()
    producer = stage.producer(retries=0)
    given = [
        {"topic": "SCHEDULE_TOPIC_XXXX", "body": "x"},
        {"topic": topic, "body": "x", "properties": {"p": "v" * 33_000}},
        {"topic": topic, "body": "fine"},
    ]
    results = stage.send(producer, given)
    return [result.get("code", result.get("status")) for result in results]


# -- consuming ----------------------------------------------------------------------------------------


def consume_in_order(stage: Stage) -> Observed:
    """Messages of one key go to one queue and an orderly listener sees them as they were sent."""
    topic, group = stage.topic(), stage.group()
    producer = stage.producer()
    given = [{"topic": topic, "body": f"{i % 4}-{i // 4:03d}", "order": i % 4} for i in range(40)]
    assert statuses(stage.send(producer, given)) == ["SEND_OK"] * 40
    got = stage.received(stage.consumer(topic, group, orderly=True), 40)
    for key in range(4):
        mine = [message["body"] for message in got if message["body"].startswith(f"{key}-")]
        assert mine == sorted(mine)
        assert len(mine) == 10
    return plains(got)


def consume_by_broadcast(stage: Stage) -> Observed:
    """Two members, each gets everything that comes after both are there."""
    topic, group = stage.topic(2), stage.group()
    producer = stage.producer()
    stage.send(producer, [{"topic": topic, "body": "before"}])
    one = stage.consumer(topic, group, "one", broadcast=True)
    two = stage.consumer(topic, group, "two", broadcast=True)
    stage.received(one, 1)
    stage.received(two, 1)
    assert statuses(stage.send(producer, numbered(topic, 6))) == ["SEND_OK"] * 6
    seen = [plains(stage.received(consumer, 7)) for consumer in (one, two)]
    assert seen[0] == seen[1]
    return seen


def consume_by_tag(stage: Stage) -> Observed:
    topic, group = stage.topic(), stage.group()
    producer = stage.producer()
    consumer = stage.consumer(topic, group, tags="a || c")
    stage.send(producer, [*numbered(topic, 12), {"topic": topic, "body": "last", "tags": "c"}])
    got = stage.received(consumer, 7)
    assert {message["tags"] for message in got} == {"a", "c"}
    return plains(got)


SQL = "a BETWEEN 2 AND 8 AND (b IN ('x', 'y') OR c STARTSWITH 'or') AND TAGS IS NOT NULL"
PRICED = [
    {"a": "1", "b": "x"},
    {"a": "2", "b": "x"},
    {"a": "3", "c": "order"},
    {"a": "4", "b": "z", "c": "xor"},
    {"a": "five", "b": "x"},
    {"b": "x"},
    {"a": "8", "b": "y"},
    {"a": "8.5", "b": "y"},
    {"a": "9", "b": "y"},
]


def priced(topic: str) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "body": f"m{number}", "tags": "t", "properties": properties}
        for number, properties in enumerate(PRICED)
    ]


def consume_by_sql(stage: Stage) -> Observed:
    """What was there before, what comes while a pull waits, and what a listener wants to see again."""
    topic, group = stage.topic(1), stage.group()
    producer = stage.producer()
    stage.send(producer, priced(topic))
    consumer = stage.consumer(topic, group, sql=SQL, failures=1, retry_level=1)
    assert set(bodies(stage.received(consumer, 4))) == {"m1", "m2", "m6"}
    stage.send(producer, [{"topic": topic, "body": "no", "tags": "t", "properties": {"a": "1", "b": "x"}}])
    stage.send(producer, [{"topic": topic, "body": "late", "tags": "t", "properties": {"a": "7", "b": "x"}}])
    return sorted(set(bodies(stage.received(consumer, 5))))


def lite_pull_by_sql(stage: Stage) -> Observed:
    """Such pulls bring their filter themselves."""
    topic, name = stage.topic(1), stage.name("lite")
    stage.send(stage.producer(), priced(topic))
    where = {"namesrv": stage.cluster.namesrv, "topic": topic, "group": stage.name("G")}
    stage.driver.ask("lite", name=name, **where, sql=SQL)
    try:
        got = stage.driver.ask("poll", name=name, count=3)["messages"]
        assert bodies(got) == ["m1", "m2", "m6"]
        return plains(got)
    finally:
        stage.driver.ask("stop-lite", name=name)


def refuse_what_is_no_filter(stage: Stage) -> Observed:
    topic = stage.topic(1)
    refused = []
    for number, sql in enumerate(("a BETWEEN AND", "a > 'x'", "a IN (1)", "(")):
        where = {"namesrv": stage.cluster.namesrv, "topic": topic, "group": f"{stage.name('G')}{number}"}
        with pytest.raises(ChildFailed, match="CODE: 23") as failure:
            stage.driver.ask("consumer", name=stage.name(f"bad{number}"), **where, sql=sql)
        refused.append("CODE: 23" in str(failure.value))
    return refused


def messages_come_at_once(stage: Stage) -> Observed:
    """A waiting pull is answered when a message arrives, not when its hold ends."""
    topic, group = stage.topic(1), stage.group()
    producer = stage.producer()
    consumer = stage.consumer(topic, group)
    stage.send(producer, [{"topic": topic, "body": "first"}])
    stage.received(consumer, 1)
    for i in range(5):
        stage.send(producer, [{"topic": topic, "body": f"late{i}"}])
        got = stage.received(consumer, 2 + i, 5_000)
        assert bodies(got)[-1] == f"late{i}"
    return plains(stage.received(consumer, 6))


def rebalance(stage: Stage) -> Observed:
    """A second member takes half of the queues and gives them back when it leaves."""
    topic, group = stage.topic(4), stage.group()
    producer = stage.producer()
    one = stage.consumer(topic, group, "one")

    def holds(consumer: str) -> list[int]:
        return list(stage.driver.ask("assigned", name=consumer, topic=topic)["queues"])

    wait_until(lambda: holds(one) == [0, 1, 2, 3])
    two = stage.consumer(topic, group, "two")
    wait_until(lambda: len(holds(one)) == len(holds(two)) == 2)
    assert sorted(holds(one) + holds(two)) == [0, 1, 2, 3]
    stage.send(producer, [{"topic": topic, "body": f"b{i}", "order": i} for i in range(8)])
    first, second = stage.received(one, 4), stage.received(two, 4)
    assert bodies(first + second) == [f"b{i}" for i in range(8)]
    stage.stop(two)
    wait_until(lambda: holds(one) == [0, 1, 2, 3])
    stage.send(producer, [{"topic": topic, "body": f"c{i}", "order": i} for i in range(4)])
    got = stage.received(one, 8)
    assert bodies(got)[-4:] == [f"c{i}" for i in range(4)]
    return bodies(got[4:])


def retry_then_dead_letter(stage: Stage) -> Observed:
    """A listener that fails always: delivered again from the retry topic, then kept as a dead letter."""
    topic, group = stage.topic(1), stage.group()
    producer = stage.producer()
    consumer = stage.consumer(topic, group, failures=99, max_reconsume=1, retry_level=1)
    stage.send(producer, [{"topic": topic, "body": "poison", "keys": "pk", "tags": "a"}])
    got = stage.received(consumer, 2)
    assert [message["reconsume_times"] for message in got] == [0, 1]
    dead = f"%DLQ%{group}"

    wait_until(lambda: bool(stage.find(dead, "pk")))
    letters = stage.find(dead, "pk")
    assert len(letters) == 1
    assert letters[0]["reconsume_times"] == 2
    return [plains(got), plains(letters)]


def retry_once(stage: Stage) -> Observed:
    topic, group = stage.topic(1), stage.group()
    producer = stage.producer()
    consumer = stage.consumer(topic, group, failures=1, retry_level=1)
    stage.send(producer, [{"topic": topic, "body": "again"}])
    got = stage.received(consumer, 2)
    return plains(got)


# -- time and transactions ------------------------------------------------------------------------------


def delay(stage: Stage) -> Observed:
    """Level 2 is five seconds: never early."""
    topic, group = stage.topic(1), stage.group()
    producer = stage.producer()
    consumer = stage.consumer(topic, group)
    begin = time.time() * 1000
    assert statuses(stage.send(producer, [{"topic": topic, "body": "later", "delay": 2}])) == ["SEND_OK"]
    got = stage.received(consumer, 1)
    assert got[0]["at"] - begin >= 5_000
    return plains(got)


def transactions(stage: Stage) -> Observed:
    """Commit and rollback at once, and both after the broker asked."""
    topic, group = stage.topic(1), stage.group()
    producer = stage.producer(transactional=True)
    consumer = stage.consumer(topic, group)
    for verdict in ("commit", "rollback", "unknown-commit", "unknown-rollback"):
        half = {"topic": topic, "body": f"{verdict} {stage.word}", "properties": {"verdict": verdict}}
        assert stage.driver.ask("transaction", name=producer, message=half)["status"] == "SEND_OK"
    got = stage.received(consumer, 2, 90_000)
    wait_until(lambda: f"of:unknown-rollback {stage.word}" in stage.driver.ask("checks"))
    got = stage.received(consumer, 3, 2_000)
    assert bodies(got) == [f"commit {stage.word}", f"unknown-commit {stage.word}"]
    found = plains(got)
    for message in found:
        message["body"] = message["body"].split()[0]
        # How often it was asked about depends on when the scan came by.
        message["properties"].pop("TRANSACTION_CHECK_TIMES", None)
    return found


# -- asking -------------------------------------------------------------------------------------------


def query(stage: Stage) -> Observed:
    """By key, by unique key, by offset message id; and what is not there."""
    topic = stage.topic(1)
    producer = stage.producer()
    sent = stage.send(producer, numbered(topic, 5))

    def find(**what: str) -> Any:
        answer = stage.driver.ask("find", name=producer, topic=topic, **what)
        return plains(answer["messages"]) if "messages" in answer else answer["code"]

    wait_until(lambda: isinstance(find(key="k4"), list))
    found = [
        find(key="k3"),
        find(id=sent[2]["message_id"]),
        find(id=sent[1]["offset_message_id"]),
        find(key="none"),
    ]
    assert [[m["body"] for m in f] for f in found[:3]] == [["m3"], ["m2"], ["m1"]]
    return found


def offsets_and_pulls(stage: Stage) -> Observed:
    topic, group = stage.topic(2), stage.group()
    producer = stage.producer()
    stage.send(producer, [{**message, "order": i} for i, message in enumerate(numbered(topic, 10))])
    asked = [(0, 32, "*"), (0, 2, "*"), (5, 32, "*"), (99, 1, "*"), (0, 32, "zz"), (0, 9, "a")]
    puller = stage.name("puller")
    stage.driver.ask("puller", name=puller, group=group, namesrv=stage.cluster.namesrv)
    try:
        before = stage.driver.ask("offsets", name=puller, topic=topic)["queues"]
        pulls = [
            stage.driver.ask("pull", name=puller, topic=topic, queue_id=0, offset=at, count=count, tags=tags)
            for at, count, tags in asked
        ]
    finally:
        stage.driver.ask("stop-puller", name=puller)
    return [before, [{**pull, "messages": bodies(pull.get("messages", [])), "rss_anon": 0} for pull in pulls]]


def lite_pull(stage: Stage) -> Observed:
    topic, group = stage.topic(2), stage.group()
    producer = stage.producer()
    stage.send(producer, numbered(topic, 10))
    lite = stage.name("lite")
    stage.driver.ask("lite", name=lite, group=group, namesrv=stage.cluster.namesrv, topic=topic)
    try:
        first = stage.driver.ask("poll", name=lite, count=10, commit=True)["messages"]
        stage.driver.ask("seek", name=lite, topic=topic)
        again = stage.driver.ask("poll", name=lite, count=10)["messages"]
    finally:
        stage.driver.ask("stop-lite", name=lite)
    assert bodies(first) == bodies(again) == bodies(numbered(topic, 10))
    return plains(first)


def request_and_reply(stage: Stage) -> Observed:
    topic, group = stage.topic(1), stage.group()
    producer = stage.producer()
    stage.consumer(topic, group, replies=True)
    answers = []
    for i in range(3):
        message = {"topic": topic, "body": f"question {i}"}
        answers.append(
            stage.driver.ask("request", name=producer, message=message, timeout_ms=20_000)["reply"]
        )
    assert answers == [f"reply to question {i}" for i in range(3)]
    return answers


def trace(stage: Stage) -> Observed:
    """The client's own trace messages go to their topic and come out of it."""
    topic, group = stage.topic(1), stage.group()
    producer = stage.producer(trace=True)
    sent = stage.send(producer, [{"topic": topic, "body": "traced", "keys": "tk"}])
    consumer = stage.consumer("RMQ_SYS_TRACE_TOPIC", group)

    def traced() -> list[str]:
        return [m["body"] for m in stage.received(consumer, 1) if sent[0]["message_id"] in m["body"]]

    wait_until(lambda: bool(traced()))
    return len(traced())


# -- the broker goes away ---------------------------------------------------------------------------------


def restart(stage: Stage, *, kill: bool) -> Observed:
    """Clients reconnect, no acked message is lost or doubled by the broker, offsets go on where they were."""
    topic, group = stage.topic(2), stage.group()
    producer = stage.producer(retries=0)
    consumer = stage.consumer(topic, group)
    acked = [f"m{i}" for i in range(20)]
    assert (
        statuses(stage.send(producer, [{"topic": topic, "body": body} for body in acked])) == ["SEND_OK"] * 20
    )
    stage.received(consumer, 20)
    wait_until(lambda: stage.committed(topic, group) == 20)
    stage.cluster.stop(kill=kill)
    stage.cluster.start()
    deadline = time.monotonic() + 60
    number = 0
    while number < 10 and time.monotonic() < deadline:
        result = stage.send(producer, [{"topic": topic, "body": f"after{number}"}])[0]
        if result.get("status") == "SEND_OK":
            acked.append(f"after{number}")
            number += 1
        else:
            time.sleep(0.2)
    assert number == 10
    got = stage.received(consumer, 30, 90_000)
    assert bodies(got) == sorted(acked)
    wait_until(lambda: stage.committed(topic, group) >= 30)
    stage.stop(consumer)
    # A new member of the group begins where the old one ended.
    late = stage.consumer(topic, group, "late")
    assert statuses(stage.send(producer, [{"topic": topic, "body": "end"}])) == ["SEND_OK"]
    rest = stage.received(late, 1)
    assert bodies(rest) == ["end"]
    return bodies(got)


def orderly_restart(stage: Stage) -> Observed:
    return restart(stage, kill=False)


def killed(stage: Stage) -> Observed:
    return restart(stage, kill=True)


JAVA: dict[str, Callable[[Stage], Observed]] = {
    scenario.__name__: scenario
    for scenario in (
        send_and_consume,
        send_asynchronously,
        send_one_way,
        send_a_batch,
        send_to_a_new_topic,
        send_large_bodies_compressed,
        refuse_bad_sends,
        consume_in_order,
        consume_by_broadcast,
        consume_by_tag,
        consume_by_sql,
        lite_pull_by_sql,
        refuse_what_is_no_filter,
        messages_come_at_once,
        rebalance,
        retry_once,
        retry_then_dead_letter,
        delay,
        transactions,
        query,
        offsets_and_pulls,
        lite_pull,
        request_and_reply,
        trace,
        orderly_restart,
        killed,
    )
}
GO: dict[str, Callable[[Stage], Observed]] = {
    scenario.__name__: scenario
    for scenario in (
        send_and_consume,
        send_asynchronously,
        send_one_way,
        send_a_batch,
        send_large_bodies_compressed,
        consume_in_order,
        consume_by_broadcast,
        consume_by_tag,
        consume_by_sql,
        messages_come_at_once,
        retry_once,
        retry_then_dead_letter,
        delay,
        transactions,
    )
}
