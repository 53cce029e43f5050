"""However a log is cut, its rows are the same: each once, none made of what a body holds."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock import Message, open_store
from penstock.config import StoreConfig
from penstock.format.record import encode_record
from penstock.spark.batches import log_runs
from penstock.spark.places import open_places
from penstock.spark.planning import log_end, log_splits
from spark.read.rows import batches, dumped, planned, rows
from spark.read.stores import fill

SEGMENT = 1 << 20


def fake(physical: int, size: int = 0) -> bytes:
    """A whole record that claims to lie at a place in the log."""
    return encode_record(
        "fakes", b"f" * size, b"", queue_offset=1, physical_offset=physical, store_timestamp=1_700_000_000_000
    )


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bodies full of records, some of which say truly where they lie; hosts of both kinds; long topics."""
    path = tmp_path_factory.mktemp("hostile") / "store"
    random.seed(5)
    config = StoreConfig().replace(mapped_file_size_commit_log=SEGMENT)
    with open_store(path, flush="async", config=config) as store:
        at = 0
        for number in range(900):
            if number % 3 == 0:
                # The body begins 88 bytes behind the record in a record with IPv4 hosts.
                body, place = b"", at + 88
                while len(body) < 3000:
                    body += fake(place + len(body), random.randrange(200))
                body += fake(7) + body
            else:
                body = random.randbytes(random.randrange(5000))
            store.put(
                Message(
                    "%RETRY%" + "g" * 150 if number % 7 == 0 else "t",
                    body,
                    born_host="[::1]:1" if number % 5 == 1 else None,
                    keys=f"k{number}",
                )
            )
            at = store.max_physical_offset
        store.flush()
    return path


SPLITS = ["700", "5k", "100k", "1m", "1g"]


@pytest.mark.parametrize("view", ["queue", "commitlog"])
def test_splits_of_any_size_give_the_same_rows(hostile: Path, view: str) -> None:
    expected = dumped(hostile)
    assert len(expected) == 900
    for split in SPLITS[1:]:
        assert rows(hostile, view=view, splitBytes=split) == expected, split


def test_segments_without_queues_are_split_as_well(hostile: Path) -> None:
    expected = dumped(hostile)
    for split in ("20k", "1m", "1g"):
        assert rows(hostile / "commitlog", splitBytes=split) == expected, split


def test_bodies_do_hold_records_that_say_truly_where_they_lie(hostile: Path) -> None:
    """Otherwise the tests above would prove less than they say."""
    from penstock._native.units import find_record

    row = next(row for row in dumped(hostile) if b"fakes" in row["body"])
    data = (hostile / "commitlog" / f"{0:020d}").read_bytes()
    found, _ = find_record(data[: row["physicalOffset"] + row["size"]], row["physicalOffset"] + 1, 0, 0)
    assert row["physicalOffset"] < found < row["physicalOffset"] + row["size"]


def test_a_torn_tail_is_in_no_split(tmp_path: Path) -> None:
    fill(tmp_path, 200)
    (tmp_path / "abort").touch()
    last = rows(tmp_path, view="commitlog")[-1]
    end = last["physicalOffset"] + last["size"]
    name = end - end % (1 << 16)
    with open(tmp_path / "commitlog" / f"{name:020d}", "r+b") as file:
        file.seek(end - name)
        file.write(fake(end, 300)[:200])
    for split in ("1k", "1g"):
        assert len(rows(tmp_path, view="commitlog", splitBytes=split)) == 200
    assert log_end(open_places(str(tmp_path))[0]) == end


