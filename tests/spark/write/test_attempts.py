"""Attempts of one task, abandoned writes and strange names: only what the driver names is published."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import NotAStore, StoreError, UsageError
from penstock.spark.publishing import Publication, is_published, publish, settle
from penstock.spark.sink import RocketMQSink
from penstock.spark.staging import StagingArea
from penstock.spark.writeoptions import WriteOptions
from penstock.spark.writer import RocketMQWriter, Staged, ordered, settle_interrupted
from penstock.store.verify import verify_store
from spark.write.publishing import make_store, numbers_in, publish_killed, stage

BODIES = StructType([StructField("body", StringType())])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def test_of_two_attempts_the_named_one_is_published(path: Path) -> None:
    first, second = stage(path, "w"), stage(path, "w")
    assert publish(path, Publication("w", [first[0], second[1]]))
    assert numbers_in(path) == Counter(range(800))
    assert not (path / "penstock.spark").exists()
    assert verify_store(str(path)).healthy


def test_attempt_that_ends_after_the_commit_is_swept_later(path: Path) -> None:
    publish(path, Publication("q/1", stage(path, "q/1"), key="q", number=1))
    late = stage(path, "q/1", runs=1)
    publish(path, Publication("q/2", stage(path, "q/2"), key="q", number=2))
    assert numbers_in(path) == Counter(dict.fromkeys(range(800), 2))
    assert StagingArea(path).sweep(-1) == [late[0].file]


@pytest.mark.parametrize("step", ["begun", "appended", "synced"])
def test_store_is_healthy_after_a_publication_was_taken_back(path: Path, step: str) -> None:
    publish_killed(path, Publication("w", stage(path, "w")), step)
    assert settle_interrupted(path) == "rolled back"
    assert publish(path, Publication("w2", stage(path, "w2")))
    assert numbers_in(path) == Counter(range(800))
    assert verify_store(str(path)).healthy


def test_messages_come_in_the_order_of_their_partitions(path: Path) -> None:
    runs = stage(path, "w")
    assert ordered([Staged(1, runs[1]), Staged(0, runs[0])]) == runs
    with pytest.raises(StoreError, match="1 tasks did not say"):
        ordered([Staged(1, runs[1]), None])


def test_keys_that_look_alike_as_files_are_different(path: Path) -> None:
    area = StagingArea(path)
    publish(path, Publication("a/b", stage(path, "a/b"), key="load 1", number=0))
    assert is_published(area, Publication("x", [], key="load 1", number=0))
    assert not is_published(area, Publication("x", [], key="load_1", number=0))
    assert not is_published(area, Publication("x", [], key="load/1", number=0))


def test_staged_file_that_is_gone_is_told(path: Path) -> None:
    runs = stage(path, "w")
    (StagingArea(path).staging / runs[0].file).unlink()
    with pytest.raises(StoreError, match="must see the same directory"):
        publish(path, Publication("w", runs))
    assert settle(path) is None


def test_writer_refuses_before_any_task_runs(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    given = {"path": str(file), "topic": "t"}
    with pytest.raises(NotAStore, match="this is a file"):
        RocketMQWriter(given, BODIES, False)
    with pytest.raises(UsageError, match="known by its checkpoint"):
        RocketMQSink({"path": str(tmp_path / "s"), "topic": "t", "writeId": "x"}, BODIES, False)
    with pytest.raises(UsageError, match="number from 1 to 65536"):
        WriteOptions.parse({**given, "queues": "none"})
    with pytest.raises(UsageError, match="needs a store"):
        WriteOptions.parse({"topic": "t"})
    assert WriteOptions.parse({"PATH": "file:/a%20b", "QueueS": "3", "option.x": "y"}).path == "/a b"
