"""Compiled and plain encoder make the same bytes of rows; staged records are found again in a log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._native import staged
from penstock._native.staged import COLUMNS, RecordEncoder
from penstock.format.record import decode_record
from penstock.format.staged import encode_row, queue_of_key, record_note, row_message
from penstock.message.host import pack_host

NOW = 1_700_000_000_000
HOST = "127.0.0.1:10911"
QUEUES = 4
TYPES = {
    "topic": pa.string(),
    "body": pa.binary(),
    "keys": pa.string(),
    "tags": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "queueId": pa.int32(),
    "orderKey": pa.string(),
    "uniqKey": pa.string(),
    "flag": pa.int32(),
    "sysFlag": pa.int32(),
    "bornTimestamp": pa.timestamp("us", tz="UTC"),
}
LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
# What asks the store for more than keeping the message stops the compiled encoder; it is not told here.
words = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=12
).filter(lambda text: text not in ("DELAY",))
rows = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["a", "orders", "%RETRY%group", "x" * 127, "ü" * 70, None]),
        "body": st.none() | st.binary(max_size=60),
        "keys": st.none() | st.text(alphabet="abü ", max_size=8),
        "tags": st.none() | st.text(alphabet="ab", max_size=4),
        "properties": st.none()
        | st.dictionaries(
            words | st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "__RMQ.TRANSIENT.x", "__CRC32#"]),
            st.none() | st.text(alphabet="abü", max_size=8),
            max_size=5,
        ),
        "queueId": st.none() | st.integers(0, 9),
        "orderKey": st.none() | st.text(max_size=12),
        "uniqKey": st.none() | st.text(alphabet="0123", max_size=8),
        "flag": st.none() | st.integers(-(2**31), 2**31 - 1),
        "sysFlag": st.none() | st.integers(0, 0xFFFF),
        "bornTimestamp": st.none()
        | st.integers(-(10**15), 10**15).map(
            lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(0, 0, us)
        ),
    }
)


def encoder(**options: Any) -> RecordEncoder:
    settings = {"max_body": 1 << 22, "max_record": (1 << 22) + 65536, "queue_count": QUEUES}
    return RecordEncoder(
        pack_host(HOST), unique_prefix=bytes(range(10)), default_topic=b"default", **{**settings, **options}
    )


def batch_of(given_rows: list[dict[str, Any]], *, large: bool = False, names: list[str] | None = None) -> Any:
    columns = []
    for name in names or TYPES:
        kind = LARGE.get(TYPES[name], TYPES[name]) if large else TYPES[name]
        values = [row[name] for row in given_rows]
        if name == "properties":
            values = [None if value is None else list(value.items()) for value in values]
        columns.append(pa.array(values, kind))
    return pa.record_batch(columns, names or list(TYPES))


def encode(batch: Any, with_encoder: RecordEncoder) -> list[tuple[tuple[str, int], bytes]]:
    """Every row's queue and record."""
    return encode_noted(batch, with_encoder)[0]


def encode_noted(
    batch: Any, with_encoder: RecordEncoder
) -> tuple[list[tuple[tuple[str, int], bytes]], list[int]]:
    """Every row's queue and record, and the notes of all."""
    with_encoder.begin(batch, batch.schema.names)
    while (code := with_encoder.run(NOW)) != staged.DONE:
        assert code == staged.NEED_QUEUE
        with_encoder.add_queue(*with_encoder.wanted)
    slots, data = map(bytes, with_encoder.peek())
    notes = list(memoryview(bytes(with_encoder.notes)).cast("i"))
    with_encoder.clear()
    assert with_encoder.size == 0
    records, at = [], 0
    for slot in memoryview(slots).cast("i"):
        size = int.from_bytes(data[at : at + 4], "big")
        records.append((with_encoder.queues[slot], data[at : at + size]))
        at += size
    assert at == len(data)
    return records, notes


@given(st.lists(rows, max_size=12), st.booleans(), st.integers(0, 3), st.integers(0, 3))
def test_compiled_rows_are_the_plain_ones(
    given_rows: list[dict[str, Any]], large: bool, skipped: int, first_queue: int
) -> None:
    batch = batch_of(given_rows, large=large).slice(skipped)
    found = encode(batch, encoder(first_queue=first_queue))
    turn = first_queue
    assert len(found) == len(given_rows[skipped:])
    for row, (queue, record) in zip(given_rows[skipped:], found, strict=True):
        if row["queueId"] is not None:
            queue_id = row["queueId"]
        elif row["orderKey"] is not None:
            queue_id = queue_of_key(row["orderKey"], QUEUES)
        else:
            queue_id, turn = turn, (turn + 1) % QUEUES
        unique = decode_record(record).properties.get("UNIQ_KEY", "")
        message = row_message(row, topic="default", queue_id=queue_id, unique_key=unique, now=NOW)
        assert record == encode_row(message, HOST)
        assert queue == (message.topic, queue_id)


