"""Directories that real RocketMQ wrote give the rows that the store itself shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golden_store import CASES, KILLED_CASES, unpack
from penstock.format.batch import unwrap_inner_batch
from penstock.format.record import decode_record
from penstock.store.batchconsumequeue import BatchConsumeQueue
from penstock.store.readonly import ReadOnlyStore
from spark.read.rows import dumped, row_of, rows

ALL = [(case, False) for case in CASES] + [(case, True) for case in KILLED_CASES]


@pytest.fixture(params=ALL, ids=[case + ("-recovered" if recovered else "") for case, recovered in ALL])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    case, recovered = request.param
    return unpack(case, tmp_path, recovered=recovered).path


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["topic"], row["queueId"], row["queueOffset"]


def test_the_log_view_shows_what_a_dump_shows(golden: Path) -> None:
    expected = dumped(golden)
    # A dump goes around the torn tails of the killed stores, and says so; so does skip.
    options = {"view": "commitlog", "decompress": "false", "badRecords": "skip"}
    assert rows(golden, **options) == expected
    assert rows(golden, **options, splitBytes="16k") == expected


def queued(path: Path) -> list[dict[str, Any]]:
    """A row for every message that a queue points to, as the store hands it out."""
    found = []
    with ReadOnlyStore(path) as store:
        for topic, queue_id in store.queues():
            if topic.startswith("%LMQ%"):
                continue
            offset = store.min_offset(topic, queue_id)
            while offset < store.max_offset(topic, queue_id):
                result = store.get(topic, queue_id, offset, 100)
                for message, raw in zip(result.messages, result.raw, strict=True):
                    row = row_of(message)
                    if not isinstance(store._queues.find(topic, queue_id), BatchConsumeQueue):
                        found.append(row)
                        continue
                    for inner in unwrap_inner_batch(decode_record(bytes(raw))):
                        found.append(row | inner_fields(row, inner))
                assert result.next_begin_offset > offset
                offset = result.next_begin_offset
    return sorted(found, key=place)


def inner_fields(row: dict[str, Any], inner: Any) -> dict[str, Any]:
    from penstock.message.properties import parse_properties

    if not row["sysFlag"] & 0x80:
        return {}
    properties = parse_properties(inner.properties_bytes)
    return {
        "queueOffset": inner.queue_offset,
        "body": inner.body,
        "flag": inner.flag,
        "properties": properties,
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "uniqKey": properties.get("UNIQ_KEY"),
    }


@pytest.mark.parametrize("split", ["128m", "16k"])
def test_the_queue_view_shows_what_the_queues_point_to(golden: Path, split: str) -> None:
    options = {"includeSystemTopics": "true", "decompress": "false", "badRecords": "skip"}
    found = rows(golden, **options, splitBytes=split)
    found = [row for row in found if not row["topic"].startswith("%LMQ%")]
    assert sorted(found, key=place) == queued(golden)
