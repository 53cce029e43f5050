"""Which records a compaction keeps: what a task finds in its split, and how it copies what was decided.

The last value of a key is the message with the greatest queue offset among those of one queue with the same
``KEYS`` property, whole as it is stored (RocketMQ's compaction takes it whole too). A task tells the last
one of each key in its split; all tasks' are merged by key; then each task copies those of its split that are
left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock._native.columns import decode_log
from penstock._native.moving import move_records
from penstock.files.disk import DiskStorage
from penstock.message.sysflag import INNER_BATCH_FLAG, TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK
from penstock.spark.jobs.headers import Piece, header_pieces
from penstock.store.filler import TOPIC as FILLER_TOPIC

if TYPE_CHECKING:
    import pyarrow

    from penstock.spark.planning import LogSplit

COLUMNS = (
    "topic",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "keys",
    "storeTimestamp",
    "sysFlag",
    "bodyCrc",
    "size",
)
SCHEMA = (
    "kind string, split int, topic string, queueId int, item string, queueOffset bigint,"
    " physicalOffset bigint, size bigint, stored bigint, removable boolean, rows bigint"
)
"""Rows of the first pass. All of one (kind, topic, queueId, item) merge to the one with the greatest queue
offset.

* ``key``: the last message of a key in the split; ``removable``: its body is empty, so it deletes the key
* ``last``: the last message of a queue in the split; ``removable``: it would not be kept for itself
* ``kept``: number (``rows``) and bytes (``size``) of the records of the split that are kept whatever others
  hold
* ``seen``: number and bytes of all records of the split
"""

_BAD_TEXT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Rules:
    """What may go. ``topics`` are compacted; ``others`` says whether records of other topics are kept,
    ``keyless`` whether messages without a key are.
    """

    topics: tuple[str, ...]
    others: bool = True
    keyless: bool = True


@dataclass(frozen=True, slots=True)
class NumberedSplit:
    """A split and its number in the order of the log."""

    number: int
    split: LogSplit


@dataclass(frozen=True, slots=True)
class Copy:
    """Where the survivors of a split go: so many bytes from physical offset ``target`` of the new log on."""

    numbered: NumberedSplit
    target: int
    bytes: int


def find_last(numbered: NumberedSplit, rules: Rules) -> Iterator[pyarrow.RecordBatch]:
    """The rows of the first pass for one split."""
    import pyarrow as pa

    found: list[Any] = []
    kept_rows = kept_bytes = seen_rows = seen_bytes = 0
    for piece in header_pieces(numbered.split, COLUMNS, check_crc=True, skip_damage=False):
        always, keyed = classify(piece.batch, rules)
        size = piece.batch.column("size")
        seen_rows, seen_bytes = seen_rows + len(size), seen_bytes + len(piece.view)
        kept_rows += always.true_count
        kept_bytes += _sum(size.filter(always))
        found.append(_compacted_rows(piece, always, keyed, rules))
    if found:
        yield from _last_rows(pa.concat_tables(found), numbered.number)
    totals = {"kept": (kept_rows, kept_bytes), "seen": (seen_rows, seen_bytes)}
    for kind, (rows, size) in totals.items():
        yield pa.RecordBatch.from_pylist(
            [{"kind": kind, "split": numbered.number, "size": size, "rows": rows}], _schema()
        )


def classify(batch: pyarrow.RecordBatch, rules: Rules) -> tuple[Any, Any]:
    """Two masks: records that are kept whatever others hold, and messages that a later one of their key
    replaces.

    In the compacted topics records without a queue unit and inner batches are kept; so is a message whose
    key is not UTF-8, because two such keys may look alike. Fillers are in neither.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    topic, keys = batch.column("topic"), batch.column("keys")
    ours = pc.is_in(topic, value_set=pa.array(rules.topics, pa.string()))
    flags = pc.bit_wise_and(batch.column("sysFlag"), TRANSACTION_MASK | INNER_BATCH_FLAG)
    queued = pc.is_in(flags, value_set=pa.array([0, TRANSACTION_COMMIT_TYPE], pa.int32()))
    readable = pc.fill_null(pc.invert(pc.match_substring(keys, _BAD_TEXT)), False)
    keyed = pc.and_(pc.and_(ours, queued), readable)
    always = pc.and_(ours, pc.invert(keyed))
    if not rules.keyless:
        always = pc.and_(always, pc.invert(pc.and_(queued, pc.is_null(keys))))
    if rules.others:
        always = pc.or_(always, pc.and_(pc.invert(ours), pc.not_equal(topic, FILLER_TOPIC.decode())))
    return always, keyed


