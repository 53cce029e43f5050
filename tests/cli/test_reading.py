"""``penstock store info|dump|get|find``: fields, filters and statuses as promised."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from golden_store import PUT_CASES, GoldenStore, body_of

from .conftest import Penstock

DUMP_FIELDS = {
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "size",
    "message_id",
    "unique_key",
    "sys_flag",
    "flag",
    "born_timestamp",
    "born_host",
    "store_timestamp",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "properties",
    "body",
}
Golden = Callable[..., GoldenStore]
SINGLES = [case for case in PUT_CASES if case not in ("batches", "hosts-ipv6", "long-topics", "prop-crc")]


@pytest.mark.parametrize("case", SINGLES)
def test_dump_prints_what_java_stored(case: str, penstock: Penstock, golden: Golden) -> None:
    store = golden(case)
    found = {line["physical_offset"]: line for line in penstock("store", "dump", store.path, "--json").lines}
    puts = [put for put in store.manifest["puts"] if "batch" not in put and put["status"] == "PUT_OK"]
    deleted = min(found)
    checked = 0
    for put in puts:
        if put["physicalOffset"] < deleted or put["physicalOffset"] not in found:
            assert case in ("deleted-head", "killed-torn")
            continue
        line = found[put["physicalOffset"]]
        assert set(line) == DUMP_FIELDS
        assert base64.b64decode(line["body"]) == body_of(put["body"])
        assert line["topic"] == put["topic"]
        assert (line["queue_id"], line["queue_offset"]) == (put["queueId"], put["queueOffset"])
        assert line["message_id"] == put["msgId"]
        assert (line["size"], line["sys_flag"], line["flag"]) == (
            put["wroteBytes"],
            put["sysFlag"],
            put["flag"],
        )
        assert (line["born_timestamp"], line["store_timestamp"]) == (
            put["bornTimestamp"],
            put["storeTimestamp"],
        )
        assert line["reconsume_times"] == put["reconsumeTimes"]
        assert line["prepared_transaction_offset"] == put["preparedTransactionOffset"]
        checked += 1
    assert checked > 100


def test_dump_is_in_the_order_of_the_log(penstock: Penstock, small_store: Path) -> None:
    lines = penstock("store", "dump", small_store, "--json").lines
    offsets = [line["physical_offset"] for line in lines]
    assert len(lines) == 600
    assert offsets == sorted(offsets)


def test_dump_filters_by_topic_queue_and_count(penstock: Penstock, small_store: Path) -> None:
    lines = penstock(
        "store", "dump", small_store, "--json", "--topic", "orders", "--queue", 2, "--count", 7
    ).lines
    assert len(lines) == 7
    assert {(line["topic"], line["queue_id"]) for line in lines} == {("orders", 2)}


def test_dump_begins_at_a_physical_offset(penstock: Penstock, small_store: Path) -> None:
    everything = penstock("store", "dump", small_store, "--json").lines
    middle = everything[400]["physical_offset"]
    assert penstock("store", "dump", small_store, "--json", "--from", middle).lines == everything[400:]
    assert penstock("store", "dump", small_store, "--json", "--from", middle - 1).lines == everything[400:]
    assert penstock("store", "dump", small_store, "--json", "--from", middle + 1).lines == everything[401:]


def test_dump_of_nothing_prints_nothing(penstock: Penstock, small_store: Path) -> None:
    assert penstock("store", "dump", small_store, "--json", "--count", 0).out == ""
    assert penstock("store", "dump", small_store, "--json", "--from", 10**12).out == ""


def test_properties_that_are_no_text_come_as_base64(penstock: Penstock, tmp_path: Path) -> None:
    from penstock import Message
    from penstock.store.opening import open_writable

    from .conftest import SMALL

    raw = b"NAME\x01\xff\xfe\x02"
    with open_writable(tmp_path / "s", config=SMALL) as store:
        store.put(Message("t", b"x", raw_properties=raw))
    (line,) = penstock("store", "dump", tmp_path / "s", "--json").lines
    assert "properties" not in line
    assert base64.b64decode(line["properties_base64"]).startswith(raw)


@pytest.mark.parametrize(
    "case", ["basic", "batches", "deleted-head", "broker", "queue-ext", "v4-basic", "lmq"]
)
def test_get_answers_as_java_did(case: str, penstock: Penstock, golden: Golden) -> None:
    store = golden(case)
    asked = [question for question in store.answers["getMessage"] if question["offset"] >= 0][:60:3]
    for question in asked:
        tags = ["--tags", question["tags"]] if question.get("tags") else []
        place = [question["topic"], question["queueId"], question["offset"], question["max"]]
        found = penstock("store", "get", store.path, *place, "--json", *tags).json
        assert found["status"] == question["status"], question
        assert found["next_begin_offset"] == question["nextBeginOffset"]
        assert (found["min_offset"], found["max_offset"]) == (question["minOffset"], question["maxOffset"])
        assert [m["physical_offset"] for m in found["messages"]] == question["physicalOffsets"]
    assert len(asked) > 5


def test_get_prints_one_object(penstock: Penstock, small_store: Path) -> None:
    found = penstock("store", "get", small_store, "orders", 0, 10, 5, "--json").json
    assert set(found) == {"status", "next_begin_offset", "min_offset", "max_offset", "messages"}
    assert (found["status"], found["next_begin_offset"], len(found["messages"])) == ("FOUND", 15, 5)
    assert set(found["messages"][0]) == DUMP_FIELDS


def test_get_of_an_unknown_topic_is_an_answer_not_an_error(penstock: Penstock, small_store: Path) -> None:
    outcome = penstock("store", "get", small_store, "nothing", 0, 0, "--json")
    assert outcome.code == 0
    assert outcome.json["status"] in ("NO_MATCHED_LOGIC_QUEUE", "NO_MESSAGE_IN_QUEUE")
    assert outcome.json["messages"] == []


@pytest.mark.parametrize("case", ["basic", "index-rolled", "v4-basic"])
def test_find_goes_through_the_index(case: str, penstock: Penstock, golden: Golden) -> None:
    store = golden(case)
    asked = [q for q in store.answers["queryMessage"] if "indexType" not in q and q["physicalOffsets"]][:20]
    for question in asked:
        limits = ["--max", question["max"], "--begin", question["begin"], "--end", question["end"]]
        outcome = penstock("store", "find", store.path, question["topic"], question["key"], "--json", *limits)
        found = {line["physical_offset"] for line in outcome.lines}
        # Java hands out whatever has the hash; we look at the key itself.
        assert found <= set(question["physicalOffsets"])
        assert outcome.code == 0
    assert len(asked) > 3


def test_find_prints_as_dump_does(penstock: Penstock, small_store: Path) -> None:
    (line,) = penstock("store", "find", small_store, "payments", "key-77", "--json").lines
    assert set(line) == DUMP_FIELDS
    assert line["properties"]["number"] == "77"
    assert penstock("store", "find", small_store, "payments", "key-78", "--json").out == ""


def test_info_counts_what_is_there(penstock: Penstock, small_store: Path) -> None:
    found = penstock("store", "info", small_store, "--json").json
    assert found["topics"] == ["orders", "payments"]
    assert sum(q["max_offset"] - q["min_offset"] for q in found["queues"]) == 600
    assert found["state"] == "closed"
    assert found["log"]["segment_size"] == 64 << 10
    assert found["index"]["entries"] >= 1200
    assert "orders" in penstock("store", "info", small_store).out


def test_people_get_lines_without_control_characters(penstock: Penstock, tmp_path: Path) -> None:
    from penstock import Message
    from penstock.store.opening import open_writable

    from .conftest import SMALL

    with open_writable(tmp_path / "s", config=SMALL) as store:
        store.put(Message("t", b"\x1b[31mred\x07", tags="\x1b]0;title\x07"))
    out = penstock("store", "dump", tmp_path / "s").out
    assert "\x1b" not in out and "\x07" not in out
    assert "red" in out
