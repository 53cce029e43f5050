"""Directories that RocketMQ wrote, opened by us: every message, queue, key and time as RocketMQ says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from interop_support import (
    CASES,
    Written,
    compare_gets,
    compare_lookups,
    compare_messages,
    compare_queries,
    compare_times,
    messages_by_queue,
    our_message,
    read_queue,
)

from penstock import open_store
from penstock.bench.peer import Version
from penstock.message import Message

KILLED = [case for case in CASES if case[1].startswith("killed")]
CLEAN = [case for case in CASES if case not in KILLED]

Write = Callable[[Version, str], Written]


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize(("version", "scenario"), CLEAN)
def test_read_only_opening_gives_what_rocketmq_gave(
    written: Write, tmp_path: Path, version: Version, scenario: str
) -> None:
    case = written(version, scenario)
    path = case.copy(tmp_path / "store")
    before = snapshot(path)
    with open_store(path, read_only=True, config=case.config) as store:
        # Visible is what the queues point to: a half message or a rollback at the very end is not.
        queued_end = max(m["physicalOffset"] + m["size"] for m in case.answers["messages"])
        assert queued_end <= store.max_physical_offset <= case.answers["maxPhysicalOffset"]
        compare_messages(store, case.answers)
        compare_gets(store, case.answers)
        compare_queries(store, case.answers)
        compare_times(store, case.answers)
        compare_lookups(store, case.manifest, before=queued_end)
    assert snapshot(path) == before


@pytest.mark.parametrize(("version", "scenario"), CASES)
def test_opening_for_writing_keeps_everything_and_appends(
    written: Write, tmp_path: Path, version: Version, scenario: str
) -> None:
    case = written(version, scenario)
    path = case.copy(tmp_path / "store")
    with open_store(path, config=case.config) as store:
        assert store.min_physical_offset == case.answers["minPhysicalOffset"]
        assert store.max_physical_offset == case.answers["maxPhysicalOffset"]
        compare_messages(store, case.answers)
        compare_gets(store, case.answers)
        compare_queries(store, case.answers)
        compare_times(store, case.answers)
        compare_lookups(store, case.manifest)
        put = store.put(Message("appended-by-us", b"behind RocketMQ's last record", "tag", "appended-key"))
        assert put.ok
        assert put.physical_offset >= case.answers["maxPhysicalOffset"]
    with open_store(path, read_only=True, config=case.config) as store:
        assert [bytes(m.body) for m in read_queue(store, "appended-by-us", 0)] == [
            b"behind RocketMQ's last record"
        ]
        assert [m.physical_offset for m in store.query("appended-by-us", "appended-key")] == [
            put.physical_offset
        ]


@pytest.mark.parametrize(("version", "scenario"), KILLED)
def test_read_only_opening_of_a_killed_store_shows_what_the_queues_reach(
    written: Write, tmp_path: Path, version: Version, scenario: str
) -> None:
    case = written(version, scenario)
    path = case.copy(tmp_path / "store")
    before = snapshot(path)
    expected = messages_by_queue(case.answers)
    with open_store(path, read_only=True, config=case.config) as store:
        for topic, queue_id in store.queues():
            found = [
                our_message(message)["physical_offset"] for message in read_queue(store, topic, queue_id)
            ]
            whole = [message["physicalOffset"] for message in expected.get((topic, queue_id), [])]
            assert found == whole[: len(found)]
    assert snapshot(path) == before
