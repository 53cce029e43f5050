"""Messages whose bodies hold records: none of those is ever taken for a message of the store."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock import Message, open_store
from penstock.format.record import encode_record
from spark.read_faults.reading import config, message, read, read_all, segments, stored
from verify.damage import flip

SPLITS = ["1k", "7k", "1m", "1g"]
NESTED = 200


def foreign_records(count: int) -> bytes:
    """Whole records as another log holds them."""
    made, place = b"", 0
    for number in range(count):
        made += encode_record(
            "Fake", b"fake %d" % number, queue_offset=number, physical_offset=place, store_timestamp=1
        )
        place = len(made)
    return made


def cunning_records(count: int, begin: int) -> bytes:
    """Whole records that say of themselves that they lie where they will, in a body that begins there."""
    made = b""
    for number in range(count):
        made += encode_record(
            "Fake",
            b"fake %d" % number,
            queue_offset=number,
            physical_offset=begin + len(made),
            store_timestamp=1,
        )
    return made


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain messages between ones whose bodies are records, some with the right place in them."""
    path = tmp_path_factory.mktemp("nested") / "store"
    store: Any
    with open_store(path, flush="async", config=config()) as store:
        for number in range(300):
            assert store.put(message(number)).ok
            if number % 10 == 3:
                assert store.put(Message("Outer", foreign_records(NESTED), keys=f"outer{number}")).ok
            if number % 10 == 7:
                store.put(Message("Outer", b"ahead"))
                end = store.max_physical_offset
                assert store.put(Message("Outer", cunning_records(20, end + 88))).ok
    return path


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("view", ["queue", "commitlog"])
def test_splits_of_any_size_give_the_same_rows(nested: Path, view: str, split: str) -> None:
    expected = stored(nested)
    assert {row.topic for row in expected} == {"T0", "T1", "T2", "Outer"}
    assert read(nested, view=view, splitBytes=split) == expected


@pytest.mark.parametrize("split", SPLITS)
def test_segments_without_queues_give_the_same_rows(nested: Path, tmp_path: Path, split: str) -> None:
    for file in segments(nested):
        shutil.copy(file, tmp_path / file.name)
    assert read(tmp_path, splitBytes=split) == stored(nested)


def test_fake_places_are_what_they_claim(nested: Path) -> None:
    """The test is worth something: a search from inside such a body does find a record."""
    from penstock._native.units import find_record

    rows = [row for row in stored(nested) if row.topic == "Outer" and b"fake 19" in row.body]
    cunning = [row for row in rows if row.body.startswith(cunning_records(1, row.place + 88))]
    assert len(cunning) > 10
    row = cunning[0]
    found, _ = find_record(row.body, 1, row.place + 88, 0)
    assert 0 < found < len(row.body)


@pytest.mark.parametrize("view", ["queue", "commitlog"])
def test_damage_before_fakes_with_foreign_places_uncovers_none_of_them(
    nested: Path, tmp_path: Path, view: str
) -> None:
    store = shutil.copytree(nested, tmp_path / "store")
    expected = stored(nested)
    outer = next(row for row in expected if row.body.startswith(foreign_records(1)))
    file = store / "commitlog" / f"{0:020d}"
    flip(file, outer.place, 0x40)
    rows, bad = read_all(store, view=view, badRecords="quarantine")
    assert rows == [row for row in expected if row != outer]
    assert bad[0].place == outer.place
    assert sum(len(part.body) for part in bad) > NESTED * 90
