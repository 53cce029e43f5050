"""Compiled columns hold what the plain ones say, are valid Arrow, and cost what the input costs."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from format.golden_log import GoldenLog
from format.strategies import logs, record_arguments
from golden_store import CASES
from penstock._native.columns import COLUMNS as NATIVE_COLUMNS
from penstock._native.columns import Batch, decode_log
from penstock.format.columns import COLUMNS, decode_columns
from penstock.format.record import encode_record
from penstock.format.walk import walk

NOW = 1_700_000_000_000
TIMES = ("bornTimestamp", "storeTimestamp")
SCHEMA = {
    "topic": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "physicalOffset": pa.int64(),
    "msgId": pa.string(),
    "keys": pa.string(),
    "tags": pa.string(),
    "body": pa.binary(),
    "properties": pa.map_(pa.string(), pa.string()),
    "bornTimestamp": pa.timestamp("ms", tz="UTC"),
    "storeTimestamp": pa.timestamp("ms", tz="UTC"),
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "sysFlag": pa.int32(),
    "flag": pa.int32(),
    "reconsumeTimes": pa.int32(),
    "preparedTransactionOffset": pa.int64(),
    "bodyCrc": pa.int32(),
    "size": pa.int32(),
    "uniqueKey": pa.string(),
}


def as_lists(batch: Batch) -> dict[str, list[Any]]:
    """The columns as Arrow shows them, after it found them valid."""
    arrow = pa.record_batch(batch)
    arrow.validate(full=True)
    columns: dict[str, list[Any]] = {}
    for name in arrow.schema.names:
        column = arrow.column(name)
        if name in TIMES:
            column = column.cast(pa.int64())  # not every stored time is a date
        values = column.to_pylist()
        columns[name] = [dict(pairs) for pairs in values] if name == "properties" else values
        if name == "properties":
            assert [list(map(tuple, pairs)) for pairs in values] == [list(m.items()) for m in columns[name]]
    return columns


def record(properties: bytes = b"", topic: str = "T", body: bytes = b"body", offset: int = 0) -> bytes:
    return encode_record(topic, body, properties, queue_offset=7, physical_offset=offset, store_timestamp=NOW)


def run(*properties: bytes) -> bytes:
    """Records with these property strings, end to end from offset 0."""
    log = b""
    for string in properties:
        log += record(string, offset=len(log))
    return log


def test_both_know_the_same_columns() -> None:
    assert list(NATIVE_COLUMNS) == list(COLUMNS) == list(SCHEMA)


def test_the_schema_is_the_promised_one() -> None:
    batch, _, _ = decode_log(b"", 0, 0, 0)
    schema = pa.record_batch(batch).schema
    assert dict(zip(schema.names, schema.types, strict=True)) == SCHEMA
    assert {field.name for field in schema if field.nullable} == {"keys", "tags", "uniqueKey"}
    assert pa.schema(batch) == schema


subsets = st.lists(st.sampled_from(list(COLUMNS)), unique=True, max_size=6)


@given(logs(max_records=10), st.none() | subsets)
def test_columns_agree(log: tuple[int, list[bytes]], columns: list[str] | None) -> None:
    base, records = log
    buffer = b"".join(records)
    expected = decode_columns(walk(buffer, 0, len(buffer), base).records, columns)
    batch, end, stop = decode_log(buffer, 0, len(buffer), base, columns=columns)
    assert (end, stop, batch.num_rows) == (len(buffer), "end", len(records))
    assert as_lists(batch) == expected
    assert list(batch.column_names) == list(expected)


# Property strings as a stranger might write them: names twice, stray separators, bytes that are no UTF-8.
pieces = st.sampled_from(
    [
        b"A",
        b"B",
        b"KEYS",
        b"TAGS",
        b"UNIQ_KEY",
        b"\x01",
        b"\x02",
        b"\xff",
        b"\xe4\xb8",
        b"\xe4\xb8\xad",
        b"\x00",
    ]
)
strange = st.lists(pieces | st.binary(max_size=3), max_size=60).map(b"".join)


@given(st.lists(record_arguments(properties=strange), max_size=4))
@example([])
def test_columns_of_strange_properties_agree(given_records: list[dict[str, Any]]) -> None:
    buffer = b"".join(encode_record(**arguments) for arguments in given_records)
    plain = walk(buffer, 0, len(buffer), 0, check_offset=False)
    batch, end, stop = decode_log(buffer, 0, len(buffer), 0, check_offset=False)
    assert (end, stop) == (plain.end_position, plain.stop)
    assert as_lists(batch) == decode_columns(plain.records)


@given(st.binary(max_size=40))
def test_topics_that_are_no_utf8_agree(topic: bytes) -> None:
    buffer = record(topic="t" * len(topic)).replace(b"t" * len(topic) + b"\0\0", topic + b"\0\0")
    batch, _, stop = decode_log(buffer, 0, len(buffer), 0)
    assert stop == "end"
    assert as_lists(batch)["topic"] == [topic.decode("utf-8", "replace")]


@given(
    logs(max_records=3),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=8),
    st.booleans(),
)
def test_damaged_runs_end_where_the_walk_ends(
    log: tuple[int, list[bytes]], damage: list[tuple[int, int]], check_crc: bool
) -> None:
    base, records = log
    buffer = bytearray(b"".join(records) + bytes(8))
    for position, value in damage:
        buffer[position % len(buffer)] = value
    plain = walk(buffer, 0, len(buffer), base, check_crc=check_crc, check_torn=True)
    batch, end, stop = decode_log(buffer, 0, len(buffer), base, check_crc=check_crc, check_torn=True)
    assert (end, stop) == (plain.end_position, plain.stop)
    assert as_lists(batch) == decode_columns(plain.records)


@given(st.binary(max_size=400), st.integers(0, 400), st.integers(0, 400))
def test_noise_is_never_read_past_its_end(noise: bytes, start: int, end: int) -> None:
    if not start <= end <= len(noise):
        with pytest.raises(ValueError, match="outside"):
            decode_log(noise, start, end, 0)
        return
    plain = walk(noise, start, end, 0)
    batch, position, stop = decode_log(noise, start, end, 0)
    assert (batch.num_rows, position, stop) == (len(plain.records), plain.end_position, plain.stop)


@pytest.mark.parametrize("first", [1, 15, 16, 17, 40, 4000])
def test_of_equal_names_the_last_value_stands_in_the_first_place(first: int) -> None:
    names = [f"n{number:05}" for number in range(first)]
    pairs = [(name, "old") for name in names] + [(name, f"new-{name}") for name in reversed(names[::2])]
    log = run(b"".join(f"{name}\x01{value}\x02".encode() for name, value in pairs)[:32767])
    batch, _, _ = decode_log(log, 0, len(log), 0)
    assert as_lists(batch) == decode_columns(walk(log, 0, len(log), 0).records)
    assert as_lists(batch)["properties"][0]["n00000"] in ("old", "new-n00000")


def test_missing_properties_are_null_and_an_empty_string_is_an_empty_map() -> None:
    log = run(b"", b"KEYS\x01k\x02", b"TAGS\x01\x02KEYS\x01a b\x02UNIQ_KEY\x01u", b"")
    columns = as_lists(decode_log(log, 0, len(log), 0)[0])
    assert columns["keys"] == [None, "k", "a b", None]
    assert columns["tags"] == [None, None, None, None]
    assert columns["uniqueKey"] == [None, None, "u", None]
    assert columns["properties"] == [{}, {"KEYS": "k"}, {"KEYS": "a b", "UNIQ_KEY": "u"}, {}]


def test_a_run_is_cut_into_batches_without_a_gap() -> None:
    log = run(*[b"KEYS\x01k%d\x02" % number for number in range(1000)])
    whole = decode_columns(walk(log, 0, len(log), 0).records)
    for limits in (
        {"max_rows": 7},
        {"max_bytes": 1000},
        {"max_bytes": 1},
        {"max_rows": 64, "max_bytes": 6000},
    ):
        found: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        position, stop = 0, "limit"
        while stop == "limit":
            batch, after, stop = decode_log(log, position, len(log), 0, **limits)
            assert 0 < batch.num_rows <= limits.get("max_rows", 1000)
            assert after - position <= max(limits.get("max_bytes", 1 << 20), 120)
            for name, values in as_lists(batch).items():
                found[name] += values
            position = after
        assert (stop, position) == ("end", len(log))
        assert found == whole


def test_a_batch_may_be_exported_often_and_outlive_its_maker() -> None:
    log = run(b"KEYS\x01k\x02", b"A\x01b\x02")
    batch, _, _ = decode_log(log, 0, len(log), 0)
    tables = [pa.record_batch(batch) for _ in range(3)]
    kept = tables[0].column("properties")
    expected = as_lists(batch)
    del batch, tables
    gc.collect()
    assert [dict(pairs) for pairs in kept.to_pylist()] == expected["properties"]


def test_an_export_may_be_dropped_on_another_thread_and_unused() -> None:
    log = run(*[b"KEYS\x01k\x02"] * 100)
    batch, _, _ = decode_log(log, 0, len(log), 0)
    capsules = [batch.__arrow_c_array__() for _ in range(50)]
    tables = [pa.record_batch(batch) for _ in range(50)]
    thread = threading.Thread(target=lambda: (capsules.clear(), tables.clear()))
    thread.start()
    thread.join()
    assert as_lists(batch)["keys"] == ["k"] * 100


def test_a_wrong_projection_is_refused() -> None:
    with pytest.raises(ValueError, match="no column 'nope'"):
        decode_log(b"", 0, 0, 0, columns=["topic", "nope"])
    with pytest.raises(ValueError, match="twice"):
        decode_log(b"", 0, 0, 0, columns=["topic", "topic"])
    with pytest.raises(ValueError, match="at least one row"):
        decode_log(b"", 0, 0, 0, max_rows=0)


def test_no_columns_still_count_the_rows() -> None:
    log = run(b"", b"", b"")
    batch, _, _ = decode_log(log, 0, len(log), 0, columns=[])
    assert (batch.num_rows, len(batch), batch.column_names) == (3, 3, ())


def test_lengths_that_lie_allocate_nothing() -> None:
    lying = bytearray(record())
    lying[0:4] = (1 << 27).to_bytes(4, "big")
    batch, end, stop = decode_log(lying, 0, len(lying), 0)
    assert (batch.num_rows, end, stop) == (0, 0, "short")
    lying = bytearray(record())
    lying[84:88] = (0x7FFFFFF0).to_bytes(4, "big")  # body length
    batch, end, stop = decode_log(lying, 0, len(lying), 0)
    assert (batch.num_rows, end, stop) == (0, 0, "length")
    assert batch.nbytes < 200


def test_malformed_text_grows_no_more_than_threefold() -> None:
    log = run(b"A\x01" + b"\xff" * 30000 + b"\x02")
    batch, _, _ = decode_log(log, 0, len(log), 0)
    assert as_lists(batch)["properties"] == [{"A": "�" * 30000}]
    assert batch.nbytes < 3 * len(log) + 1000


@pytest.mark.parametrize("golden_log", CASES, indirect=True)
def test_columns_of_golden_logs_agree(golden_log: GoldenLog) -> None:
    by_property = bool(golden_log.manifest["config"].get("forceVerifyPropCRC"))
    for base, data, plain in golden_log.walks:
        batch, end, stop = decode_log(data, 0, len(data), base, check_property_crc=by_property)
        assert (end, stop) == (plain.end_position, plain.stop)
        assert as_lists(batch) == decode_columns(plain.records)
