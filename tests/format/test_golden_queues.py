"""The queue files of every golden directory against what the log's records ask for."""

from __future__ import annotations

import base64
from collections import defaultdict

import pytest

from format.golden_log import GoldenLog
from golden_store import CASES, KILLED_CASES
from penstock.format.batchunit import BATCH_UNIT_SIZE, decode_batch_unit
from penstock.format.extunit import ExtOracle, ExtUnit, decode_ext_unit, is_ext_address, undecorate
from penstock.format.queueunit import (
    QUEUE_UNIT_SIZE,
    QueueUnit,
    decode_queue_unit,
    encode_queue_unit,
    tags_code,
)
from penstock.format.record import RecordFields

Queue = tuple[str, int]
CLEAN_CASES = [case for case in CASES if case not in KILLED_CASES]


def expected_units(log: GoldenLog) -> dict[Queue, dict[int, bytes]]:
    """Unit bytes by queue and queue offset."""
    expected: dict[Queue, dict[int, bytes]] = defaultdict(dict)
    for _, write in log.unit_writes():
        expected[write.topic, write.queue_id][write.queue_offset] = write.unit
    return expected


def stored_units(log: GoldenLog) -> dict[Queue, dict[int, bytes]]:
    """The same from the files; units behind the end of the log do not count."""
    end = log.records[-1].physical_offset + log.records[-1].total_size
    found: dict[Queue, dict[int, bytes]] = defaultdict(dict)
    for topic, queue_id, folder in log.store.queue_folders("consumequeue"):
        for file in log.store.files(folder):
            data = file.read_bytes()
            for position in range(0, len(data), QUEUE_UNIT_SIZE):
                unit = decode_queue_unit(data, position)
                if not unit.is_valid or unit.physical_offset >= end:
                    break
                offset = (int(file.name) + position) // QUEUE_UNIT_SIZE
                found[topic, queue_id][offset] = data[position : position + QUEUE_UNIT_SIZE]
    for topic, queue_id, folder in log.store.queue_folders("batchconsumequeue"):
        for file in log.store.files(folder):
            data = file.read_bytes()
            for position in range(0, len(data), BATCH_UNIT_SIZE):
                batch_unit = decode_batch_unit(data, position)
                if not batch_unit.is_valid or batch_unit.physical_offset >= end:
                    break
                stored = data[position : position + BATCH_UNIT_SIZE]
                found[topic, queue_id][batch_unit.base_offset] = stored
    return found


@pytest.mark.parametrize(
    "golden_log", [c for c in CLEAN_CASES if c not in ("queue-ext", "deleted-head")], indirect=True
)
def test_a_clean_store_has_exactly_the_units_of_its_log(golden_log: GoldenLog) -> None:
    stored = stored_units(golden_log)
    assert stored == expected_units(golden_log)
    for queue in golden_log.store.answers["queues"]:
        units = stored.get((queue["topic"], queue["queueId"]), {})
        if queue["type"] == "BatchCQ":
            last = decode_batch_unit(units[max(units)])
            assert (min(units), last.next_offset) == (queue["minOffset"], queue["maxOffset"])
        else:
            assert sorted(units) == list(range(queue["minOffset"], queue["maxOffset"]))


@pytest.mark.parametrize("golden_log", ["deleted-head"], indirect=True)
def test_units_of_deleted_records_stay_before_the_minimum_offset(golden_log: GoldenLog) -> None:
    stored, expected = stored_units(golden_log), expected_units(golden_log)
    assert golden_log.walks[0][0] == golden_log.store.answers["minPhysicalOffset"] > 0
    for queue in golden_log.store.answers["queues"]:
        units = stored[queue["topic"], queue["queueId"]]
        kept = range(queue["minOffset"], queue["maxOffset"])
        assert {q: units[q] for q in kept} == expected[queue["topic"], queue["queueId"]]
        assert sorted(units) == list(range(queue["maxOffset"]))


@pytest.mark.parametrize("golden_log", KILLED_CASES, indirect=True)
def test_the_units_of_a_killed_store_are_true_as_far_as_they_go(golden_log: GoldenLog) -> None:
    expected = expected_units(golden_log)
    stored = stored_units(golden_log)
    assert stored
    for queue, units in stored.items():
        assert {q: expected[queue][q] for q in units} == units
        assert sorted(units) == list(range(len(units)))


@pytest.mark.parametrize("recovered_log", KILLED_CASES, indirect=True)
def test_recovery_completed_the_queues(recovered_log: GoldenLog) -> None:
    stored = stored_units(recovered_log)
    assert stored == expected_units(recovered_log)
    for queue in recovered_log.store.answers["queues"]:
        assert len(stored[queue["topic"], queue["queueId"]]) == queue["maxOffset"]


@pytest.mark.parametrize("golden_log", ["queue-ext"], indirect=True)
def test_extension_files_are_rebuilt_byte_for_byte(golden_log: GoldenLog) -> None:
    bitmaps = {int(k): base64.b64decode(v) for k, v in golden_log.manifest["filterBitmaps"].items()}
    file_size = golden_log.store.setting("mappedFileSizeConsumeQueueExt", 0)
    ext: dict[Queue, ExtOracle] = defaultdict(lambda: ExtOracle(file_size))
    expected: dict[Queue, dict[int, bytes]] = defaultdict(dict)
    for record, write in golden_log.unit_writes():
        code = decode_queue_unit(write.unit).tags_code
        bitmap = bitmaps.get(record.physical_offset, b"")
        address = ext[write.topic, write.queue_id].put(ExtUnit(code, record.store_timestamp, bitmap))
        unit = QueueUnit(record.physical_offset, record.total_size, address)
        expected[write.topic, write.queue_id][write.queue_offset] = encode_queue_unit(unit)
    assert stored_units(golden_log) == expected
    folders = golden_log.store.queue_folders("consumequeue_ext")
    assert {(topic, queue_id) for topic, queue_id, _ in folders} == set(ext)
    for topic, queue_id, folder in folders:
        stored = [file.read_bytes() for file in golden_log.store.files(folder)]
        assert stored == [bytes(file) for file in ext[topic, queue_id].files]


@pytest.mark.parametrize("golden_log", ["queue-ext"], indirect=True)
def test_an_extension_address_leads_to_the_tags_code(golden_log: GoldenLog) -> None:
    by_offset: dict[int, RecordFields] = golden_log.by_offset
    files = {
        (topic, queue_id): b"".join(file.read_bytes() for file in golden_log.store.files(folder))
        for topic, queue_id, folder in golden_log.store.queue_folders("consumequeue_ext")
    }
    followed = 0
    for queue, units in stored_units(golden_log).items():
        for unit in map(decode_queue_unit, units.values()):
            assert is_ext_address(unit.tags_code)
            record = by_offset[unit.physical_offset]
            ext_unit = decode_ext_unit(files[queue], undecorate(unit.tags_code))
            assert ext_unit is not None
            assert ext_unit.store_timestamp == record.store_timestamp
            assert ext_unit.tags_code == tags_code(record.topic, record.properties, record.store_timestamp)
            followed += 1
    assert followed == len(golden_log.records)
