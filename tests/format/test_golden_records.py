"""Every record of every golden directory, decoded and encoded again."""

from __future__ import annotations

from typing import Any

import pytest

from format.golden_log import GoldenLog
from golden_store import CASES, KILLED_CASES, PUT_CASES, body_of
from penstock.format.batch import BatchBlock, encode_batch, unwrap_inner_batch
from penstock.format.record import RecordFields, encode_record
from penstock.message.host import pack_host

every_case = pytest.mark.parametrize("golden_log", CASES, indirect=True)
put_cases = pytest.mark.parametrize("golden_log", PUT_CASES, indirect=True)


def surviving_puts(log: GoldenLog) -> list[dict[str, Any]]:
    """The puts whose records are still in the log: not those of deleted files or behind a damaged place."""
    start = log.walks[0][0]
    end = log.manifest.get("damage", {}).get("recordPhysicalOffset", 1 << 62)
    return [put for put in log.manifest["puts"] if start <= put["physicalOffset"] < end]


def expected_records(put: dict[str, Any], log: GoldenLog) -> list[bytes]:
    """The bytes a put should have left.

    The order of a batch's property maps is not in the manifest: taken as found.
    """
    common: dict[str, Any] = {
        "queue_id": put["queueId"],
        "sys_flag": put["sysFlag"],
        "born_timestamp": put["bornTimestamp"],
        "born_host": put["bornHost"],
        "store_host": put["storeHost"],
        "reconsume_times": put["reconsumeTimes"],
        "queue_offset": put["queueOffset"],
        "physical_offset": put["physicalOffset"],
        "store_timestamp": put["storeTimestamp"],
        "property_crc": bool(log.manifest["config"].get("enabledAppendPropCRC")),
    }
    if "batch" not in put:
        return [
            encode_record(
                put["topic"],
                body_of(put["body"]),
                put["propertiesString"].encode(),
                flag=put["flag"],
                prepared_transaction_offset=put["preparedTransactionOffset"],
                **common,
            )
        ]
    found = records_of(put, log)
    reserved = 20 if common["property_crc"] else 0
    blocks = [
        BatchBlock(body_of(given["body"]), stored[: len(stored) - reserved], given["flag"])
        for given, stored in zip(put["batch"], [record.properties_bytes for record in found], strict=True)
    ]
    return encode_batch(put["topic"], blocks, **common)


def records_of(put: dict[str, Any], log: GoldenLog) -> list[RecordFields]:
    """The records a put made: several for a client batch, else one."""
    start, end = put["physicalOffset"], put["physicalOffset"] + put["wroteBytes"]
    return [record for record in log.records if start <= record.physical_offset < end]


@every_case
def test_the_walk_reaches_the_end_of_the_log(golden_log: GoldenLog) -> None:
    stops = [result.stop for _, _, result in golden_log.walks]
    last = golden_log.records[-1]
    data_files = next(i for i, stop in enumerate(stops) if stop != "blank") + 1
    damaged = "damage" in golden_log.manifest
    assert stops[data_files - 1] in ({"crc", "length", "torn"} if damaged else {"zero"})
    assert set(stops[data_files:]) <= {"zero"}
    assert last.physical_offset + last.total_size == golden_log.store.answers["maxPhysicalOffset"]


@put_cases
def test_every_put_is_found_where_the_store_said(golden_log: GoldenLog) -> None:
    puts = surviving_puts(golden_log)
    assert puts
    for put in puts:
        records = records_of(put, golden_log)
        assert len(records) == (len(put["batch"]) if "batch" in put else 1)
        assert ",".join(record.message_id for record in records) == put["msgId"]
        assert sum(record.total_size for record in records) == put["wroteBytes"]
        for i, record in enumerate(records):
            assert (record.topic, record.queue_id) == (put["topic"], put["queueId"])
            assert record.queue_offset == put["queueOffset"] + i
            assert record.sys_flag == put["sysFlag"]
            assert record.store_timestamp == put["storeTimestamp"]
            assert record.born_timestamp == put["bornTimestamp"]
            assert pack_host(record.born_host) == pack_host(put["bornHost"])
            assert pack_host(record.store_host) == pack_host(put["storeHost"])
            assert record.reconsume_times == put["reconsumeTimes"]
            assert record.prepared_transaction_offset == put["preparedTransactionOffset"]
            given = put["batch"][i] if "batch" in put else put
            assert record.flag == given["flag"]
            assert record.body == body_of(given["body"])
            properties = dict(given["properties"] if "batch" in put else given["propertiesGiven"])
            stored = record.properties
            for added in ("__CRC32#", "INNER_BASE", "INNER_MULTI_QUEUE_OFFSET"):
                if added in stored and stored[added] != properties.get(added):
                    properties[added] = stored[added]
            assert stored == {name: value for name, value in properties.items() if value}


