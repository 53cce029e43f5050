"""What a task of the statistics counts in its split. Bodies are not looked at; only sums leave the task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.spark.jobs.headers import header_pieces
from penstock.spark.jobs.sketch import FrequentItems, bucket_column

if TYPE_CHECKING:
    import pyarrow

    from penstock.spark.planning import LogSplit

HOUR_MS = 3_600_000
COLUMNS = ("topic", "queueId", "queueOffset", "keys", "tags", "bornTimestamp", "storeTimestamp", "size")
SCHEMA = (
    "kind string, topic string, queueId int, bucket bigint, item string,"
    " rows bigint, bytes bigint, low bigint, high bigint"
)
"""Rows of partial sums: equal (kind, topic, queueId, bucket, item) add up, ``low`` by its least, ``high`` by
its most.

* ``hour``: messages and bytes of a queue in an hour (``bucket``, hours since 1970); least and greatest queue
  offset
* ``time``: least and greatest store time of a topic
* ``size``, ``delay``: numbers of messages by :func:`~penstock.spark.jobs.sketch.bucket_column`; extremes
* ``tag``, ``key``: counters of frequent items; ``-error`` behind it: by how much the topic's may be too low;
  ``-total`` behind it: of how many
"""


def count_split(split: LogSplit, capacity: int) -> Iterator[pyarrow.RecordBatch]:
    """Everything but exact counts of frequent items, in one pass."""
    counter = _Counter(capacity)
    for piece in header_pieces(split, COLUMNS):
        counter.add(piece.batch)
    yield from counter.result()


def count_items(split: LogSplit, wanted: Sequence[tuple[str, str, str]]) -> Iterator[tuple[Any, ...]]:
    """Exact counts of some (kind, topic, item) with kind ``tag`` or ``key``, as rows of the same schema."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sets = {
        kind: pa.array([f"{topic}\0{item}" for found, topic, item in wanted if found == kind], pa.string())
        for kind in ("tag", "key")
    }
    counts = {kind: [0] * len(names) for kind, names in sets.items()}
    for piece in header_pieces(split, ("topic", "keys", "tags")):
        pairs = {"tag": tag_pairs(piece.batch), "key": key_pairs(piece.batch)}
        for kind, (topics, items) in pairs.items():
            if not len(sets[kind]):
                continue
            names = pc.binary_join_element_wise(topics, items, "\0")
            places = pc.index_in(names, value_set=sets[kind])
            for entry in pc.value_counts(places.drop_null()).to_pylist():
                counts[kind][entry["values"]] += entry["counts"]
    for kind, names in sets.items():
        for name, count in zip(names.to_pylist(), counts[kind], strict=True):
            topic, _, item = name.partition("\0")
            yield kind, topic, 0, 0, item, count, 0, 0, 0


def tag_pairs(batch: pyarrow.RecordBatch) -> tuple[Any, Any]:
    """Topics and tags of the messages; a message without a tag has a null."""
    return batch.column("topic"), batch.column("tags")


def key_pairs(batch: pyarrow.RecordBatch) -> tuple[Any, Any]:
    """Topics and single keys: a message with several keys gives several rows, one without none."""
    import pyarrow.compute as pc

    parted = pc.split_pattern(batch.column("keys"), " ")
    keys = pc.list_flatten(parted)
    topics = batch.column("topic").take(pc.list_parent_indices(parted))
    filled = pc.not_equal(keys, "")
    return topics.filter(filled), keys.filter(filled)


class _Counter:
    """Sums of one split."""

    def __init__(self, capacity: int) -> None:
        self.items = {"tag": FrequentItems(capacity), "key": FrequentItems(capacity)}
        self.parts: dict[str, list[Any]] = {"hour": [], "time": [], "size": [], "delay": []}

    def add(self, batch: pyarrow.RecordBatch) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        topic, size = batch.column("topic"), batch.column("size")
        stored = batch.column("storeTimestamp").cast(pa.int64())
        born = batch.column("bornTimestamp").cast(pa.int64())
        delay = pc.subtract(stored, born)
        one = pa.table(
            {
                "topic": topic,
                "queueId": batch.column("queueId"),
                "offset": batch.column("queueOffset"),
                "bytes": size.cast(pa.int64()),
                "hour": pc.divide(stored, HOUR_MS),
                "stored": stored,
                "delay": delay,
                "size_bucket": bucket_column(size).cast(pa.int64()),
                "delay_bucket": bucket_column(delay).cast(pa.int64()),
            }
        )
        self.parts["hour"].append(_sums(one, "hour", ["topic", "queueId", "hour"], "offset"))
        self.parts["time"].append(_sums(one, "time", ["topic"], "stored"))
        self.parts["size"].append(_sums(one, "size", ["topic", "size_bucket"], "bytes"))
        self.parts["delay"].append(_sums(one, "delay", ["topic", "delay_bucket"], "delay"))
        self.items["tag"].add(*tag_pairs(batch))
        self.items["key"].add(*key_pairs(batch))

    def result(self) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow as pa

        for tables in self.parts.values():
            if tables:
                yield from _merged(pa.concat_tables(tables)).to_batches()
        for kind, frequent in self.items.items():
            counters = frequent.counters()
            yield from _filled(
                kind, counters["topic"], item=counters["item"], rows=counters["count"]
            ).to_batches()
            for suffix, numbers in (("error", frequent.error), ("total", frequent.total)):
                topics = pa.array(list(numbers), pa.string())
                rows = pa.array(list(numbers.values()), pa.int64())
                yield from _filled(f"{kind}-{suffix}", topics, rows=rows).to_batches()


def _sums(one: Any, kind: str, by: list[str], extreme: str) -> Any:
    grouped = one.group_by(by).aggregate(
        [([], "count_all"), ("bytes", "sum"), (extreme, "min"), (extreme, "max")]
    )
    rest = [name for name in by if name not in ("topic", "queueId")]
    return _filled(
        kind,
        grouped["topic"],
        queue=grouped["queueId"] if "queueId" in by else None,
        bucket=grouped[rest[0]] if rest else None,
        rows=grouped["count_all"],
        size=grouped["bytes_sum"],
        low=grouped[f"{extreme}_min"],
        high=grouped[f"{extreme}_max"],
    )


def _merged(table: Any) -> Any:
    """Rows of equal names as one."""
    names = ["kind", "topic", "queueId", "bucket", "item"]
    grouped = table.group_by(names).aggregate(
        [("rows", "sum"), ("bytes", "sum"), ("low", "min"), ("high", "max")]
    )
    columns = [*names, "rows_sum", "bytes_sum", "low_min", "high_max"]
    return grouped.select(columns).rename_columns(table.column_names).cast(table.schema)


def _filled(
    kind: str,
    topic: Any,
    *,
    queue: Any = None,
    bucket: Any = None,
    item: Any = None,
    rows: Any = None,
    size: Any = None,
    low: Any = None,
    high: Any = None,
) -> Any:
    """A table of the schema; what is not given is zero or empty."""
    import pyarrow as pa

    def column(values: Any, kind: Any, rest: Any) -> Any:
        return pa.repeat(pa.scalar(rest, kind), len(topic)) if values is None else values

    columns = {
        "kind": column(None, pa.string(), kind),
        "topic": topic,
        "queueId": column(queue, pa.int32(), 0),
        "bucket": column(bucket, pa.int64(), 0),
        "item": column(item, pa.string(), ""),
        "rows": column(rows, pa.int64(), 0),
        "bytes": column(size, pa.int64(), 0),
        "low": column(low, pa.int64(), 0),
        "high": column(high, pa.int64(), 0),
    }
    return pa.table(columns)
