"""Jobs and SQL on brokers that run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

from penstock.cli.sparkframe import brokers_or
from penstock.errors import UsageError
from penstock.spark.jobs.export import export
from penstock.spark.jobs.importing import import_messages
from penstock.spark.jobs.replay import replay
from penstock.spark.sql import sql
from penstock.testing import RunningBroker
from spark.network.rows import rows
from spark.read.stores import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_export_from_brokers_has_every_message_once_and_goes_on_where_it_was(
    spark: SparkSession, served: RunningBroker, tmp_path: Path
) -> None:
    source, target = f"namesrv://{served.namesrv}", tmp_path / "parquet"
    first = export(spark, source, str(target), topics=["orders"])
    again = export(spark, source, str(target), topics=["orders"])
    assert (first.rows, again.rows) == (200, 0)
    table = ds.dataset(target, partitioning="hive", exclude_invalid_files=True).to_table(
        ["queueId", "queueOffset"]
    )
    assert len(set(map(tuple, (row.values() for row in table.to_pylist())))) == table.num_rows == 200


@pytest.mark.cluster
def test_a_replay_into_brokers_sends_each_message_once(
    spark: SparkSession, penstock_broker: RunningBroker, tmp_path: Path
) -> None:
    store = fill(tmp_path / "store", 60)
    target = f"namesrv://{penstock_broker.namesrv}"
    done = [replay(spark, store, target, topics="orders", to="again", tags="red") for _ in range(2)]
    assert [(result.selected, result.present, result.written) for result in done] == [(7, 0, 7), (7, 7, 0)]
    found = rows(penstock_broker.namesrv, ["tags", "properties"], subscribe="again")
    assert [row["tags"] for row in found] == ["red"] * 7
    assert {row["properties"]["REPLAY_TOPIC"] for row in found} == {"orders"}


@pytest.mark.cluster
def test_an_import_into_brokers_is_made_once(spark: SparkSession, penstock_broker: RunningBroker) -> None:
    frame = spark.range(0, 40, 1, 2).selectExpr("cast(id as string) as body", "cast(id as string) as keys")
    for _ in range(2):
        import_messages(spark, frame, f"namesrv://{penstock_broker.namesrv}", topic="imported", write_id="i")
    found = rows(penstock_broker.namesrv, ["body"], subscribe="imported")
    assert sorted(int(row["body"]) for row in found) == list(range(40))


def test_sql_asks_brokers(spark: SparkSession, served: RunningBroker) -> None:
    query = "select tags, count(*) from orders group by tags order by tags"
    found = sql(spark, f"namesrv://{served.namesrv}", query).collect()
    assert [tuple(row) for row in found] == [(None, 66), ("green", 67), ("red", 67)]


def test_a_command_takes_brokers_in_the_place_of_its_path() -> None:
    assert brokers_or(None, "store", "target") == ("store", "target")
    assert brokers_or("h:1", "target", None) == ("namesrv://h:1", "target")
    with pytest.raises(UsageError, match="name two places"):
        brokers_or("h:1", "store", "target")
    with pytest.raises(UsageError, match="too few"):
        brokers_or(None, "target", None)
