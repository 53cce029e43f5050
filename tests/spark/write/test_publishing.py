"""A publication is in the log as a whole or not at all, wherever the process that makes it is killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from penstock import Message, open_store
from penstock.errors import CorruptFile, StoreError, StoreLocked
from penstock.spark.publishing import STEPS, Publication, publish, read_journal, settle, withdraw
from penstock.spark.rollback import is_shown
from penstock.spark.staging import BlockMemory, StagingArea
from penstock.store.messagestore import MessageStore
from penstock.store.verify import verify_store
from spark.write.publishing import CONFIG, everything, make_store, numbers_in, publish_killed, stage

ALL = Counter(range(800))
NONE: Counter[int] = Counter()
BEFORE_SHOWN = STEPS[: STEPS.index("shown")]


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
    data[16:20] = (0xFFFFFFF0).to_bytes(4, "little")
    (area.staging / run.file).write_bytes(data)

    class NoMemory(BlockMemory):
        def take(self, size: int) -> memoryview:
            raise AssertionError(f"{size} bytes were asked for")

    with pytest.raises(CorruptFile, match="a block of 4294967280 bytes"):
        list(area.blocks(run, NoMemory(1)))


def test_more_notes_than_the_file_has_room_for_are_refused_before_memory_is_taken(path: Path) -> None:
    (run,) = stage(path, "w", runs=1)
    area = StagingArea(path)
    data = bytearray((area.staging / run.file).read_bytes())
    data[12:16] = (0xFFFFFFF0).to_bytes(4, "little")
    (area.staging / run.file).write_bytes(data)
    with pytest.raises(CorruptFile, match="4294967280 notes"):
        list(area.blocks(run, BlockMemory(1)))


def test_notes_that_were_changed_are_found_before_anything_is_published(path: Path) -> None:
    (run,) = stage(path, "w", runs=1)
    area = StagingArea(path)
    data = bytearray((area.staging / run.file).read_bytes())
    count = int.from_bytes(data[8:12], "little")
    data[24 + 4 * count + 1] ^= 1
    (area.staging / run.file).write_bytes(data)
    with pytest.raises(CorruptFile, match="was changed"):
        list(area.blocks(run, BlockMemory(1)))


@pytest.mark.parametrize("step", STEPS)
def test_interrupted_publication_is_taken_back_or_whole(path: Path, step: str) -> None:
    publish_killed(path, Publication("w", stage(path, "w")), step)
    settle(path)
    with open_store(path) as store:  # queues are made by whoever opens it
        assert store.max_offset("old", 0) == 3
    assert numbers_in(path) == (NONE if step in BEFORE_SHOWN else ALL)
    assert read_journal(StagingArea(path)) is None


@pytest.mark.parametrize("step", ["journalled", "begun", "appended", "synced"])
def test_who_opens_the_store_sees_nothing_of_an_interrupted_publication(path: Path, step: str) -> None:
    publish_killed(path, Publication("w", stage(path, "w")), step)
    assert numbers_in(path) == NONE
    with open_store(path) as store:
        assert store.topics() == ["old"]
        assert store.put(Message("old", b"meanwhile")).ok  # type: ignore[union-attr]
    assert settle(path) == "rolled back"
    assert numbers_in(path) == NONE
    assert left_behind(path) == []
    with open_store(path, read_only=True) as store:
        assert [bytes(m.body) for m in everything(store, "old", 0)][3:] == [b"meanwhile"]
    assert verify_store(str(path)).healthy


@pytest.mark.parametrize("step", ["shown", "marked", "done"])
@pytest.mark.parametrize("key", [None, "q"])
def test_a_publication_that_was_shown_is_whole_to_all_and_remembered(
    path: Path, step: str, key: str | None
) -> None:
    publish_killed(path, Publication("w", stage(path, "w"), key=key, number=1), step)
    with open_store(path):
        assert numbers_in(path) == ALL
    assert settle(path) == "published"
    assert numbers_in(path) == ALL
    assert left_behind(path) == (["penstock.spark/markers/q.json"] if key else [])


def test_a_held_publication_into_a_new_file_of_the_log_is_known_when_it_is_shown(tmp_path: Path) -> None:
    """Its first record has no room in the last file: a blank comes first."""
    path = make_store(tmp_path / "store")
    with open_store(path) as store:
        before = store.max_physical_offset
        store.put(Message("old", b"x"))  # type: ignore[union-attr]
        bare = store.max_physical_offset - before - 1
        rest = CONFIG.mapped_file_size_commit_log - store.max_physical_offset
        store.put(Message("old", b"x" * (rest - bare - 100)))  # type: ignore[union-attr]
        assert store.max_physical_offset == CONFIG.mapped_file_size_commit_log - 100
    for number, step in enumerate(("synced", "shown")):
        publish_killed(path, Publication("w", stage(path, "w")), step)
        assert settle(path) == ("rolled back", "published")[number]
    with open_store(path):
        assert sum(numbers_in(path).values()) == 800


def test_a_place_that_retention_took_is_not_judged(path: Path) -> None:
    publish_killed(path, Publication("w", stage(path, "w")), "shown")
    area = StagingArea(path)
    begin = read_journal(area).begin  # type: ignore[union-attr]
    assert is_shown(area, begin, read_journal(area).first)  # type: ignore[union-attr]
    (path / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(StoreError, match="cannot be seen any more"):
        settle(path)


def test_a_journal_of_another_version_is_not_guessed_at(path: Path) -> None:
    publish_killed(path, Publication("w", stage(path, "w")), "synced")
    journal = StagingArea(path).journal
    journal.write_bytes(journal.read_bytes().replace(b'"version":2', b'"version":1'))
    with pytest.raises(CorruptFile, match="a journal of version 1"):
        settle(path)


@pytest.mark.parametrize("step", STEPS)
def test_repeated_publication_with_a_key_is_made_once(path: Path, step: str) -> None:
    first = Publication("q/7", stage(path, "q/7"), key="q", number=7)
    publish_killed(path, first, step)
    again = Publication("q/7", stage(path, "q/7"), key="q", number=7)
    decided = step not in BEFORE_SHOWN
    assert publish(path, again) is not decided
    assert numbers_in(path) == ALL
    assert publish(path, Publication("q/7", stage(path, "q/7"), key="q", number=7)) is False
    assert numbers_in(path) == ALL
    assert left_behind(path) == ["penstock.spark/markers/q.json"]


@pytest.mark.parametrize("step", ["journalled", "begun", "synced", "shown", "done"])
def test_failed_commit_that_is_given_up_leaves_nothing(path: Path, step: str) -> None:
    publish_killed(path, Publication("w", stage(path, "w")), step)
    withdraw(path, "w")
    with open_store(path) as store:
        assert store.topics() == ["old"]
    assert numbers_in(path) == NONE
    assert left_behind(path) == []


@pytest.mark.parametrize("step", ["shown", "done"])
def test_what_others_have_seen_is_not_taken_back(path: Path, step: str) -> None:
    publish_killed(path, Publication("w", stage(path, "w")), step)
    with open_store(path):
        pass
    withdraw(path, "w")
    assert numbers_in(path) == ALL
    assert left_behind(path) == []


def test_a_write_whose_first_record_the_disk_refuses_is_taken_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(store: MessageStore, physical_offset: int, head: bytes) -> None:
        raise StoreError("the disk refused it")

    with monkeypatch.context() as patch:
        patch.setattr(MessageStore, "show_record", refuse)
        with pytest.raises(StoreError, match="the disk refused it"):
            publish(path, Publication("w", stage(path, "w")))
    assert numbers_in(path) == NONE
    withdraw(path, "w")
    assert left_behind(path) == []
    assert publish(path, Publication("w2", stage(path, "w2")))
    assert numbers_in(path) == ALL


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


def test_interrupted_publication_whose_staged_files_are_gone_is_taken_back(path: Path) -> None:
    """They were never synced: after a power failure they may be anything."""
    runs = stage(path, "w")
    publish_killed(path, Publication("w", runs), "synced")
    staging = StagingArea(path).staging
    (staging / runs[0].file).unlink()
    (staging / runs[1].file).write_bytes(b"")
    assert settle(path) == "rolled back"
    assert publish(path, Publication("w2", stage(path, "w2")))
    assert numbers_in(path) == ALL
    assert verify_store(str(path)).healthy


def test_orphans_are_swept_by_age(path: Path) -> None:
    runs = stage(path, "dead/1")
    area = StagingArea(path)
    assert area.sweep(3600) == []
    assert area.sweep(-1) == sorted(run.file for run in runs)
    assert left_behind(path) == []
