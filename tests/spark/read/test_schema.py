"""The schema is Spark's to the letter, and a user's schema a projection of it."""

from __future__ import annotations

import pyarrow
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock._native.columns import SPARK_COLUMNS
from penstock.errors import UsageError
from penstock.spark import schema
from penstock.spark.schema import NAMES, arrow_schema, as_spark_has_it, full_schema, projection


def test_arrow_and_spark_agree_on_every_column() -> None:
    full = full_schema(quarantine=True)
    assert arrow_schema(full.names).equals(to_arrow_schema(full, timezone="UTC"))
    assert all(field.nullable for field in full)
    assert full_schema() == schema.FULL and full.names[:-1] == list(NAMES)


def test_only_what_a_message_may_lack_is_nullable() -> None:
    assert {field.name for field in full_schema() if field.nullable} == {"uniqKey", "keys", "tags"}


def test_batches_have_the_nullability_of_the_schema_and_the_same_memory() -> None:
    full = full_schema()
    columns = {name: [] for name in full.names}
    batch = pyarrow.RecordBatch.from_pydict(columns, schema=arrow_schema(full.names))
    [labelled] = as_spark_has_it([batch], full)
    assert labelled.schema.equals(to_arrow_schema(full, timezone="UTC"))
    one = pyarrow.RecordBatch.from_pydict({"body": [b"", b"abc"]}, schema=arrow_schema(["body"]))
    [labelled] = as_spark_has_it([one.slice(1)], StructType([StructField("body", BinaryType(), False)]))
    assert labelled.to_pylist() == [{"body": b"abc"}]
    assert labelled.column(0).buffers()[2].address == one.column(0).buffers()[2].address
    for schema_ in (None, full_schema(quarantine=True)):
        assert list(as_spark_has_it([one], schema_)) == [one]


def test_the_compiled_columns_are_these() -> None:
    assert sorted(SPARK_COLUMNS) == sorted(NAMES)


def test_types_are_as_documented() -> None:
    types = {field.name: field.dataType for field in full_schema()}
    assert types["topic"] == StringType() and types["queueOffset"] == LongType()
    assert types["queueId"] == IntegerType() and types["body"] == BinaryType()
    assert types["properties"] == MapType(StringType(), StringType(), True)
    assert types["storeTimestamp"] == types["bornTimestamp"] == TimestampType()


def test_a_users_schema_is_a_projection_in_its_own_order() -> None:
    asked = StructType([StructField("queueId", IntegerType()), StructField("topic", StringType())])
    assert projection(asked) == ["queueId", "topic"]


def test_unknown_columns_are_refused_with_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"'queueid'; do you mean queueId\?.*topic string, queueId int"):
        projection(StructType([StructField("queueid", IntegerType())]))
    with pytest.raises(UsageError, match="badRecords=quarantine"):
        projection(StructType([StructField("badRecord", StringType())]))
    assert projection(StructType([StructField("badRecord", StringType())]), quarantine=True) == ["badRecord"]


def test_wrong_types_are_refused() -> None:
    with pytest.raises(UsageError, match="body is binary, not string"):
        projection(StructType([StructField("body", StringType())]))
