"""What a run of records asks the dispatcher to write."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from format.strategies import logs
from penstock.format.batchunit import BatchUnit, decode_batch_unit
from penstock.format.columns import COLUMNS, decode_columns
from penstock.format.dispatch import dispatch_run
from penstock.format.javahash import key_hash
from penstock.format.queueunit import QueueUnit, decode_queue_unit
from penstock.format.record import decode_record, encode_record
from penstock.format.walk import walk
from penstock.message.properties import encode_properties


def run_of(*messages: dict[str, Any], base: int = 0) -> bytes:
    buffer = b""
    for i, message in enumerate(messages):
        given: dict[str, Any] = {
            "topic": "T",
            "body": b"body",
            "queue_offset": i,
            "physical_offset": base + len(buffer),
            "store_timestamp": 1000 + i,
        }
        given |= message
        given["properties"] = encode_properties(given.get("properties", {}))
        buffer += encode_record(**given)
    return buffer


@given(logs())
def test_units_and_keys_follow_the_log(log: tuple[int, list[bytes]]) -> None:
    base, records = log
    buffer = b"".join(records)
    run = dispatch_run(buffer, base)
    assert (run.end_position, run.stop) == (len(buffer), "end")
    visible = [r for r in map(decode_record, records) if not r.sys_flag & 4]
    assert [(u.topic, u.queue_id, u.queue_offset) for u in run.units] == [
        (r.topic, r.queue_id, r.queue_offset) for r in visible
    ]
    assert [decode_queue_unit(u.unit)[:2] for u in run.units] == [
        (r.physical_offset, r.total_size) for r in visible
    ]
    findable = {r.physical_offset for r in map(decode_record, records) if r.sys_flag & 0xC != 0xC}
    assert {key.physical_offset for key in run.keys} <= findable


def test_unique_key_then_keys_then_tags() -> None:
    properties = {"TAGS": "tag", "KEYS": "a  b", "UNIQ_KEY": "u"}
    buffer = run_of({"properties": properties})
    keys = dispatch_run(buffer, 0).keys
    assert keys == [(key_hash(text), 0, 1000) for text in ("T#u", "T#a", "T#b", "T#T#tag")]
    assert dispatch_run(buffer, 0, index_tags=False).keys == keys[:3]


def test_transactions_decide_what_is_queued_and_indexed() -> None:
    kinds = (0x0, 0x4, 0x8, 0xC)
    buffer = run_of(*({"sys_flag": kind, "properties": {"UNIQ_KEY": f"u{kind}"}} for kind in kinds))
    run = dispatch_run(buffer, 0)
    assert [unit.queue_offset for unit in run.units] == [0, 2]
    assert [key.key_hash for key in run.keys] == [key_hash(f"T#u{kind}") for kind in (0x0, 0x4, 0x8)]


def test_a_batch_topic_gets_batch_units() -> None:
    buffer = run_of(
        {"sys_flag": 0xC0, "properties": {"INNER_BASE": "7", "INNER_NUM": "3"}, "queue_offset": 7},
        {"queue_offset": 10},
        {"queue_offset": 11, "properties": {"INNER_BASE": "7", "INNER_NUM": "99999999999"}},
    )
    run = dispatch_run(buffer, 0, batch_topics={"T"})
    units = [decode_batch_unit(unit.unit) for unit in run.units]
    assert [(unit.base_offset, unit.batch_size) for unit in units] == [(7, 3), (10, 1), (11, 1)]
    assert units[0] == BatchUnit(0, units[1].physical_offset, 0, 1000, 7, 3)
    assert [unit.queue_offset for unit in run.units] == [7, 10, 11]


def test_light_queues_get_a_unit_each() -> None:
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,other,../x", "INNER_MULTI_QUEUE_OFFSET": "4,5,6"}
    buffer = run_of({"queue_id": 2, "properties": properties})
    run = dispatch_run(buffer, 0, multi_dispatch=True)
    assert [unit[:2] + unit[3:] for unit in run.units] == [("T", 2, 0), ("%LMQ%a", 0, 4), ("other", 2, 5)]
    assert len({unit.unit for unit in run.units}) == 1
    assert len(dispatch_run(buffer, 0).units) == 1
    lists_differ = run_of({"properties": properties | {"INNER_MULTI_QUEUE_OFFSET": "4,5"}})
    assert len(dispatch_run(lists_differ, 0, multi_dispatch=True).units) == 1


def test_a_run_ends_at_a_record_of_another_place() -> None:
    buffer = run_of({}, {})
    run = dispatch_run(buffer, 0)
    assert decode_queue_unit(run.units[1].unit) == QueueUnit(len(buffer) // 2, len(buffer) // 2, 0)
    assert dispatch_run(buffer, 512).stop == "offset"
    assert dispatch_run(buffer, 512).units == []


@given(logs())
def test_columns_have_a_row_for_each_record(log: tuple[int, list[bytes]]) -> None:
    base, records = log
    buffer = b"".join(records)
    columns = decode_columns(walk(buffer, 0, len(buffer), base).records)
    assert list(columns) == list(COLUMNS)
    assert {len(values) for values in columns.values()} == {len(records)}
    assert columns["size"] == [len(record) for record in records]
    assert columns["physicalOffset"] == [decode_record(record).physical_offset for record in records]
