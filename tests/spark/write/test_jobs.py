"""Import and replay write what they said they would, once, and in order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock import Message, open_store
from penstock import spark as ps
from penstock.errors import UsageError
from penstock.spark.jobs.importing import import_messages
from penstock.spark.jobs.replay import replay
from spark.write.publishing import CONFIG, everything, make_store


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with orders, and dead letters of a group."""
    path = tmp_path_factory.mktemp("replay") / "source"
    with open_store(path, config=CONFIG) as store:
        for n in range(300):
            message = Message("orders", b"%06d" % n, f"tag{n % 3}", f"key{n % 7}", n % 4, {"n": str(n)})
            assert store.put(message).ok  # type: ignore[union-attr]
        for n in range(20):
            origin = {"DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": f"{n:032X}"}
            assert store.put(Message("%DLQ%billing", b"dead%02d" % n, properties=origin)).ok  # type: ignore[union-attr]
        assert store.put(Message("%DLQ%billing", b"homeless")).ok  # type: ignore[union-attr]
    return path


def bodies(path: Path, topic: str) -> dict[int, list[bytes]]:
    with open_store(path, read_only=True) as store:
        return {q: [m.body for m in everything(store, t, q)] for t, q in store.queues() if t == topic}


def test_import_of_an_export_gives_the_same_messages(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    files = str(tmp_path / "parquet")
    frame = ps.read(spark, source, topic="orders")
    frame.repartition(3, "tags").write.parquet(files)
    target = make_store(tmp_path / "target")
    tried = import_messages(spark, files, target, dry_run=True)
    assert bodies(target, "orders") == {}
    done = import_messages(spark, files, target, write_id="orders")
    again = import_messages(spark, files, target, write_id="orders")
    assert (tried.rows, done.rows, again.rows) == (300, 300, 300)
    assert "physicalOffset" in done.left_out and "physicalOffset" not in done.columns
    assert bodies(target, "orders") == bodies(source, "orders")
    columns = ["topic", "queueId", "queueOffset", "uniqKey", "keys", "tags", "body", "bornTimestamp", "flag"]
    old, new = (ps.read(spark, path, topic="orders").select(*columns) for path in (source, target))
    assert old.exceptAll(new).count() == 0 and new.count() == 300


def test_import_of_any_table_makes_json_bodies(spark: SparkSession, tmp_path: Path) -> None:
    target = make_store(tmp_path / "target")
    frame = spark.range(5).withColumn("name", F.lit("x"))
    result = import_messages(
        spark,
        frame,
        target,
        topic="t",
        columns={"keys": "cast(id as string)"},
        json_body=True,
        order_by="id",
        queues=1,
    )
    assert result.rows == 5
    assert bodies(target, "t") == {0: [b'{"id":%d,"name":"x"}' % n for n in range(5)]}
    with pytest.raises(UsageError, match="no column 'colour'"):
        import_messages(spark, frame, target, topic="t", columns={"colour": "name"})
    with pytest.raises(UsageError, match="knows no column 'id'"):
        import_messages(spark, frame, target, topic="t")
    with pytest.raises(UsageError, match="no column 'when'"):
        import_messages(spark, frame, target, topic="t", json_body=True, order_by="when")


def test_replay_writes_each_selected_message_once_and_in_order(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    target = make_store(tmp_path / "target")
    chosen = {"topics": "orders", "to": "again", "where": "properties['n'] % 2 = 0"}
    tried = replay(spark, source, target, dry_run=True, **chosen)  # type: ignore[arg-type]
    assert bodies(target, "again") == {}
    first = replay(spark, source, target, tags="tag0", **chosen)  # type: ignore[arg-type]
    rest = replay(spark, source, target, **chosen)  # type: ignore[arg-type]
    nothing = replay(spark, source, target, **chosen)  # type: ignore[arg-type]
    assert (tried.selected, tried.written) == (150, 150)
    assert (first.written, rest.present, rest.written, nothing.written) == (50, 50, 100, 0)
    found = bodies(target, "again")
    assert Counter(body for queue in found.values() for body in queue) == {
        b"%06d" % n: 1 for n in range(0, 300, 2)
    }
    assert replay(spark, source, target, name="other", dry_run=True, **chosen).written == 150  # type: ignore[arg-type]


def test_replayed_queues_keep_their_order_and_tell_their_origin(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    target = make_store(tmp_path / "target")
    assert replay(spark, source, target, topics=["orders"], to="copy").written == 300
    assert bodies(target, "copy") == bodies(source, "orders")
    with open_store(source, read_only=True) as old, open_store(target, read_only=True) as new:
        for before, after in zip(everything(old, "orders", 1), everything(new, "copy", 1), strict=True):
            told = {k: v for k, v in after.properties.items() if k.startswith("REPLAY_")}
            assert told == {
                "REPLAY_NAME": "replay",
                "REPLAY_MESSAGE_ID": before.message_id,
                "REPLAY_TOPIC": "orders",
                "REPLAY_QUEUE_ID": "1",
                "REPLAY_QUEUE_OFFSET": str(before.queue_offset),
            }
            assert {k: v for k, v in after.properties.items() if k not in told} == before.properties
            assert after.born_timestamp == before.born_timestamp


def test_dead_letters_go_back_to_where_they_came_from_at_the_given_rate(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    target, now, pauses = make_store(tmp_path / "target"), [100.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    done = replay(spark, source, target, dead_letters="billing", rate=0.5, clock=lambda: now[0], sleep=sleep)
    assert (done.written, done.homeless) == (20, 1)
    assert done.writes == len(pauses) + 1 and done.writes >= 4
    assert now[0] - 100 >= 10 / 0.5  # nearly all of the time that twenty take at one in two seconds
    assert bodies(target, "orders") == {0: [b"dead%02d" % n for n in range(20)]}


def test_replay_that_makes_no_sense_is_refused(spark: SparkSession, source: Path) -> None:
    for given, told in [
        ({"topics": "orders"}, "where to"),
        ({"to": "x"}, "what is to be replayed"),
        ({"topics": "orders", "to": "orders"}, "where they come from"),
        ({"topics": "orders", "to": "a/b"}, "characters other than"),
        ({"topics": "orders", "to": "x", "rate": 0}, "a rate of 0"),
    ]:
        with pytest.raises(UsageError, match=told):
            replay(spark, source, **given)  # type: ignore[arg-type]
