"""The compiled selection and decoder make the rows that the plain ones make."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock._native.columns import SPARK_COLUMNS
from penstock._native.rows import Decoder, unit_spans
from penstock._native.selection import Selection
from penstock.format.batch import BatchBlock, encode_client_batch
from penstock.format.columns import decode_columns
from penstock.format.queueunit import QueueUnit, encode_queue_unit
from penstock.format.record import encode_record
from penstock.format.rows import Choice, select_rows
from penstock.format.walk import walk
from penstock.message.properties import encode_properties

NOW = 1_700_000_000_000
TOPICS = ["a", "b", "ü", "PENSTOCK_FILLER"]
FLAGS = [0, 0x4, 0x8, 0xC, 0x80, 0x81, 0x10, 0x20]

properties = st.fixed_dictionaries(
    {},
    optional={
        "TAGS": st.sampled_from(["red", "green", "größe"]),
        "KEYS": st.sampled_from(["x", "x y", " y  z ", "yy"]),
        "UNIQ_KEY": st.sampled_from(["u1", "x"]),
        "INNER_BASE": st.sampled_from(["3", "-1", "many"]),
        "INNER_NUM": st.sampled_from(["2", "0", "40000"]),
        "other": st.just("value"),
    },
)
blocks = st.lists(
    st.builds(BatchBlock, st.binary(max_size=9), properties.map(encode_properties), st.integers(0, 9)),
    max_size=4,
)
bodies = st.one_of(st.binary(max_size=40), blocks.map(encode_client_batch))


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    log = b""
    for _ in range(draw(st.integers(0, 12))):
        log += encode_record(
            draw(st.sampled_from(TOPICS)),
            draw(bodies),
            encode_properties(draw(properties)),
            queue_id=draw(st.integers(0, 1)),
            sys_flag=draw(st.sampled_from(FLAGS)),
            queue_offset=draw(st.integers(0, 6)),
            physical_offset=len(log),
            store_timestamp=NOW + draw(st.integers(0, 5)),
        )
    return log


extents = st.tuples(st.integers(0, 4), st.integers(0, 8), st.integers(0, 300), st.integers(0, 3000))
choices = st.builds(
    dict,
    queues=st.none()
    | st.dictionaries(st.tuples(st.sampled_from(TOPICS), st.integers(0, 1)), extents, max_size=4),
    topics=st.none() | st.lists(st.sampled_from(TOPICS), unique=True, max_size=2),
    matches=st.none() | st.sampled_from([lambda topic: topic > "a", lambda topic: False]),
    queued=st.booleans(),
    tags=st.none() | st.lists(st.sampled_from(["red", "größe", "blue"]), unique=True, max_size=2),
    keys=st.none() | st.lists(st.sampled_from(["x", "y", "z", "u1", "nobody"]), unique=True, max_size=3),
    since=st.none() | st.integers(NOW, NOW + 5),
    until=st.none() | st.integers(NOW, NOW + 6),
)


def as_lists(batches: list[Any]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in SPARK_COLUMNS}
    for batch in batches:
        arrow = pa.record_batch(batch)
        arrow.validate(full=True)
        for name in SPARK_COLUMNS:
            column = arrow.column(name)
            assert arrow.schema.field(name).nullable
            if name.endswith("Timestamp"):
                columns[name] += [value // 1000 for value in column.cast(pa.int64()).to_pylist()]
            elif name == "properties":
                columns[name] += [dict(pairs) for pairs in column.to_pylist()]
            else:
                columns[name] += column.to_pylist()
    return columns


@given(logs(), choices, st.booleans(), st.integers(1, 5))
def test_rows_agree(log: bytes, chosen: dict[str, Any], unwrap: bool, most: int) -> None:
    records = walk(log, 0, len(log), 0).records
    expected = decode_columns(select_rows(records, Choice(**chosen), unwrap=unwrap))
    expected["uniqKey"] = expected.pop("uniqueKey")
    queues = chosen["queues"]
    listed = None if queues is None else [(*key, *extent) for key, extent in queues.items()]
    selection = Selection(**{**chosen, "queues": listed})
    decoder = Decoder(SPARK_COLUMNS, selection=selection, max_rows=most, unwrap=unwrap)
    batches, at = [], 0
    while at < len(log) or len(decoder):
        at = decoder.feed(log, at, len(log), 0)
        batches.append(decoder.take()[0])
    assert as_lists(batches) == expected


@given(logs(), st.integers(1, 5))
def test_rows_of_units_are_the_rows_of_their_records(log: bytes, most: int) -> None:
    records = walk(log, 0, len(log), 0).records
    kept = [record for record in records if not record.sys_flag & 0x80 and record.topic != "PENSTOCK_FILLER"]
    units = b"".join(encode_queue_unit(QueueUnit(r.physical_offset, r.total_size, 0)) for r in kept)
    decoder = Decoder(SPARK_COLUMNS, max_rows=most)
    batches = []
    for first, last, begin, end in unit_spans(units, 20, 50, 400, 1 << 30):
        at = first
        while at < last:
            view = log[begin:end]
            at, stop = decoder.feed_units(view, begin, units, at, last, 20, "given", 7, 100, 100, 10_000)
            if stop == "limit":
                batches.append(decoder.take()[0])
            else:
                assert stop == "end"
    batches.append(decoder.take()[0])
    found = as_lists(batches)
    expected = decode_columns(kept)
    assert found["body"] == expected["body"] and found["physicalOffset"] == expected["physicalOffset"]
    assert found["queueOffset"] == list(range(100, 100 + len(kept)))
    assert set(found["topic"]) <= {"given"} and set(found["queueId"]) <= {7}


def test_compressed_rows_are_told() -> None:
    log = b""
    for flag in (0, 0x1, 0x201, 0x100):
        log += encode_record(
            "t", b"b", b"", sys_flag=flag, queue_offset=0, physical_offset=len(log), store_timestamp=NOW
        )
    decoder = Decoder(["body"])
    assert decoder.feed(log, 0, len(log), 0) == len(log)
    assert decoder.take()[1] == [(1, 0), (2, 2)]
    headers = Decoder(["size"])
    headers.feed(log, 0, len(log), 0)
    assert headers.take()[1] == []
