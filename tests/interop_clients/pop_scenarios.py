"""What Java's push consumer sees when the broker has it pop: ``clientRebalance`` off, request mode POP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stage import Observed, Stage, bodies, numbered, plain, statuses, wait_until

# Handles and times belong to the run.
_OF_THE_RUN = ("POP_CK", "1ST_POP_TIME", "ORIGIN_GROUP")


def poppers(stage: Stage, queues: int = 4) -> tuple[str, str]:
    """A topic, and a group that the broker has pop it."""
    topic, group = stage.topic(queues), stage.group()
    arguments = ["setConsumeMode", "-n", stage.cluster.namesrv, "-b", stage.cluster.address]
    printed = stage.admin.ask(
        "mqadmin", arguments=[*arguments, "-t", topic, "-g", group, "-m", "POP", "-q", "0"]
    )
    assert "success" in printed["stdout"], printed
    return topic, group


def shown(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without what belongs to the run; which properties of a pop they have, all the same."""
    made = []
    for message in messages:
        kept = plain(message)
        has = sorted(name for name in _OF_THE_RUN if kept["properties"].pop(name, None) is not None)
        made.append({**kept, "has": has, "topic": message["topic"].rsplit("_", 1)[0]})
    return sorted(made, key=lambda each: (each["body"], each["reconsume_times"]))


def pop_concurrently(stage: Stage) -> Observed:
    """Two consumers of a group share all queues; each message comes to one of them, and late ones at once."""
    topic, group = poppers(stage)
    producer = stage.producer()
    assert statuses(stage.send(producer, numbered(topic, 40))) == ["SEND_OK"] * 40
    first = stage.consumer(topic, group, "first", pop=True)
    second = stage.consumer(topic, group, "second", pop=True)

    def both() -> list[dict[str, Any]]:
        return [*stage.received(first, 0, 0), *stage.received(second, 0, 0)]

    def all_seen(count: int) -> list[dict[str, Any]]:
        wait_until(lambda: len(both()) >= count)
        return both()

    got = all_seen(40)
    assert bodies(got) == bodies(numbered(topic, 40))
    stage.send(producer, [{"topic": topic, "body": "late"}])
    assert len(all_seen(41)) == 41
    wait_until(lambda: stage.committed(topic, group) == 41)
    return shown(got)


def pop_again_after_a_failure(stage: Stage) -> Observed:
    """A message whose listener fails comes again, of its own topic, with a count."""
    topic, group = poppers(stage, 1)
    producer = stage.producer()
    first, *others = numbered(topic, 3)
    # Alone: of several that come at once, any may be the one that fails.
    stage.send(producer, [first])
    consumer = stage.consumer(topic, group, pop=True, failures=1)
    assert [message["reconsume_times"] for message in stage.received(consumer, 2)] == [0, 1]
    stage.send(producer, others)
    got = stage.received(consumer, 4)
    assert sorted(message["reconsume_times"] for message in got) == [0, 0, 0, 1]
    return shown(got)


def pop_again_when_time_is_over(stage: Stage) -> Observed:
    """A listener that takes longer than the invisible time: what it held comes again, and nothing else."""
    topic, group = poppers(stage, 1)
    producer = stage.producer()
    stage.send(producer, numbered(topic, 1))
    options = {"pop": True, "invisible_ms": 5000, "sleeps": 1, "sleep_ms": 8000}
    got = stage.received(stage.consumer(topic, group, **options), 2)
    assert [message["reconsume_times"] for message in got] == [0, 1]
    return shown(got)


def pop_in_order(stage: Stage) -> Observed:
    """One queue, an orderly listener that fails once: the order stays, and nothing overtakes."""
    topic, group = poppers(stage, 1)
    producer = stage.producer()
    stage.send(producer, numbered(topic, 6))
    consumer = stage.consumer(topic, group, pop=True, orderly=True, failures=1, invisible_ms=5000)
    got = stage.received(consumer, 7)
    seen = [message["body"] for message in got]
    assert list(dict.fromkeys(seen)) == [f"m{number}" for number in range(6)]
    assert seen[0] == seen[1]
    return seen


def pop_until_dead(stage: Stage) -> Observed:
    """An orderly consumer gives a message up after its tries: it ends among the dead letters."""
    topic, group = poppers(stage, 1)
    producer = stage.producer()
    stage.send(producer, numbered(topic, 1))
    options = {"pop": True, "orderly": True, "failures": 3, "max_reconsume": 1, "invisible_ms": 5000}
    got = stage.received(stage.consumer(topic, group, **options), 2)
    wait_until(lambda: bool(stage.find(f"%DLQ%{group}", "k0")), 60)
    dead = stage.find(f"%DLQ%{group}", "k0")
    return len(got), [(message["body"], message["reconsume_times"]) for message in dead]


POP: dict[str, Callable[[Stage], Observed]] = {
    scenario.__name__: scenario
    for scenario in (
        pop_concurrently,
        pop_again_after_a_failure,
        pop_again_when_time_is_over,
        pop_in_order,
        pop_until_dead,
    )
}
