"""Damage in the log is dealt with as the options say, never silently."""

from __future__ import annotations

import logging
import shutil
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Message, open_store
from penstock.errors import CorruptRecord, DataLost, StoreError
from penstock.spark.batches import record_batches
from penstock.spark.schema import NAMES
from spark.read.rows import planned, rows
from spark.read.stores import fill

SEGMENT = 1 << 16


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A store with one byte of one body changed, and the row of that message."""
    fill(tmp_path, 300)
    victim = rows(tmp_path)[121]
    place = victim["physicalOffset"]
    with open(tmp_path / "commitlog" / f"{place - place % SEGMENT:020d}", "r+b") as file:
        file.seek(place % SEGMENT + 90)
        file.write(b"\xff")
    return tmp_path, victim


@pytest.mark.parametrize("view", ["queue", "commitlog"])
@pytest.mark.parametrize("split", ["1k", "1g"])
def test_a_corrupt_record_fails_the_read(damaged: tuple[Path, Any], view: str, split: str) -> None:
    path, victim = damaged
    with pytest.raises(CorruptRecord, match="badRecords=skip") as caught:
        rows(path, view=view, splitBytes=split)
    assert caught.value.offset == victim["physicalOffset"] % SEGMENT
    assert Path(caught.value.file or "").parent == path / "commitlog"


@pytest.mark.parametrize("split", ["1k", "1g"])
def test_skip_leaves_it_out_and_says_so(
    damaged: tuple[Path, Any], split: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, victim = damaged
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        found = rows(path, badRecords="skip", splitBytes=split)
    places = [row["physicalOffset"] for row in rows(path, verifyCrc="false")]
    places.remove(victim["physicalOffset"])
    assert [row["physicalOffset"] for row in found] == places
    assert len(found) == 299
    assert "skipped" in caplog.text and str(victim["physicalOffset"] % SEGMENT) in caplog.text


@pytest.mark.parametrize("split", ["1k", "1g"])
def test_quarantine_gives_its_bytes_as_a_row(damaged: tuple[Path, Any], split: str) -> None:
    path, victim = damaged
    found = rows(path, badRecords="quarantine", splitBytes=split)
    bad = [row for row in found if row["badRecord"] is not None]
    assert len(found) == 300 and len(bad) == 1
    place, size = victim["physicalOffset"], victim["size"]
    raw = (path / "commitlog" / f"{place - place % SEGMENT:020d}").read_bytes()[place % SEGMENT :][:size]
    assert {name: value for name, value in bad[0].items() if value is not None} == {
        "physicalOffset": place,
        "size": size,
        "body": raw,
        "badRecord": bad[0]["badRecord"],
    }
    assert "CRC" in bad[0]["badRecord"]


def test_quarantine_without_the_column_still_has_the_row(damaged: tuple[Path, Any]) -> None:
    path, victim = damaged
    found = rows(path, ["physicalOffset", "topic"], badRecords="quarantine")
    assert len(found) == 300
    assert {"physicalOffset": victim["physicalOffset"], "topic": None} in found


def test_bodies_are_not_checked_when_that_is_not_wanted(damaged: tuple[Path, Any]) -> None:
    path, victim = damaged
    found = rows(path, verifyCrc="false")
    assert len(found) == 300
    assert found[121]["body"] != victim["body"]


def test_units_that_point_to_a_corrupt_record_meet_the_same_policies(
    damaged: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, victim = damaged
    monkeypatch.setattr("penstock.spark.planning.SEEK_COST", -(1 << 20))
    with pytest.raises(CorruptRecord) as caught:
        rows(path)
    assert caught.value.offset == victim["physicalOffset"] % SEGMENT
    assert len(rows(path, badRecords="skip")) == 299
    bad = [row for row in rows(path, badRecords="quarantine") if row["badRecord"]]
    assert [(row["physicalOffset"], row["size"]) for row in bad] == [
        (victim["physicalOffset"], victim["size"])
    ]


def test_damage_over_many_records_is_one_part(tmp_path: Path) -> None:
    fill(tmp_path, 300)
    every = rows(tmp_path)
    begin, end = every[50]["physicalOffset"] + 30, every[60]["physicalOffset"] + 30
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(begin)
        file.write(bytes(end - begin))
    for split in ("500", "3k", "1g"):
        found = rows(tmp_path, badRecords="quarantine", splitBytes=split)
        bad = [row for row in found if row["badRecord"]]
        assert len(found) - len(bad) == 289, split
        assert sum(row["size"] for row in bad) == every[61]["physicalOffset"] - every[50]["physicalOffset"]


def test_a_segment_cut_short_is_no_silent_end(tmp_path: Path) -> None:
    fill(tmp_path, 600)
    every = rows(tmp_path)
    file = tmp_path / "commitlog" / f"{SEGMENT:020d}"
    cut = 30_000
    with open(file, "r+b") as opened:
        opened.truncate(cut)
    whole = [r for r in every if not SEGMENT + cut - r["size"] < r["physicalOffset"] < 2 * SEGMENT]
    for split in ("5k", "1g"):
        with pytest.raises(StoreError, match=r"00065536"):
            rows(tmp_path, splitBytes=split)
        found = rows(tmp_path, splitBytes=split, badRecords="skip", failOnDataLoss="false")
        assert [r["physicalOffset"] for r in found] == [r["physicalOffset"] for r in whole]


def test_a_removed_head_is_lost_data_with_its_ranges(tmp_path: Path) -> None:
    path = fill(tmp_path / "store", 600)
    every = rows(path)

    options, splits = planned(path, splitBytes="20k")
    (path / "commitlog" / f"{0:020d}").unlink()
    left = [row["physicalOffset"] for row in every if row["physicalOffset"] >= SEGMENT]
    with pytest.raises(DataLost) as caught:
        for split in splits:
            list(record_batches(split, NAMES, options))
    firsts = {
        (r["topic"], r["queueId"]): r["queueOffset"]
        for r in reversed(every)
        if r["physicalOffset"] >= SEGMENT
    }
    assert caught.value.ranges == tuple((*key, 0, first) for key, first in sorted(firsts.items()))
    lenient, splits = planned(path, splitBytes="20k", failOnDataLoss="false")
    found = [
        row
        for split in splits
        for batch in record_batches(split, NAMES, lenient)
        for row in batch.to_pylist()
    ]
    assert [row["physicalOffset"] for row in found] == left


def test_a_file_that_vanishes_under_the_read_is_lost_data(tmp_path: Path) -> None:
    path = fill(tmp_path / "store", 900)
    for lenient in ("true", "false"):
        copy = tmp_path / f"copy-{lenient}"
        shutil.copytree(path, copy)
        options, splits = planned(copy, failOnDataLoss=lenient, maxBatchRows=50)
        assert len(splits) > 2
        (copy / "commitlog" / f"{SEGMENT:020d}").unlink()
        stream = (batch for split in splits for batch in record_batches(split, NAMES, options))
        if lenient == "true":
            with pytest.raises(DataLost, match="no bytes from 65536 to"):
                list(stream)
        else:
            places = [place for batch in stream for place in batch.column("physicalOffset").to_pylist()]
            assert places and not any(SEGMENT <= place < 2 * SEGMENT for place in places)


COMPRESSED = {0: 0x1, 1: 0x101, 2: 0x201, 3: 0x301}


def pressed(body: bytes, codec: int) -> bytes:
    if codec in (0, 3):
        return zlib.compress(body)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, {1: "lz4", 2: "zstd"}[codec]) as stream:
        stream.write(body)
    return sink.getvalue().to_pybytes()


def test_bodies_are_decompressed_unless_told_otherwise(tmp_path: Path) -> None:
    plain = [b"%d " % number * 1000 for number in range(40)]
    with open_store(tmp_path, flush="async") as store:
        for number, body in enumerate(plain):
            codec = number % 5
            stored = pressed(body, codec) if codec < 4 else body
            store.put(Message("t", stored, sys_flag=COMPRESSED.get(codec, 0)))
        store.flush()
    assert [row["body"] for row in rows(tmp_path)] == plain
    assert [row["body"] for row in rows(tmp_path, maxBatchBytes="5k")] == plain
    stored = [row["body"] for row in rows(tmp_path, decompress="false")]
    assert stored[0] == zlib.compress(plain[0]) and stored[4] == plain[4]
    assert rows(tmp_path, ["size"]) == rows(tmp_path, ["size"], decompress="false")


def test_a_body_that_cannot_be_decompressed_is_told(tmp_path: Path) -> None:
    with open_store(tmp_path, flush="async") as store:
        store.put(Message("t", b"not compressed", sys_flag=1))
        store.put(Message("t", zlib.compress(b"x" * 100)[:-5], sys_flag=1))
        store.flush()
    with pytest.raises(StoreError, match=r"cannot be decompressed.*'queueOffset': 0"):
        rows(tmp_path)
    assert rows(tmp_path, badRecords="skip")[0]["body"] == b"not compressed"


def test_units_of_a_removed_head_are_lost_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fill(tmp_path / "store", 900)
    monkeypatch.setattr("penstock.spark.planning.SEEK_COST", -(1 << 20))
    strict, splits = planned(path, subscribe="orders")
    assert all(split.ranges for split in splits)
    lenient, _ = planned(path, subscribe="orders", failOnDataLoss="false")
    (path / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(DataLost) as caught:
        for split in splits:
            list(record_batches(split, NAMES, strict))
    assert [(topic, queue, start) for topic, queue, start, _ in caught.value.ranges] == [
        ("orders", 0, 0),
        ("orders", 1, 0),
    ]
    made = [batch for split in splits for batch in record_batches(split, ["physicalOffset"], lenient)]
    places = sorted(place for batch in made for place in batch.column(0).to_pylist())
    assert places == sorted(row["physicalOffset"] for row in rows(path, subscribe="orders"))
