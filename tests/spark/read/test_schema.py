"""The schema is Spark's to the letter, and a user's schema a projection of it."""

from __future__ import annotations

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
from penstock.spark.schema import NAMES, arrow_schema, full_schema, projection


def test_arrow_and_spark_agree_on_every_column() -> None:
    full = full_schema(quarantine=True)
    assert arrow_schema(full.names).equals(to_arrow_schema(full, timezone="UTC"))
    assert all(field.nullable for field in full)
    assert full_schema() == schema.FULL and full.names[:-1] == list(NAMES)


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
