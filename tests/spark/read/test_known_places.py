"""What the consume queues know is used: splits begin at records, and a task opens only what it reads."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock import Message, open_store
from penstock.config import StoreConfig
from penstock.files.disk import DiskStorage
from penstock.spark.batches import record_batches
from penstock.spark.logreader import LogReader
from penstock.spark.places import open_places
from penstock.spark.planning import Split, log_splits
from spark.read.rows import dumped, planned, rows

CONFIG = StoreConfig().replace(
    mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20 * 5000, message_index_enable=False
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments; one queue has most of the messages, forty have few."""
    path = tmp_path_factory.mktemp("known") / "store"
    with open_store(path, flush="async", config=CONFIG) as opened:
        for number in range(4000):
            queue = number // 100 if number % 100 == 0 else 0
            topic = "few" if number % 100 == 0 else "many"
            opened.put(Message(topic, b"." * (200 + number % 700), queue_id=queue))
    return path


def inner(splits: list[Split]) -> list[Split]:
    """Those that do not begin where a file does."""
    return [split for split in splits if split.log is not None and split.log.begin % (1 << 20)]


@pytest.mark.parametrize("view", ["queue", "commitlog"])
@pytest.mark.parametrize("size", ["64k", "300k"])
def test_splits_of_a_store_begin_where_a_queue_says_that_a_record_does(
    store: Path, view: str, size: str
) -> None:
    starts = {row["physicalOffset"] for row in dumped(store)}
    _, splits = planned(store, view=view, splitBytes=size)
    assert len(inner(splits)) >= 5
    for split in inner(splits):
        assert split.log is not None and split.log.aligned and split.log.begin in starts
    assert rows(store, view=view, splitBytes=size) == dumped(store)


def test_an_aligned_split_reads_nothing_before_its_begin(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, splits = planned(store, splitBytes="64k")
    read: list[int] = []
    real = DiskStorage.pread

    def pread(self: Any, path: Any, position: int, count: int) -> bytes:
        read.append(int(Path(path).name) + position)
        return real(self, path, position, count)

    monkeypatch.setattr(DiskStorage, "pread", pread)
    split = inner(splits)[2].log
    assert split is not None
    assert next(LogReader(split).runs()).base == split.begin
    assert all(at >= split.begin for at in read)


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("size", [1, 3, 1000, 300_001, 1 << 30])
def test_pieces_that_are_cut_elsewhere_still_have_every_byte_once(store: Path, side: int, size: int) -> None:
    [place] = open_places(str(store))
    end = place.log_files[0].size + 10
    pieces = log_splits(
        place,
        split_bytes=size,
        begin=end - 60,
        end=end,
        limit=end,
        align=lambda cut, distance: cut + side * distance,
    )
    assert pieces[0].begin == end - 60 and pieces[-1].end == end
    assert all(one.end == other.begin and one.size > 0 for one, other in pairwise(pieces))


def test_archived_segments_are_resynchronised(store: Path) -> None:
    _, splits = planned(store / "commitlog", splitBytes="64k")
    assert inner(splits) and not any(split.log.aligned for split in splits if split.log is not None)
    assert rows(store / "commitlog", splitBytes="64k") == dumped(store)


def test_units_that_point_beside_records_mislead_nobody(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(store, path)
    for file in (path / "consumequeue" / "many" / "0").iterdir():
        data = bytearray(file.read_bytes())
        for at in range(20, len(data) - 20, 20):
            data[at : at + 8] = (int.from_bytes(data[at : at + 8], "big") + 24).to_bytes(8, "big")
        file.write_bytes(data)
    assert rows(path, view="commitlog", splitBytes="64k") == dumped(store)


def test_a_task_opens_the_queues_it_reads_and_no_other(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, splits = planned(store, assign='{"few": [7, 30]}')
    assert splits and not any(split.log for split in splits)
    touched: set[str] = set()
    for name in ("listdir", "open_sparse", "pread", "open_mapping"):
        real = getattr(DiskStorage, name)

        def noted(self: Any, path: Any, *more: Any, _real: Any = real, **named: Any) -> Any:
            touched.add(str(path))
            return _real(self, path, *more, **named)

        monkeypatch.setattr(DiskStorage, name, noted)
    found = [
        row for split in splits for b in record_batches(split, ["queueId"], options) for row in b.to_pylist()
    ]
    assert found == [{"queueId": 7}, {"queueId": 30}]
    queues = {path for path in touched if "consumequeue" in path}
    assert queues and all(path.split("/few/")[1].split("/")[0] in ("7", "30") for path in queues)
