"""``penstock.spark.sql`` and ``penstock sql``: topics as views, only the columns that a query needs."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import Message, StoreConfig
from penstock.cli import main
from penstock.errors import UsageError
from penstock.spark.sql import sql, topics_of, used_columns
from penstock.store.opening import open_writable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=100, max_index_num=400)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 orders of two tags and 10 messages of a topic that is no plain word."""
    path = tmp_path_factory.mktemp("sql") / "store"
    with open_writable(path, config=CONFIG) as opened:
        opened.put_many(
            [
                Message(
                    "orders",
                    b"order %d" % n,
                    tags=("tea", "coffee")[n % 4 == 0],
                    keys=f"o{n}",
                    queue_id=n % 2,
                )
                for n in range(40)
            ]
        )
        opened.put_many([Message("sensor-data", b"%d" % n) for n in range(10)])
        opened.wait_visible()
    return path


def test_every_topic_is_a_view_and_all_of_them_together(spark: SparkSession, store: Path) -> None:
    assert topics_of(store) == ["orders", "sensor-data"]
    counts = sql(spark, store, "select tags, count(*) as n from orders group by tags order by tags").collect()
    assert [tuple(row) for row in counts] == [("coffee", 10), ("tea", 30)]
    assert sql(spark, store, "select count(*) from messages").first() == (50,)
    total = sql(spark, store, "select sum(cast(cast(body as string) as int)) from `sensor-data`").first()
    assert total == (45,)


def test_two_filters_on_one_view_and_a_self_join_are_right(spark: SparkSession, store: Path) -> None:
    joined = sql(
        spark,
        store,
        "select a.keys, b.keys from orders a join orders b on a.queueOffset = b.queueOffset"
        " where a.queueId = 0 and b.queueId = 1 and a.queueOffset = 3",
    )
    assert [tuple(row) for row in joined.collect()] == [("o6", "o7")]


def test_only_the_columns_that_a_query_uses_are_read(spark: SparkSession, store: Path) -> None:
    frame = sql(spark, store, "select tags, max(queueOffset) from orders where queueId = 1 group by tags")
    assert used_columns(frame) == ["queueId", "queueOffset", "tags"]
    assert spark.table("orders").columns == ["queueId", "queueOffset", "tags"]
    whole = sql(spark, store, "select * from orders where tags in (select tags from `sensor-data`)")
    assert len(whole.columns) == 20


def test_an_unknown_table_names_the_views_there_are(spark: SparkSession, store: Path) -> None:
    with pytest.raises(UsageError) as caught:
        sql(spark, store, "select * from order")
    assert caught.value.message == "there is no table 'order'; do you mean orders?"
    assert "views: messages, orders, `sensor-data`" in caught.value.hint
    with pytest.raises(UsageError, match="colour"):
        sql(spark, store, "select colour from orders")


def test_the_command_prints_an_object_a_row(
    spark: SparkSession,
    store: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The command's own session is this one here.
    monkeypatch.setattr("penstock.cli.querying.spark_session", lambda *given, **named: nullcontext(spark))
    query = "select queueOffset, body, storeTimestamp from orders where keys = 'o5'"
    assert main(["sql", str(store), query, "--json"]) == 0
    (line,) = capfdbinary.readouterr().out.splitlines()
    row = json.loads(line)
    assert (row["queueOffset"], row["body"]) == (2, "b3JkZXIgNQ==")
    assert row["storeTimestamp"].endswith("Z")
    assert main(["sql", str(store), "select * from nothing", "--json"]) == 2
    assert json.loads(capfdbinary.readouterr().err)["message"].startswith("there is no table 'nothing'")