@put_cases
def test_the_same_puts_give_the_same_bytes(golden_log: GoldenLog) -> None:
    for put in surviving_puts(golden_log):
        expected = b"".join(expected_records(put, golden_log))
        assert expected == golden_log.bytes_at(put["physicalOffset"], put["wroteBytes"])


@every_case
def test_records_look_as_the_store_shows_them(golden_log: GoldenLog) -> None:
    shown = golden_log.store.answers["lookMessageByOffset"] + (
        golden_log.manifest["log"] if golden_log.store.case == "broker" else []
    )
    by_offset = golden_log.by_offset
    looked_at = 0
    for answer in shown:
        record = by_offset.get(answer["offset"])
        if not answer["found"]:
            assert record is None
            continue
        if record is None:
            # After the head was deleted the original serves the first surviving record for offset 0 (6.4).
            assert answer["offset"] == 0
            continue
        looked_at += 1
        assert (record.topic, record.queue_id, record.queue_offset) == (
            answer["topic"],
            answer["queueId"],
            answer["queueOffset"],
        )
        assert (record.total_size, record.body_crc) == (answer["storeSize"], answer["bodyCRC"])
        assert (record.sys_flag, record.message_id) == (answer["sysFlag"], answer["msgId"])
        assert record.properties == (answer["properties"] or {})
        if "body" in answer:
            assert record.body == body_of(answer["body"])
            assert record.store_timestamp == answer["storeTimestamp"]
            assert pack_host(record.born_host) == pack_host(answer["bornHost"])
    assert looked_at


@pytest.mark.parametrize("golden_log", ["broker"], indirect=True)
def test_the_broker_log_holds_exactly_what_its_manifest_lists(golden_log: GoldenLog) -> None:
    listed = [row["offset"] for row in golden_log.manifest["log"]]
    assert [record.physical_offset for record in golden_log.records] == listed


@pytest.mark.parametrize("golden_log", KILLED_CASES, indirect=True)
def test_a_killed_log_holds_exactly_what_recovery_keeps(golden_log: GoldenLog) -> None:
    kept = golden_log.manifest["afterRecovery"]["log"]
    found = [
        [r.physical_offset, r.total_size, r.topic, r.queue_id, r.queue_offset, r.store_timestamp]
        for r in golden_log.records
    ]
    assert found == kept


@pytest.mark.parametrize("recovered_log", KILLED_CASES, indirect=True)
def test_a_recovered_log_holds_the_same_records(recovered_log: GoldenLog) -> None:
    kept = recovered_log.manifest["afterRecovery"]["log"]
    assert [[record.physical_offset, record.total_size] for record in recovered_log.records] == [
        row[:2] for row in kept
    ]


@pytest.mark.parametrize("golden_log", ["batches"], indirect=True)
def test_an_inner_batch_unwraps_to_its_messages(golden_log: GoldenLog) -> None:
    puts = [put for put in golden_log.manifest["puts"] if "innerBatch" in put]
    assert puts
    for put in puts:
        (record,) = records_of(put, golden_log)
        messages = unwrap_inner_batch(record)
        assert [m.queue_offset for m in messages] == list(
            range(put["queueOffset"], put["queueOffset"] + put["msgNum"])
        )
        assert [(m.flag, m.body) for m in messages] == [
            (given["flag"], body_of(given["body"])) for given in put["innerBatch"]
        ]