def _compacted_rows(piece: Piece, always: Any, keyed: Any, rules: Rules) -> Any:
    """What has to be known of the records of the compacted topics."""
    import pyarrow as pa
    import pyarrow.compute as pc

    batch = piece.batch
    return pa.table(
        {
            "topic": batch.column("topic"),
            "queueId": batch.column("queueId"),
            "item": batch.column("keys"),
            "queueOffset": batch.column("queueOffset"),
            "physicalOffset": batch.column("physicalOffset"),
            "size": batch.column("size").cast(pa.int64()),
            "stored": batch.column("storeTimestamp").cast(pa.int64()),
            "empty": _empty_bodies(piece, keyed),
            "keyed": keyed,
            "replaceable": pc.invert(always),
        }
    ).filter(pc.is_in(batch.column("topic"), value_set=pa.array(rules.topics, pa.string())))


def _last_rows(rows: Any, number: int) -> Iterator[pyarrow.RecordBatch]:
    """The last message of each key and of each queue, as rows of the schema.

    Last is the one with the greatest queue offset; of two such, the first in the log: a queue points to that.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    order = [("queueOffset", "ascending"), ("physicalOffset", "descending")]
    rows = rows.combine_chunks().take(pc.sort_indices(rows, sort_keys=order))
    # Grouping by numbers costs a fraction of grouping by texts, and there are few topics.
    codes = rows["topic"].combine_chunks().dictionary_encode().indices
    rows = rows.append_column("code", codes).append_column("rank", pa.array(range(len(rows)), pa.int64()))
    for kind, names, some, removable in (
        ("key", ["code", "queueId", "item"], rows.filter(rows["keyed"]), "empty"),
        ("last", ["code", "queueId"], rows, "replaceable"),
    ):
        ranks = some.select([*names, "rank"]).group_by(names).aggregate([("rank", "max")])["rank_max"]
        last = rows.take(ranks)
        columns = {name: last[name] for name in last.column_names}
        columns |= {
            "kind": pa.repeat(kind, len(last)),
            "split": pa.repeat(pa.scalar(number, pa.int32()), len(last)),
            "rows": pa.repeat(pa.scalar(1, pa.int64()), len(last)),
            "removable": last[removable],
        }
        if kind == "last":
            columns["item"] = pa.nulls(len(last), pa.string())
        schema = _schema()
        yield from pa.table({name: columns[name] for name in schema.names}).cast(schema).to_batches()


def _empty_bodies(piece: Piece, keyed: Any) -> Any:
    """Which of the keyed messages have an empty body. Bodies are looked at only where the CRC allows it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    doubtful = pc.and_(keyed, pc.equal(piece.batch.column("bodyCrc"), 0))
    if not doubtful.true_count:
        return pa.repeat(False, piece.batch.num_rows)
    bodies, _, _ = decode_log(
        piece.view, 0, len(piece.view), piece.base, columns=("body",), max_rows=len(keyed), check_crc=False
    )
    lengths = pc.binary_length(pa.record_batch(bodies).column("body"))
    return pc.and_(doubtful, pc.equal(lengths, 0))


def copy_survivors(copy: Copy, kept: Any, rules: Rules, folder: str, segment_size: int) -> tuple[int, int]:
    """Write the survivors of a split into the new log; records and bytes written.

    ``kept`` is an Arrow array of physical offsets, those of the keyed messages that survive. Writing the
    same again changes nothing, so two attempts may run at once.
    """
    import pyarrow.compute as pc

    if not copy.bytes:
        return 0, 0
    begin = copy.target - copy.target % segment_size
    # The file was made beforehand; a copy never goes over its end.
    file = DiskStorage().open_sparse(f"{folder}/{begin:020d}", segment_size)
    records, position = 0, copy.target
    try:
        for piece in header_pieces(
            copy.numbered.split, ("topic", "queueId", "keys", "sysFlag", "physicalOffset")
        ):
            always, _ = classify(piece.batch, rules)
            places = piece.batch.column("physicalOffset")
            near = kept.filter(
                pc.and_(pc.greater_equal(kept, piece.base), pc.less(kept, piece.base + len(piece.view)))
            )
            chosen = places.filter(pc.or_(always, pc.is_in(places, value_set=near)))
            if not len(chosen):
                continue
            target = bytearray(len(piece.view))
            written = move_records(piece.view, piece.base, _numbers(chosen), target, position)
            if position + written > copy.target + copy.bytes:
                break  # told by the count: the store was changed meanwhile
            file.write(position - begin, memoryview(target)[:written])
            records, position = records + len(chosen), position + written
        file.sync()
    finally:
        file.close()
    return records, position - copy.target


def _numbers(array: pyarrow.Array) -> memoryview:
    """The 64-bit numbers of an Arrow array without nulls, as they lie in memory."""
    size = len(array)
    return memoryview(array.buffers()[1]).cast("b").cast("q")[array.offset : array.offset + size]


def _sum(array: Any) -> int:
    import pyarrow.compute as pc

    return pc.sum(array).as_py() or 0


def _schema() -> Any:
    import pyarrow as pa

    types = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_()}
    fields = (part.split() for part in SCHEMA.split(","))
    return pa.schema([pa.field(name, types[kind]) for name, kind in fields])
