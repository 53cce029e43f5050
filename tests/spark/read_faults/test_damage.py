"""Damaged logs: by the policy of ``badRecords``, and never silently dropped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.errors import CorruptRecord, StoreError
from spark.read_faults.reading import SEGMENT, Row, file_of, read, read_all, segments, size_at, stored
from verify.damage import flip, overwrite

VIEWS = ["queue", "commitlog"]
SPLITS = ["16k", "1g"]
every_way = pytest.mark.parametrize(("view", "split"), [(view, split) for view in VIEWS for split in SPLITS])


def victim(path: Path, number: int = 1_000) -> Row:
    """A record in the middle of the log, at the ``number``-th place."""
    return sorted(stored(path), key=lambda row: row.place)[number]


def without(rows: list[Row], *gone: Row) -> list[Row]:
    return [row for row in rows if row not in gone]


@every_way
def test_whole_store_is_read_the_same_by_every_way(whole: Path, view: str, split: str) -> None:
    assert read(whole, view=view, splitBytes=split) == stored(whole)
    rows, bad = read_all(whole, view=view, splitBytes=split, badRecords="quarantine")
    assert (rows, bad) == (stored(whole), [])


@every_way
def test_flipped_bit_of_a_body_fails_with_file_and_offset(store: Path, view: str, split: str) -> None:
    lost = victim(store)
    file, position = file_of(store, lost.place)
    flip(file, position + 100)
    with pytest.raises(StoreError) as caught:
        read(store, view=view, splitBytes=split)
    assert str(file) in str(caught.value)
    assert str(lost.place) in str(caught.value) or str(position) in str(caught.value)
    assert "badRecords" in str(caught.value)


@every_way
def test_flipped_bit_of_a_body_costs_that_record_only_when_skipped(
    store: Path, view: str, split: str
) -> None:
    expected, lost = stored(store), victim(store)
    file, position = file_of(store, lost.place)
    flip(file, position + 100)
    assert read(store, view=view, splitBytes=split, badRecords="skip") == without(expected, lost)


@every_way
def test_flipped_bit_of_a_body_is_a_row_of_its_own_in_quarantine(store: Path, view: str, split: str) -> None:
    expected, lost = stored(store), victim(store)
    size = size_at(store, lost.place)
    file, position = file_of(store, lost.place)
    flip(file, position + 100)
    rows, bad = read_all(store, view=view, splitBytes=split, badRecords="quarantine")
    assert rows == without(expected, lost)
    [found] = bad
    assert found.place == lost.place
    assert found.body == file.read_bytes()[position : position + size]
    assert "CRC" in found.reason


@pytest.mark.parametrize("policy", ["skip", "fail"])
def test_skipped_records_are_told_of(store: Path, policy: str, caplog: pytest.LogCaptureFixture) -> None:
    lost = victim(store)
    file, position = file_of(store, lost.place)
    flip(file, position + 100)
    if policy == "skip":
        read(store, badRecords=policy)
        told = caplog.text
    else:
        with pytest.raises(StoreError) as caught:
            read(store, badRecords=policy)
        told = str(caught.value)
    assert file.name in told


def test_unchecked_crc_gives_the_record_as_it_lies_there(store: Path) -> None:
    expected, lost = stored(store), victim(store)
    file, position = file_of(store, lost.place)
    flip(file, position + 100)
    rows = read(store, view="commitlog", verifyCrc="false")
    [changed] = [row for row in rows if row.place == lost.place]
    assert without(rows, changed) == without(expected, lost)
    assert changed.body != lost.body and len(changed.body) == len(lost.body)


@every_way
@pytest.mark.parametrize("field", [0, 4, 84], ids=["length", "magic", "body length"])
def test_damaged_header_costs_that_record_only(store: Path, view: str, split: str, field: int) -> None:
    expected, lost = stored(store), victim(store)
    size = size_at(store, lost.place)
    file, position = file_of(store, lost.place)
    flip(file, position + field, 0x40)
    with pytest.raises(StoreError):
        read(store, view=view, splitBytes=split)
    assert read(store, view=view, splitBytes=split, badRecords="skip") == without(expected, lost)
    rows, bad = read_all(store, view=view, splitBytes=split, badRecords="quarantine")
    assert rows == without(expected, lost)
    assert b"".join(part.body for part in bad) == file.read_bytes()[position : position + size]
    assert bad[0].place == lost.place


@every_way
def test_overwritten_stretch_costs_what_it_hit(store: Path, view: str, split: str) -> None:
    expected, first = stored(store), victim(store)
    file, position = file_of(store, first.place)
    overwrite(file, position + 10, b"\xff" * 5_000)
    hit = [row for row in expected if first.place <= row.place < first.place + 5_010]
    assert len(hit) > 5
    assert read(store, view=view, splitBytes=split, badRecords="skip") == without(expected, *hit)
    rows, bad = read_all(store, view=view, splitBytes=split, badRecords="quarantine")
    assert rows == without(expected, *hit)
    covered = {place for part in bad for place in range(part.place, part.place + len(part.body))}
    assert {row.place for row in hit} <= covered
    assert all(row.place not in covered for row in rows)


@every_way
def test_segment_cut_short_in_the_middle_of_the_log(store: Path, view: str, split: str) -> None:
    expected, file = stored(store), segments(store)[1]
    begin, cut = int(file.name), 100_000
    with file.open("r+b") as opened:
        opened.truncate(cut)
    with pytest.raises(StoreError) as caught:
        read(store, view=view, splitBytes=split)
    assert file.name in str(caught.value)
    kept = [row for row in expected if not begin + cut - size_of(row) < row.place < begin + SEGMENT]
    assert read(store, view=view, splitBytes=split, badRecords="skip") == kept
    rows, bad = read_all(store, view=view, splitBytes=split, badRecords="quarantine")
    assert rows == kept
    assert bad and all(begin <= part.place < begin + SEGMENT for part in bad)


def size_of(row: Row) -> int:
    """Length of the record of a row that ``reading.message`` made."""
    return 88 + len(row.body) + 1 + len(row.topic) + 2 + property_bytes(row)


def property_bytes(row: Row) -> int:
    number = int(row.body[:6])
    return len(f"KEYS\x01k{number}\x02UNIQ_KEY\x01\x02") + 32


@pytest.mark.parametrize("view", VIEWS)
def test_last_segment_cut_short_is_not_taken_for_the_end(store: Path, view: str) -> None:
    """The store was closed: everything the queues point to was there once."""
    file = segments(store)[-1]
    end = max(row.place + size_of(row) for row in stored(store)) - int(file.name)
    with file.open("r+b") as opened:
        opened.truncate(end - 1_000)
    with pytest.raises(StoreError):
        read(store, view=view)
    expected = stored(store)
    assert read(store, view=view, badRecords="skip") == expected
    assert len(expected) < 2_000


def test_segment_alone_and_cut_short_gives_its_whole_records(store: Path, tmp_path: Path) -> None:
    """Nothing says that there was more: an archive's last piece may end anywhere."""
    file = segments(store)[1]
    alone = tmp_path / file.name
    alone.write_bytes(file.read_bytes()[:100_000])
    rows = read(alone, badRecords="skip")
    end = int(file.name) + 100_000
    expected = [
        row for row in stored(store) if int(file.name) <= row.place and row.place + size_of(row) <= end
    ]
    assert rows == expected and len(rows) > 100


