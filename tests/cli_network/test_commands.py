"""The commands that talk to brokers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Message
from penstock.cli import main
from penstock.client.sync import Consumer, Producer
from penstock.testing import RunningBroker

Command = Callable[..., Any]


def bodies(lines: list[dict[str, Any]]) -> list[bytes]:
    return [base64.b64decode(line["body"]) for line in lines]


def send(broker: RunningBroker, topic: str, count: int, **options: Any) -> list[Any]:
    with Producer(namesrv=broker.namesrv) as producer:
        return producer.send_batch([Message(topic, b"%d" % number, **options) for number in range(count)])


def test_a_message_is_sent_and_seen(command: Command) -> None:
    sent = command(
        "send", "orders", "a flat white", "--tags", "coffee", "--keys", "order-2", "-p", "table=4", "--json"
    )
    assert (sent.code, sent.json["status"], sent.json["queue_offset"]) == (0, "SEND_OK", 0)
    (seen,) = command("tail", "orders", "--no-follow", "--json").lines
    assert bodies([seen]) == [b"a flat white"]
    assert seen["properties"]["table"] == "4"
    assert seen["unique_key"] == sent.json["message_id"]
    assert "a flat white" in command("tail", "orders", "--no-follow", "--tags", "coffee").out
    assert command("tail", "orders", "--no-follow", "--tags", "tea").out == ""


def test_lines_of_the_input_are_sent(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import sys

    reading, writing = os.pipe()
    os.write(writing, b"one\ntwo\nthree")
    os.close(writing)
    with os.fdopen(reading) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert command("send", "numbers", "-").out == "3 messages sent to numbers\n"
    assert sorted(bodies(command("tail", "numbers", "--no-follow", "--json").lines)) == [
        b"one",
        b"three",
        b"two",
    ]


def test_a_group_goes_on_where_it_was(command: Command, penstock_broker: RunningBroker) -> None:
    send(penstock_broker, "orders", 6)
    first = command("tail", "orders", "--group", "kitchen", "--count", "3", "--json").lines
    second = command("tail", "orders", "--group", "kitchen", "--count", "3", "--json").lines
    assert bodies(first) + bodies(second) == [b"%d" % number for number in range(6)]


def test_topics_are_made_shown_listed_and_removed(command: Command, penstock_broker: RunningBroker) -> None:
    assert command("topic", "create", "orders", "--queues", "3", "--json").json["brokers"] == ["broker-a"]
    assert command("topic", "list", "--json").json == {"topics": ["orders"]}
    assert "TBW102" in command("topic", "list", "--all").out
    send(penstock_broker, "orders", 5)
    shown = command("topic", "show", "orders", "--json").json
    assert [queue["queue_id"] for queue in shown["queues"]] == [0, 1, 2]
    assert sum(queue["max_offset"] for queue in shown["queues"]) == 5
    text = command("topic", "show", "orders").out
    assert "broker-a" in text
    assert command("topic", "delete", "orders", "--json").code == 2  # nobody to ask, and not told to
    assert command("topic", "delete", "orders", "--yes").code == 0
    assert command("topic", "list", "--json").json == {"topics": []}


def test_groups_are_made_shown_moved_and_removed(command: Command, penstock_broker: RunningBroker) -> None:
    penstock_broker.create_topic("orders", 1)
    send(penstock_broker, "orders", 4)
    assert command("group", "create", "kitchen", "--retries", "5", "--json").code == 0
    listed = {group["group"]: group for group in command("group", "list", "--json").json["groups"]}
    assert listed["kitchen"]["retry_max_times"] == 5
    assert "TOOLS_CONSUMER" not in listed
    assert "TOOLS_CONSUMER" in command("group", "list", "--all").out
    with Consumer("kitchen", "orders", namesrv=penstock_broker.namesrv, start="earliest") as consumer:
        for _ in range(3):
            message = consumer.next(30)
            assert message is not None
            with message:
                pass
        consumer.commit()
        shown = command("group", "show", "kitchen", "--topic", "orders", "--json").json
        assert [queue["lag"] for queue in shown["queues"]] == [1]
        assert len(shown["clients"]) == 1
        assert shown["subscriptions"]["orders"] == "*"
    assert "nobody is connected" in command("group", "show", "kitchen").out
    moved = command("group", "reset", "kitchen", "orders", "--to", "earliest", "--json").json
    assert [queue["offset"] for queue in moved["queues"]] == [0]
    moved = command("group", "reset", "kitchen", "orders", "--queue", "0", "--offset", "2", "--json").json
    assert [queue["offset"] for queue in moved["queues"]] == [2]
    with Consumer("kitchen", "orders", namesrv=penstock_broker.namesrv) as consumer:
        message = consumer.next(30)
        assert message is not None
        assert message.body == b"2"
    assert command("group", "reset", "kitchen", "orders").code == 2
    assert command("group", "delete", "kitchen", "--yes").code == 0
    assert "kitchen" not in command("group", "list").out


def test_a_message_is_found_by_id_key_and_place(command: Command, penstock_broker: RunningBroker) -> None:
    penstock_broker.create_topic("orders", 1)
    sent = send(penstock_broker, "orders", 20, keys="k7 all", tags="t")
    by_place = command("message", "show", sent[3].offset_message_id, "--json").json
    assert bodies([by_place]) == [b"3"]
    by_unique = command("message", "show", sent[4].message_id, "--topic", "orders", "--json").json
    assert bodies([by_unique]) == [b"4"]
    assert "4" in command("message", "show", sent[4].message_id, "--topic", "orders").out
    assert len(command("message", "find", "orders", "k7", "--json").lines) == 20
    assert command("message", "find", "orders", "nothing").out == ""
    last = command("message", "peek", "orders", "--count", "2", "--json").lines
    assert bodies(last) == [b"18", b"19"]
    middle = command(
        "message", "peek", "orders", "--queue", "0", "--from", "5", "--count", "2", "--json"
    ).lines
    assert bodies(middle) == [b"5", b"6"]
    unknown = command("message", "show", sent[4].message_id)
    assert unknown.code == 2
    assert "--topic" in unknown.err


def test_a_message_is_sent_again_as_a_new_one(command: Command, penstock_broker: RunningBroker) -> None:
    (sent,) = send(penstock_broker, "orders", 1, tags="t", properties={"table": "4"})
    again = command("message", "resend", sent.offset_message_id, "--to", "others", "--json").json
    (seen,) = command("tail", "others", "--no-follow", "--json").lines
    assert bodies([seen]) == [b"0"]
    assert seen["properties"]["table"] == "4"
    assert seen["properties"]["TAGS"] == "t"
    assert seen["unique_key"] == again["message_id"] != sent.message_id


def test_brokers_are_listed_and_shown(command: Command, penstock_broker: RunningBroker) -> None:
    (listed,) = command("broker", "list", "--json").json["brokers"]
    assert (listed["broker"], listed["address"]) == ("broker-a", penstock_broker.address)
    assert command("broker", "show", "--json").json["address"] == penstock_broker.address
    assert "brokerVersionDesc" in command("broker", "show", "broker-a").out
    assert command("broker", "show", "nobody").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "list"),
        ("group", "show", "g"),
        ("broker", "list"),
        ("send", "orders", "x"),
        ("tail", "orders", "--no-follow"),
    ],
)
def test_no_name_server_is_one_clear_error(
    arguments: tuple[str, ...], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main([*arguments, "--json", "--namesrv", "127.0.0.1:1"]) == 2
    error = json.loads(capfdbinary.readouterr().err)
    assert error["error"] in ("ConnectionLost", "RemotingTimeout")
    assert "127.0.0.1:1" in error["message"]


def test_what_is_not_there_is_an_error(command: Command) -> None:
    for arguments in (
        ("topic", "show", "nowhere"),
        ("tail", "nowhere", "--no-follow"),
        ("message", "peek", "nowhere"),
    ):
        outcome = command(*arguments, "--json")
        assert outcome.code == 2
        assert json.loads(outcome.err)["error"] == "RouteNotFound"
