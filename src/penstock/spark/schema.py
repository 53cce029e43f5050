"""The rows: one per message, with these columns.

pyspark and pyarrow are imported when a type is asked for, not before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class Column(NamedTuple):
    """One column: its name, Spark's name of its type, and whether a message may be without it.

    Spark looks at every value of a column that may be null before it reads it, and again with each copy it
    makes of a row: a quarter of what all columns cost it. So only what can be missing may be.
    """

    name: str
    type: str
    optional: bool = False


COLUMNS: tuple[Column, ...] = (
    Column("topic", "string"),
    Column("queueId", "int"),
    Column("queueOffset", "bigint"),
    Column("physicalOffset", "bigint"),
    Column("msgId", "string"),
    Column("uniqKey", "string", optional=True),
    Column("keys", "string", optional=True),
    Column("tags", "string", optional=True),
    Column("body", "binary"),
    Column("properties", "map<string,string>"),
    Column("bornTimestamp", "timestamp"),
    Column("storeTimestamp", "timestamp"),
    Column("bornHost", "string"),
    Column("storeHost", "string"),
    Column("flag", "int"),
    Column("sysFlag", "int"),
    Column("reconsumeTimes", "int"),
    Column("preparedTransactionOffset", "bigint"),
    Column("bodyCrc", "int"),
    Column("size", "int"),
)

BAD_RECORD = Column("badRecord", "string", optional=True)
"""With ``badRecords=quarantine`` one more: why this is no message; null for messages."""

NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)
TYPES: dict[str, str] = {column.name: column.type for column in (*COLUMNS, BAD_RECORD)}


def full_schema(*, quarantine: bool = False) -> StructType:
    """The schema of a read without one of the user's own. A bad record in quarantine has hardly a column."""
    from pyspark.sql.types import StructField, StructType

    columns = (*COLUMNS, BAD_RECORD) if quarantine else COLUMNS
    return StructType(
        [StructField(name, spark_type(kind), quarantine or optional) for name, kind, optional in columns]
    )


def __getattr__(name: str) -> Any:
    if name == "FULL":
        return full_schema()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def spark_type(kind: str) -> Any:
    """Spark's type of that name. (Parsing a name takes a session, which workers do not have.)"""
    from pyspark.sql import types

    if kind == "map<string,string>":
        return types.MapType(types.StringType(), types.StringType(), True)
    made = {
        "string": types.StringType,
        "int": types.IntegerType,
        "bigint": types.LongType,
        "binary": types.BinaryType,
        "timestamp": types.TimestampType,
    }
    return made[kind]()


def arrow_schema(names: Iterable[str]) -> pa.Schema:
    """The columns as a task makes them: Spark's types, each of them nullable."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([pa.field(name, kinds[TYPES[name]]) for name in names])


def as_spark_has_it(batches: Iterable[pa.RecordBatch], schema: StructType | None) -> Iterator[pa.RecordBatch]:
    """The same batches, nothing copied, but with what may be null exactly as in Spark's schema of them."""
    if schema is None or all(field.nullable for field in schema.fields):
        yield from batches
        return
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    for batch in batches:
        yield pa.record_batch(_Labelled(batch, wanted))


class _Labelled:
    """Columns under another schema, for whoever takes Arrow's capsules."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch = batch
        self._schema = schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._schema.__arrow_c_schema__(), self._batch.__arrow_c_array__()[1]


def projection(schema: StructType, *, quarantine: bool = False) -> list[str]:
    """The columns that a user's schema asks for, in its order.

    Raises UsageError for a column that there is not, or not with this type, and says what there is.
    """
    known = [*NAMES, *([BAD_RECORD.name] if quarantine else [])]
    by_lower = {name.lower(): name for name in known}
    names: list[str] = []
    for field in schema.fields:
        name = field.name
        if name not in known:
            near = by_lower.get(name.lower()) or next(iter(get_close_matches(name, known, 1)), None)
            raise UsageError(
                f"there is no column {name!r}" + (f"; do you mean {near}?" if near else ""),
                hint=(
                    f"the column badRecord comes with badRecords=quarantine; {_describe(known)}"
                    if name == BAD_RECORD.name
                    else _describe(known)
                ),
            )
        if field.dataType.simpleString() != TYPES[name]:
            raise UsageError(
                f"the column {name} is {TYPES[name]}, not {field.dataType.simpleString()}",
                hint=f"read it as it is and cast it in a select; {_describe(known)}",
            )
        names.append(name)
    if len(set(names)) != len(names):
        raise UsageError(f"a column is asked for twice: {', '.join(names)}", hint=_describe(known))
    return names


def _describe(known: Sequence[str]) -> str:
    return "columns are " + ", ".join(f"{name} {TYPES[name]}" for name in known)