@every_way
def test_missing_segment_in_the_middle_is_no_end_of_the_log(store: Path, view: str, split: str) -> None:
    expected, file = stored(store), segments(store)[1]
    file.unlink()
    with pytest.raises(StoreError) as caught:
        read(store, view=view, splitBytes=split)
    assert file.name in str(caught.value) or str(int(file.name)) in str(caught.value)
    begin = int(file.name)
    kept = [row for row in expected if not begin <= row.place < begin + SEGMENT]
    options = {"badRecords": "skip", "failOnDataLoss": "false"}
    assert read(store, view=view, splitBytes=split, **options) == kept


def test_torn_tail_of_a_killed_store_ends_the_log(store: Path) -> None:
    """What a kill left half written was never acknowledged as stored: it is no loss."""
    (store / "abort").write_bytes(b"")
    shutil.rmtree(store / "consumequeue")
    rows = sorted(stored(store), key=lambda row: row.place)
    last = rows[-1]
    file, position = file_of(store, last.place)
    overwrite(file, position + 50, bytes(size_at(store, last.place) - 50))
    assert read(store, view="commitlog", badRecords="skip") == without(sorted(rows), last)


def test_error_of_a_bad_record_pickles_with_its_place(store: Path) -> None:
    import pickle

    file, position = file_of(store, victim(store).place)
    flip(file, position + 100)
    with pytest.raises(CorruptRecord) as caught:
        read(store)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.file, again.offset) == (str(caught.value), str(file), caught.value.offset)
