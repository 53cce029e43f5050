"""A publication is in the log as a whole or not at all, wherever the process that makes it is killed."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from penstock import Message, open_store
from penstock.errors import CorruptFile, StoreLocked
from penstock.spark.publishing import STEPS, Publication, publish, read_journal, settle, withdraw
from penstock.spark.staging import BlockMemory, StagingArea
from spark.write.publishing import make_store, numbers_in, publish_killed, stage

ALL = Counter(range(800))
NONE: Counter[int] = Counter()
BEFORE_DONE = STEPS[: STEPS.index("done")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def left_behind(path: Path) -> list[str]:
    return sorted(str(p.relative_to(path)) for p in (path / "penstock.spark").rglob("*") if p.is_file())


def test_published_rows_are_there_once_and_nothing_is_left(path: Path) -> None:
    runs = stage(path, "w")
    assert numbers_in(path) == NONE
    assert publish(path, Publication("w", runs))
    assert numbers_in(path) == ALL
    assert not (path / "penstock.spark").exists()
    with open_store(path) as store:
        assert str(store.report).startswith("last exit clean")  # type: ignore[union-attr]


def test_order_within_a_queue_is_that_of_the_rows(path: Path) -> None:
    publish(path, Publication("w", stage(path, "w")))
    with open_store(path, read_only=True) as store:
        for topic, queue_id in store.queues():
            found = [bytes(m.body)[:6] for m in store.get(topic, queue_id, 0, 1000)]
            assert found == sorted(found)


def test_new_store_is_made_by_the_first_publication(tmp_path: Path) -> None:
    runs = stage(tmp_path / "new", "w", runs=1, count=50)
    withdraw(tmp_path / "new", "w")
    assert runs and list((tmp_path / "new").iterdir()) == []


def test_a_journal_of_a_finished_publication_that_comes_back_changes_nothing(path: Path) -> None:
    area, kept = StagingArea(path), b""

    def keep(step: str) -> None:
        nonlocal kept
        kept = area.journal.read_bytes() if step == "closed" else kept

    publish(path, Publication("w", stage(path, "w")), step=keep)
    area.folder.mkdir()
    area.journal.write_bytes(kept)  # its removal was not on disk yet when the power failed
    assert settle(path) == "published"
    assert numbers_in(path) == ALL
    assert left_behind(path) == []


def test_a_block_longer_than_its_file_is_refused_before_memory_is_taken(path: Path) -> None:
    (run,) = stage(path, "w", runs=1)
    area = StagingArea(path)
    data = bytearray((area.staging / run.file).read_bytes())
    data[12:16] = (0xFFFFFFF0).to_bytes(4, "little")
    (area.staging / run.file).write_bytes(data)

    class NoMemory(BlockMemory):
        def take(self, size: int) -> memoryview:
            raise AssertionError(f"{size} bytes were asked for")

    with pytest.raises(CorruptFile, match="a block of 4294967280 bytes"):
        list(area.blocks(run, NoMemory(1)))


@pytest.mark.parametrize("step", STEPS)
def test_interrupted_publication_is_taken_back_or_whole(path: Path, step: str) -> None:
    publish_killed(path, Publication("w", stage(path, "w")), step)
    settle(path)
    with open_store(path) as store:  # queues are made by whoever opens it
        assert store.max_offset("old", 0) == 3
    assert numbers_in(path) == (NONE if step in BEFORE_DONE else ALL)
    assert read_journal(StagingArea(path)) is None


@pytest.mark.parametrize("step", ["journalled", "begun", "appended", "synced"])
def test_publication_that_others_have_seen_is_finished(path: Path, step: str) -> None:
    publish_killed(path, Publication("w", stage(path, "w")), step, times=1)
    with open_store(path) as store:
        assert store.put(Message("old", b"meanwhile")).ok  # type: ignore[union-attr]
    assert settle(path) == "finished"
    assert numbers_in(path) == ALL
    assert left_behind(path) == []


@pytest.mark.parametrize("step", STEPS)
def test_repeated_publication_with_a_key_is_made_once(path: Path, step: str) -> None:
    first = Publication("q/7", stage(path, "q/7"), key="q", number=7)
    publish_killed(path, first, step)
    again = Publication("q/7", stage(path, "q/7"), key="q", number=7)
    decided = STEPS.index(step) >= STEPS.index("marked")
    assert publish(path, again) is not decided
    assert numbers_in(path) == ALL
    assert publish(path, Publication("q/7", stage(path, "q/7"), key="q", number=7)) is False
    assert numbers_in(path) == ALL
    assert left_behind(path) == ["penstock.spark/markers/q.json"]


@pytest.mark.parametrize("step", ["journalled", "begun", "synced", "done"])
def test_failed_commit_that_is_given_up_leaves_nothing(path: Path, step: str) -> None:
    publish_killed(path, Publication("w", stage(path, "w")), step)
    withdraw(path, "w")
    with open_store(path) as store:
        assert store.topics() == ["old"]
    assert numbers_in(path) == NONE
    assert left_behind(path) == []


def test_interrupted_settling_is_settled_later(path: Path) -> None:
    publish_killed(path, Publication("w", stage(path, "w")), "appended")
    with open_store(path):
        pass
    shutil.copytree(path, path.with_name("copy"))
    publish_killed(path, Publication("w2", stage(path, "w2", runs=0)), "opened")
    assert numbers_in(path) == ALL and numbers_in(path.with_name("copy")) == ALL
    assert settle(path.with_name("copy")) == "finished"
    assert numbers_in(path.with_name("copy")) == ALL


def test_store_that_is_open_elsewhere_is_not_written_to(path: Path) -> None:
    runs = stage(path, "w")
    with open_store(path), pytest.raises(StoreLocked, match=r"only one process.*stop the broker"):
        publish(path, Publication("w", runs))
    assert publish(path, Publication("w", runs))
    assert numbers_in(path) == ALL


def test_damaged_staged_file_is_told_and_nothing_is_published(path: Path) -> None:
    runs = stage(path, "w")
    file = StagingArea(path).staging / runs[1].file
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptFile, match="must run again"):
        publish(path, Publication("w", runs))
    withdraw(path, "w")
    with open_store(path):
        pass
    assert numbers_in(path) == NONE


def test_interrupted_publication_whose_file_was_damaged_says_how_to_go_on(path: Path) -> None:
    runs = stage(path, "w")
    publish_killed(path, Publication("w", runs), "begun")
    with open_store(path):
        pass  # so that it cannot be taken back
    file = StagingArea(path).staging / runs[1].file
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptFile, match=r"begins at offset \d+ of the log.*remove .*journal.json"):
        settle(path)
    StagingArea(path).journal.unlink()
    assert publish(path, Publication("w2", stage(path, "w2", runs=1)))


def test_orphans_are_swept_by_age(path: Path) -> None:
    runs = stage(path, "dead/1")
    area = StagingArea(path)
    assert area.sweep(3600) == []
    assert area.sweep(-1) == sorted(run.file for run in runs)
    assert left_behind(path) == []
