"""Scenarios of messages with a time, and of the topics that only some clusters have."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from stage import Observed, Stage, bodies, plain, statuses, wait_until

_TIMES = ("TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS")


def timeless(message: dict[str, Any]) -> dict[str, Any]:
    """As ``plain``, with the times of this run as names only."""
    kept = plain(message)
    kept["properties"] = {name: "" if name in _TIMES else value for name, value in kept["properties"].items()}
    return kept


def timed(stage: Stage) -> Observed:
    """By milliseconds, by seconds, at a moment, at one that is past: none early, and all the same."""
    topic, group = stage.topic(1), stage.group()
    producer, consumer = stage.producer(), stage.consumer(topic, group)
    begin = time.time() * 1000
    asked: dict[str, dict[str, int]] = {
        "ms": {"delay_ms": 3210},
        "sec": {"delay_sec": 2},
        "moment": {"deliver_in_ms": 4567},
        "past": {"deliver_in_ms": -5000},
    }
    sent = stage.send(producer, [{"topic": topic, "body": body, **more} for body, more in asked.items()])
    assert statuses(sent) == ["SEND_OK"] * 4
    got = sorted(stage.received(consumer, 4), key=lambda message: message["body"])
    at = {message["body"]: message["at"] - begin for message in got}
    assert at["ms"] >= 3210 and at["sec"] >= 2000 and at["moment"] >= 4567
    return ["recall_handle" in result for result in sent], [timeless(message) for message in got]


def too_far(stage: Stage) -> Observed:
    topic = stage.topic(1)
    (sent,) = stage.send(stage.producer(), [{"topic": topic, "body": "x", "deliver_in_ms": 4 * 86_400_000}])
    assert sent["code"] == 13
    return sent["error"], sent["text"].partition("For more")[0].partition("BROKER:")[0]


def recall(stage: Stage) -> Observed:
    """What is taken back never comes; its neighbour does."""
    topic, other, group = stage.topic(1), stage.topic(1, "Other"), stage.group()
    producer, consumer = stage.producer(), stage.consumer(topic, group)
    moment = int(time.time() * 1000) + 8000
    names = ("kept", "recalled", "kept too")
    sent = stage.send(producer, [{"topic": topic, "body": body, "deliver_ms": moment} for body in names])
    where = {"name": producer, "topic": topic}
    done = stage.driver.ask("recall", **where, handle=sent[1]["recall_handle"])
    assert done["message_id"] == sent[1]["message_id"]
    wrong = stage.driver.ask("recall", name=producer, topic=other, handle=sent[0]["recall_handle"])
    broken = stage.driver.ask("recall", **where, handle="broken")
    got = stage.received(consumer, 2)
    # A later one comes: what was recalled would have come before it.
    stage.send(producer, [{"topic": topic, "body": "later", "delay_ms": 2000}])
    got = stage.received(consumer, 3)
    assert bodies(got) == ["kept", "kept too", "later"]
    late = stage.driver.ask("recall", **where, handle=sent[0]["recall_handle"])
    return [
        (each["error"], each["code"], each["text"].partition("BROKER:")[0]) for each in (wrong, broken, late)
    ]


def timers_over_a_restart(stage: Stage) -> Observed:
    """Some fall due while the broker is down: each comes once."""
    topic, group = stage.topic(1), stage.group()
    producer = stage.producer(retries=5)
    consumer = stage.consumer(topic, group)
    messages = [{"topic": topic, "body": f"m{i}", "delay_ms": 1000 + 700 * i} for i in range(12)]
    assert statuses(stage.send(producer, messages)) == ["SEND_OK"] * 12
    stage.received(consumer, 2)
    stage.cluster.stop()
    stage.cluster.start()
    return bodies(stage.received(consumer, 12))


def inner_batch(stage: Stage) -> Observed:
    """A batch of a topic with batch queues is one record, and comes out as its messages."""
    topic, group = stage.name("B"), stage.group()
    where = ["-n", stage.cluster.namesrv, "-b", stage.cluster.address, "-t", topic]
    arguments = ["updateTopic", *where, "-r", "1", "-w", "1", "-a", "+queue.type=BatchCQ"]
    stage.admin.ask("mqadmin", arguments=arguments)
    wait_until(lambda: _is_known(stage, topic))
    producer, consumer = stage.producer(), stage.consumer(topic, group)
    batch = [{"topic": topic, "body": f"m{i}", "keys": f"k{i}"} for i in range(5)]
    sent = stage.driver.ask("send-batch", name=producer, messages=batch)
    assert sent["status"] == "SEND_OK"
    single = stage.send(producer, [{"topic": topic, "body": "single"}])
    got = sorted(stage.received(consumer, 6), key=lambda message: message["queue_offset"])
    offsets = [(message["body"], message["queue_offset"], message["keys"]) for message in got]
    assert [body for body, _, _ in offsets] == [*(f"m{i}" for i in range(5)), "single"]
    return sent["queue_offset"], single[0]["queue_offset"], offsets


def _is_known(stage: Stage, topic: str) -> bool:
    answer = stage.admin.ask("mqadmin", arguments=["topicRoute", "-n", stage.cluster.namesrv, "-t", topic])
    return "queueDatas" in answer["stdout"]


def light_queues(stage: Stage) -> Observed:
    """One message in two light queues, pulled from each."""
    topic, name = stage.topic(1), stage.name("puller")
    first, second = (f"%LMQ%{stage.name(part)}" for part in ("first", "second"))
    producer = stage.producer()
    stage.send(producer, [{"topic": topic, "body": "both", "light": f"{first},{second}"}])
    stage.send(producer, [{"topic": topic, "body": "second", "light": second}])
    where = {"namesrv": stage.cluster.namesrv, "group": stage.group()}
    stage.driver.ask("puller", name=name, **where)
    try:
        # A light queue has no route: the client must know the broker by another topic.
        stage.driver.ask("pull", name=name, topic=topic, queue_id=0, offset=0)

        def pull(light: str, offset: int = 0) -> dict[str, Any]:
            place = {"name": name, "topic": topic, "light": light, "queue_id": 0, "offset": offset}
            return stage.driver.ask("pull", **place)

        wait_until(lambda: "max" not in (answer := pull(second)) or answer["max"] == 2)
        seen = [pull(first), pull(second), pull(second, 1)]
        assert all("status" in answer for answer in seen), seen
        return [
            (*(answer[key] for key in ("status", "next", "min", "max")), bodies(answer["messages"]))
            for answer in seen
        ]
    finally:
        stage.driver.ask("stop-puller", name=name)


TIME: dict[str, Callable[[Stage], Observed]] = {
    scenario.__name__: scenario
    for scenario in (timed, too_far, recall, timers_over_a_restart, inner_batch, light_queues)
}