@given(st.lists(rows, max_size=12))
def test_notes_are_what_the_plain_dispatcher_would_find(given_rows: list[dict[str, Any]]) -> None:
    native = encoder()
    native.noted = True
    found, notes = encode_noted(batch_of(given_rows), native)
    expected = [
        record_note(record, looked_at=row["properties"] is not None)
        for row, (_, record) in zip(given_rows, found, strict=True)
    ]
    assert notes == [number for note in expected for number in note]
    assert len(native.notes) == 0, "notes go with their records"


@pytest.mark.parametrize("count", [0, 14, 15, 40])
def test_a_record_with_many_keys_is_left_to_whoever_dispatches_it(count: int) -> None:
    native = encoder()
    native.noted = True
    row = {**dict.fromkeys(TYPES), "keys": " ".join(f"k{n}" for n in range(count)), "tags": "t"}
    found, notes = encode_noted(batch_of([row] * 3000), native)
    assert notes == [number for _, record in found for number in record_note(record)]
    assert (notes[1] == -1) == (count > 14)


def test_an_encoder_that_was_not_asked_for_notes_leaves_all_records_to_the_dispatcher() -> None:
    _, notes = encode_noted(batch_of([dict.fromkeys(TYPES)] * 2), encoder())
    assert notes == [0, -1] * 2


def test_generated_keys_never_repeat_even_within_one_millisecond() -> None:
    row = dict.fromkeys(TYPES)
    batch = batch_of([{**row, "body": b"x", "topic": "a"}] * 70_000, names=["topic", "body"])
    native = encoder()
    keys = {decode_record(record).unique_key for _ in range(2) for _, record in encode(batch, native)}
    assert len(keys) == 140_000 and {len(key or "") for key in keys} == {32}


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"topic": "a", "body": b"x" * 101}, staged.LONG_BODY),
        ({"topic": "a", "body": b"x", "properties": {"k": "v" * 40_000}}, staged.LONG_PROPERTIES),
        ({"topic": "a", "body": b"", "properties": {"k": "v" * 5000}}, staged.LONG_RECORD),
        ({"topic": "a", "body": b"", "properties": {"a\x01b": "v"}}, staged.SEPARATOR),
        ({"topic": "a", "body": b"", "keys": "a\x02"}, staged.SEPARATOR),
        ({"topic": "a", "body": b"", "queueId": -1}, staged.BAD_QUEUE),
        ({"topic": "a", "body": b"", "queueId": 65536}, staged.BAD_QUEUE),
        ({"topic": "a", "body": b"", "properties": {"DELAY": "3"}}, staged.SPECIAL),
        ({"topic": "a", "body": b"", "properties": {"TIMER_DELIVER_MS": "3"}}, staged.SPECIAL),
        ({"topic": "a", "body": b"", "properties": {"INNER_NUM": "3"}}, staged.SPECIAL),
    ],
)
def test_row_that_cannot_be_a_record_stops_the_run(row: dict[str, Any], code: int) -> None:
    native = encoder(max_body=100, max_record=4000)
    native.add_queue(b"a", 0)
    native.begin(batch_of([{**dict.fromkeys(TYPES), **row}]), list(TYPES))
    assert native.run(NOW) == code
    assert native.row == 0 and native.size == 0


def test_row_without_any_topic_is_refused() -> None:
    native = RecordEncoder(pack_host(HOST), 100, 4000, bytes(10), 1)
    native.begin(batch_of([dict.fromkeys(TYPES)]), list(TYPES))
    assert native.run(NOW) == staged.NO_TOPIC


def test_columns_of_other_types_are_refused() -> None:
    native = encoder()
    with pytest.raises(TypeError, match="queueId"):
        native.begin(pa.record_batch({"queueId": ["a"]}), ["queueId"])
    with pytest.raises(TypeError, match="body"):
        native.begin(pa.record_batch({"body": pa.array(["a"], pa.string_view())}), ["body"])
    assert len(COLUMNS) == 13
