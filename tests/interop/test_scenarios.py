"""What the Java side can write, and that the plain reading of its logs agrees with what it says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from interop_support import (
    BOTH,
    CASES,
    ONLY_V5,
    JavaSide,
    Written,
    java_message,
    our_message,
    puts_in_order,
)

from penstock.bench.peer import Version
from penstock.format import RecordFields, walk


def read_log(written: Written) -> list[tuple[RecordFields, bytes]]:
    """Each record of the log with its bytes."""
    found = []
    property_crc = bool(written.manifest["config"].get("forceVerifyPropCRC"))
    for file in sorted((written.path / "commitlog").iterdir()):
        data = file.read_bytes()
        result = walk(data, 0, len(data), int(file.name), check_property_crc=property_crc)
        assert result.stop in ("blank", "zero"), (file, result.stop, result.end_position)
        position = 0
        for record in result.records:
            found.append((record, data[position : position + record.total_size]))
            position += record.total_size
    return found


def test_every_scenario_of_the_java_side_is_tested(java: Callable[[Version], JavaSide]) -> None:
    assert java("5.5.0").ask("scenarios")["scenarios"] == [*BOTH, *ONLY_V5]
    assert java("4.9.7").ask("scenarios")["scenarios"] == [*BOTH]


@pytest.mark.parametrize(("version", "scenario"), CASES)
def test_plain_walk_reads_the_log_that_rocketmq_wrote(
    written: Callable[[Version, str], Written], version: Version, scenario: str
) -> None:
    case = written(version, scenario)
    log = {record.physical_offset: (record, data) for record, data in read_log(case)}
    assert case.answers["messages"]
    for message in case.answers["messages"]:
        record, data = log[message["physicalOffset"]]
        assert our_message(record) == java_message(message)
        assert hashlib.md5(data, usedforsecurity=False).hexdigest() == message["recordMd5"]


@pytest.mark.parametrize(("version", "scenario"), CASES)
def test_log_holds_every_acknowledged_put_in_order(
    written: Callable[[Version, str], Written], version: Version, scenario: str
) -> None:
    case = written(version, scenario)
    puts = puts_in_order(case.manifest)
    records = [record for record, _ in read_log(case)]
    assert len(records) >= len(puts) if case.killed else len(records) == len(puts)
    for record, (topic, queue_id, place, body) in zip(records, puts, strict=False):
        assert place is None or record.physical_offset == place
        assert (record.topic, record.queue_id, record.body) == (topic, queue_id, body)
