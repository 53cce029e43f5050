"""Messages that no store takes: refused with the right status, and nothing is written."""

from __future__ import annotations

from typing import Any

import pytest

from faults.place import SMALL, Place
from penstock import Message

LIMIT = SMALL.replace(max_message_size=4096, mapped_file_size_commit_log=128 << 10)

ILLEGAL = {
    "body over the limit": Message("T", bytes(4097)),
    "no body": Message("T", None),  # type: ignore[arg-type]
    "body of text": Message("T", "text"),  # type: ignore[arg-type]
    "topic over the limit": Message("T" * 128, b"x"),
    "retry topic over the limit": Message("%RETRY%" + "g" * 249, b"x"),
    "topic long in bytes": Message("é" * 64, b"x"),
    "empty topic": Message("", b"x"),
    "no topic": Message(None, b"x"),  # type: ignore[arg-type]
    "topic that climbs": Message("..", b"x"),
    "topic that stays": Message(".", b"x"),
    "topic with a slash": Message("a/b", b"x"),
    "topic that climbs out": Message("../../etc", b"x"),
    "topic with a backslash": Message("a\\b", b"x"),
    "topic with NUL": Message("a\0b", b"x"),
    "topic of half characters": Message("\ud800", b"x"),
    "negative queue": Message("T", b"x", queue_id=-1),
    "queue too large": Message("T", b"x", queue_id=2**31),
    "queue of text": Message("T", b"x", queue_id="1"),  # type: ignore[arg-type]
    "separator in a tag": Message("T", b"x", tags="a\x01b"),
    "separator in a key": Message("T", b"x", keys="a\x02b"),
    "separator in a property": Message("T", b"x", properties={"a": "b\x02c"}),
    "property that is no text": Message("T", b"x", properties={"a": 1}),  # type: ignore[dict-item]
    "unknown host": Message("T", b"x", born_host="nowhere"),
}

EXCEEDED = {
    "properties over the limit": Message("T", b"x", properties={"a": "b" * 32767}),
    "keys over the limit": Message("T", b"x", keys="k" * 32767),
    "raw properties over the limit": Message("T", b"x", raw_properties=b"a\x01" + b"b" * 32767 + b"\x02"),
}

CASES = [
    pytest.param(message, status, id=name)
    for messages, status in ((ILLEGAL, "MESSAGE_ILLEGAL"), (EXCEEDED, "PROPERTIES_SIZE_EXCEEDED"))
    for name, message in messages.items()
]


def everything(place: Place, folder: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in place.storage.listdir(folder):
        path = f"{folder}/{entry.name}"
        found |= everything(place, path) if entry.is_dir else {path: place.storage.read_file(path)}
        found.setdefault(path, None)
    return found


@pytest.fixture(scope="module")
def opened() -> Place:
    place = Place(config=LIMIT)
    place.open()
    place.put(0)
    place.store.dispatch()
    return place


@pytest.mark.parametrize(("message", "status"), CASES)
def test_illegal_message_is_refused_and_nothing_is_written(
    opened: Place, message: Message, status: str
) -> None:
    before, end = everything(opened, "/store"), opened.store.max_physical_offset
    result = opened.store.put(message)
    assert result.status == status and not result.ok and result.reason
    assert result.queue_offset == result.physical_offset == -1
    assert [r.status for r in opened.store.put_many([message])] == [status]
    opened.store.dispatch()
    assert opened.store.max_physical_offset == end
    assert everything(opened, "/store") == before


@pytest.mark.parametrize(("message", "status"), CASES)
def test_illegal_message_in_a_batch_leaves_the_others_alone(message: Message, status: str) -> None:
    place = Place(config=LIMIT)
    place.open()
    results = place.store.put_many([place.message(0), message, place.message(1)])
    assert [r.status for r in results] == ["PUT_OK", status, "PUT_OK"]
    assert [r.queue_offset for r in results] == [0, -1, 1]
    place.store.dispatch()
    assert place.numbers() == [0, 1]


def test_message_that_fits_no_file_is_refused() -> None:
    place = Place()
    place.open()
    result = place.store.put(Message("T", bytes(SMALL.mapped_file_size_commit_log)))
    assert result.status == "MESSAGE_ILLEGAL"
    place.put(0)
    place.store.dispatch()
    assert place.numbers() == [0]


LARGEST = {
    "body": Message("T", bytes(4096)),
    "empty body": Message("T", b""),
    "topic": Message("T" * 127, b"x"),
    "retry topic": Message("%RETRY%" + "g" * 248, b"x"),
    "properties": Message("T", b"x", raw_properties=b"a\x01" + b"b" * 32764 + b"\x02"),
    "queue": Message("T", b"x", queue_id=2**31 - 1),
    "host": Message("T", b"x", born_host="[::1]:65535"),
}


@pytest.mark.parametrize("message", [pytest.param(m, id=name) for name, m in LARGEST.items()])
def test_message_at_the_limit_is_taken_and_comes_back(message: Message) -> None:
    place = Place(config=LIMIT)
    place.open()
    assert place.store.put(message).status == "PUT_OK"
    place.store.dispatch()
    (found,) = place.store.get(message.topic, message.queue_id, 0)
    assert found.body == message.body and found.topic == message.topic
    place.reopen_after_kill()
    (found,) = place.store.get(message.topic, message.queue_id, 0)
    assert found.body == message.body