def test_pieces_of_a_log_have_every_byte_once(hostile: Path) -> None:
    place = open_places(str(hostile))[0]
    end = log_end(place)
    for size in (1000, 50_000, 1 << 30):
        pieces = log_splits(place, split_bytes=size)
        assert pieces[0].begin == 0 and pieces[-1].end == end
        assert all(a.end == b.begin for a, b in pairwise(pieces))
        assert all(piece.begin // SEGMENT == (piece.end - 1) // SEGMENT for piece in pieces)
    part = log_splits(place, split_bytes=10_000, begin=123_456, end=654_321)
    assert (part[0].begin, part[-1].end) == (123_456, 654_321)


def test_runs_hold_the_records_of_the_log(hostile: Path) -> None:
    place = open_places(str(hostile))[0]
    expected = b"".join(
        bytes(run.view[: run.end])
        for piece in log_splits(place, split_bytes=1 << 30)
        for run in log_runs(piece)
    )
    found = b"".join(
        bytes(run.view[: run.end])
        for piece in log_splits(place, split_bytes=30_000)
        for run in log_runs(piece)
    )
    assert found == expected
    assert len(found) == sum(row["size"] for row in dumped(hostile))


def test_min_partitions_are_at_least_that_many(hostile: Path) -> None:
    assert len(planned(hostile)[1]) < 30
    assert len(planned(hostile, minPartitions=30)[1]) >= 30


@pytest.mark.parametrize(("most_rows", "most_bytes"), [(7, "4m"), (16384, "20k"), (1, "1")])
def test_batches_are_bounded(hostile: Path, most_rows: int, most_bytes: str) -> None:
    options: dict[str, Any] = {"maxBatchRows": most_rows, "maxBatchBytes": most_bytes}
    made = list(batches(hostile, **options))
    limit = 20 << 10 if most_bytes == "20k" else 4 << 20
    assert sum(batch.num_rows for batch in made) == 900
    assert all(0 < batch.num_rows <= most_rows for batch in made)
    assert all(batch.num_rows == 1 or batch.nbytes < 2 * limit for batch in made)


def test_a_projection_has_these_columns_only(hostile: Path) -> None:
    names = ["size", "topic", "properties"]
    expected = [{name: row[name] for name in names} for row in dumped(hostile)]
    assert rows(hostile, names) == expected


def test_a_store_in_use_is_read_up_to_its_last_queued_message(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    with open_store(tmp_path, flush="async") as store:
        before = rows(tmp_path)
        for number in range(50):
            store.put(Message("orders", b"new %d" % number))
        store.flush()
        assert store.wait_visible()
        assert len(before) == 100
        assert len(rows(tmp_path)) == len(rows(tmp_path, view="commitlog")) == 150


def test_a_split_far_from_the_start_of_its_file_finds_its_first_record(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.logreader.LOOK_BACK", 30_000)
    expected = dumped(hostile)
    for split in ("3k", "50k"):
        assert rows(hostile, splitBytes=split) == expected, split
        assert rows(hostile / "commitlog", splitBytes=split) == expected, split


def test_a_record_longer_than_the_look_back_is_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.logreader.LOOK_BACK", 2_000)
    config = StoreConfig().replace(mapped_file_size_commit_log=SEGMENT)
    with open_store(tmp_path, flush="async", config=config) as store:
        for number in range(30):
            store.put(Message("t", bytes([number]) * (50_000 if number % 3 else 10)))
        store.flush()
    expected = dumped(tmp_path)
    for split in ("1k", "10k", "1g"):
        assert rows(tmp_path, splitBytes=split) == expected, split


def test_the_end_of_a_log_is_found_without_walking_all_of_it(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.planning._PROBE", 4096)
    monkeypatch.setattr("penstock.spark.planning._TAIL", 30_000)
    last = dumped(hostile)[-1]
    place = open_places(str(hostile / "commitlog"))[0]
    assert log_end(place) == last["physicalOffset"] + last["size"]
    starts: list[int] = []
    monkeypatch.setattr("penstock.spark.planning.LogScanner", _spy(starts))
    log_end(place)
    assert len(starts) == 1 and starts[0] > place.log_files[-1].begin


def _spy(starts: list[int]) -> Any:
    from penstock.store.scan import LogScanner

    class Spy(LogScanner):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            starts.append(options["begin"])
            super().__init__(*arguments, **options)

    return Spy
