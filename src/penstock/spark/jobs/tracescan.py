"""What a task of a trace looks for in its split: records with certain names, and ends of transactions.

A piece of the log in which none of the names occurs as bytes is passed over without looking at its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock._native.columns import decode_log
from penstock.message.ids import decode_message_id
from penstock.message.properties import PROPERTY_DLQ_ORIGIN_MESSAGE_ID, PROPERTY_ORIGIN_MESSAGE_ID
from penstock.message.topic import TRANS_OP_HALF_TOPIC
from penstock.spark.logreader import LogReader

if TYPE_CHECKING:
    import pyarrow

    from penstock.spark.planning import LogSplit
    from penstock.store.scan import Run

SCHEMA = "physicalOffset bigint, record binary"
_COLUMNS = ("physicalOffset", "size", "keys", "uniqueKey", "msgId", "properties")


@dataclass(frozen=True, slots=True)
class Names:
    """What is looked for. Keys are compared with ``key`` only; ``ids`` are unique keys and message ids."""

    key: str | None
    ids: tuple[str, ...]

    @property
    def all(self) -> list[str]:
        return [*([self.key] if self.key is not None else []), *self.ids]


def find_named(split: LogSplit, names: Names) -> Iterator[tuple[int, bytes]]:
    """Records of a split that carry one of the names: as a key, unique key, message id, or id of their
    origin.
    """
    texts = [name.encode() for name in names.all]
    places = [place for name in names.all if (place := _place_of(name)) is not None]

    def is_near(data: bytes, run: Run) -> bool:
        return any(text in data for text in texts) or any(run.base <= p < run.base + run.end for p in places)

    yield from _matching(split, _COLUMNS, is_near, lambda batch: _named(batch, names))


def find_ends(split: LogSplit, halves: Sequence[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    """Op messages of a split that end one of the half messages, each named by queue id and queue offset."""
    topic = TRANS_OP_HALF_TOPIC.encode()
    columns = ("physicalOffset", "size", "topic", "queueId", "tags", "body")
    yield from _matching(
        split, columns, lambda data, run: topic in data, lambda batch: _ending(batch, halves)
    )


def _matching(
    split: LogSplit,
    columns: Sequence[str],
    is_near: Callable[[bytes, Run], bool],
    judge: Callable[[pyarrow.RecordBatch], Any],
) -> Iterator[tuple[int, bytes]]:
    import pyarrow as pa

    for run in LogReader(split, check_crc=False).runs():
        data = bytes(run.view[: run.end])
        at = 0 if is_near(data, run) else run.end
        while at < run.end:
            decoded, end, _ = decode_log(data, at, run.end, run.base, columns=columns, check_crc=False)
            batch = pa.record_batch(decoded)
            found = batch.select(["physicalOffset", "size"]).filter(judge(batch))
            for offset, size in zip(*(column.to_pylist() for column in found.columns), strict=True):
                yield offset, data[offset - run.base : offset - run.base + size]
            at = end


def _place_of(name: str) -> int | None:
    """The physical offset that a message id names. (A unique key may look like one: that costs a look.)"""
    try:
        return decode_message_id(name)[1]
    except ValueError:
        return None


def _named(batch: pyarrow.RecordBatch, names: Names) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(names.all, pa.string())
    properties = batch.column("properties")
    columns = [
        batch.column("uniqueKey"),
        batch.column("msgId"),
        pc.map_lookup(properties, PROPERTY_ORIGIN_MESSAGE_ID, "last"),
        pc.map_lookup(properties, PROPERTY_DLQ_ORIGIN_MESSAGE_ID, "last"),
    ]
    found = pa.repeat(False, batch.num_rows)
    for column in columns:
        found = pc.or_(found, pc.is_in(column, value_set=wanted))
    if names.key is not None:
        framed = pc.binary_join_element_wise(" ", batch.column("keys"), " ", "")
        found = pc.or_(found, pc.fill_null(pc.match_substring(framed, f" {names.key} "), False))
    return found


def _ending(batch: pyarrow.RecordBatch, halves: Sequence[tuple[int, int]]) -> Any:
    """Op messages are few beside the rest; only they are looked at one by one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ops = pc.and_(
        pc.equal(batch.column("topic"), TRANS_OP_HALF_TOPIC),
        pc.fill_null(pc.equal(batch.column("tags"), "d"), False),
    )
    framed = pc.binary_join_element_wise(b",", batch.column("body"), b",", b"")
    found = pa.repeat(False, batch.num_rows)
    for queue_id, offset in halves:
        named = pc.and_(
            pc.equal(batch.column("queueId"), queue_id), pc.match_substring(framed, f",{offset},")
        )
        found = pc.or_(found, pc.and_(ops, named))
    return found
