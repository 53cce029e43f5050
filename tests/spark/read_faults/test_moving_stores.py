"""Stores that change while they are read: a writer appends, retention deletes."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from penstock import open_store
from penstock.errors import DataLost, StoreError
from penstock.spark.batches import record_batches
from penstock.spark.options import ReadOptions
from penstock.spark.planning import plan_places
from spark.read_faults.reading import COLUMNS, SEGMENT, Row, config, message, read, segments, stored


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_store_written_while_it_is_read_gives_a_gapless_beginning(tmp_path: Path, flush: str) -> None:
    store: Any
    with open_store(tmp_path / "store", flush=flush, config=config()) as store:
        ended, written = threading.Event(), []
        failures: list[BaseException] = []

        def write() -> None:
            try:
                number = 0
                while number < 20_000 and not ended.is_set():
                    assert store.put(message(number)).ok
                    number += 1
                    written.append(number)
            except BaseException as error:
                failures.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            counts = []
            while len(counts) < 5:
                before = store_extent(store)
                rows = read(tmp_path / "store", splitBytes="64k")
                check_gapless(rows, before)
                counts.append(len(rows))
        finally:
            ended.set()
            writer.join()
        assert not failures
        assert counts == sorted(counts)
    assert read(tmp_path / "store") == stored(tmp_path / "store")
    assert len(stored(tmp_path / "store")) == written[-1] >= counts[-1]


def store_extent(store: Any) -> dict[tuple[str, int], int]:
    return {key: store.max_offset(*key) for key in store.queues()}


def check_gapless(rows: list[Row], at_least: dict[tuple[str, int], int]) -> None:
    """Each queue from 0 on without a gap, as far as was visible before the read began, bodies as put."""
    found: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        found[row.topic, row.queue].append(row)
        assert row.body == message(int(row.body[:6])).body
    for key, queue in found.items():
        assert [row.offset for row in queue] == list(range(len(queue))), key
    for key, end in at_least.items():
        assert len(found[key]) >= end, key


def task_rows(options: ReadOptions, splits: list[Any]) -> list[int]:
    return sorted(
        place
        for split in splits
        for batch in record_batches(split, COLUMNS, options)
        for place in batch.column("physicalOffset").to_pylist()
    )


def test_file_deleted_after_planning_fails_with_the_lost_ranges(store: Path) -> None:
    options = ReadOptions.parse({"path": str(store), "splitBytes": "64k"})
    splits = plan_places(options)
    expected = stored(store)
    segments(store)[0].unlink()
    with pytest.raises(DataLost) as caught:
        task_rows(options, splits)
    lost = {row for row in expected if row.place < SEGMENT}
    assert caught.value.ranges
    for topic, queue, start, end in caught.value.ranges:
        offsets = {row.offset for row in lost if (row.topic, row.queue) == (topic, queue)}
        assert start in offsets and end - 1 in offsets
    assert "failOnDataLoss" in caught.value.hint


def test_file_deleted_after_planning_is_passed_over_and_reported_when_told_so(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = ReadOptions.parse({"path": str(store), "splitBytes": "64k", "failOnDataLoss": "false"})
    splits = plan_places(options)
    kept = sorted(row.place for row in stored(store) if row.place >= SEGMENT)
    segments(store)[0].unlink()
    assert task_rows(options, splits) == kept
    assert "T0/0" in caplog.text or f"{0:020d}" in caplog.text


def test_start_that_retention_has_passed_is_a_loss(store: Path) -> None:
    expected = stored(store)
    segments(store)[0].unlink()
    kept = [row for row in expected if row.place >= SEGMENT]
    assert read(store) == kept
    start = '{"T0": {"0": 3}}'
    with pytest.raises(StoreError) as caught:
        read(store, subscribe="T0", startingOffsets=start)
    assert "T0" in str(caught.value) and "3" in str(caught.value)
    rows = read(store, subscribe="T0", startingOffsets=start, failOnDataLoss="false")
    assert rows == [row for row in kept if row.topic == "T0"]
