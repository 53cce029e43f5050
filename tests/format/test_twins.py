"""The compiled functions do what the plain ones do, byte for byte."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from format.golden_log import GoldenLog
from format.strategies import hosts, ints, logs, longs, words
from golden_store import CASES
from penstock._native.append import Appender
from penstock._native.dispatch import DONE, INDEX_FULL, NEED_QUEUE, Dispatch
from penstock._native.encode import Encoder
from penstock._native.flush import Flusher
from penstock._native.index import Index
from penstock._native.index import key_hash as native_key_hash
from penstock._native.mapping import Mapping
from penstock._native.queue import Queue
from penstock._native.record import crc32 as native_crc32
from penstock._native.record import string_hash
from penstock._native.record import walk as native_walk
from penstock._native.signal import Signal
from penstock._native.stored import Slab, message_at
from penstock.format.crc import crc32
from penstock.format.dispatch import dispatch_run
from penstock.format.indexfile import IndexOracle, index_file_size
from penstock.format.javahash import java_hash, key_hash
from penstock.format.queueunit import parse_delay_levels
from penstock.format.record import decode_record, encode_blank, encode_message, encode_record
from penstock.format.walk import walk
from penstock.message import Message
from penstock.message.host import pack_host, parse_host

OWN_HOST = "10.1.2.3:10911"
NOW = 1_700_000_000_000


@given(st.text())
def test_hashes_agree(text: str) -> None:
    data = text.encode("utf-8", "ignore")
    assert string_hash(data) == java_hash(data.decode())
    assert native_key_hash(data) == key_hash(data.decode())


@given(st.binary(max_size=60))
def test_hashes_of_broken_text_agree(data: bytes) -> None:
    assert string_hash(data) == java_hash(data.decode("utf-8", "replace"))


@given(st.one_of(st.binary(max_size=200), st.binary(min_size=900, max_size=5000)))
def test_crcs_agree(data: bytes) -> None:
    assert native_crc32(data) & 0x7FFFFFFF == crc32(data)


@st.composite
def damaged_logs(draw: st.DrawFn) -> tuple[int, bytes]:
    """A base offset and a log with a little damage at its end, or none."""
    base, records = draw(logs(max_records=4))
    buffer = bytearray(b"".join(records))
    kind = draw(st.sampled_from(["whole", "bytes", "zeros", "cut", "blank", "noise", "longer"]))
    if kind == "bytes" and buffer:
        for _ in range(draw(st.integers(1, 3))):
            buffer[draw(st.integers(0, len(buffer) - 1))] = draw(st.integers(0, 255))
    elif kind == "zeros" and buffer:
        start = draw(st.integers(0, len(buffer) - 1))
        end = draw(st.sampled_from([start + 1, start + 40, start + 512, len(buffer)]))
        buffer[start:end] = bytes(min(end, len(buffer)) - start)
    elif kind == "cut":
        del buffer[draw(st.integers(0, len(buffer))) :]
    elif kind == "blank":
        buffer += encode_blank(draw(st.integers(8, 100))) + bytes(draw(st.integers(0, 100)))
    elif kind == "noise":
        buffer += draw(st.binary(max_size=200))
    elif kind == "longer" and records:
        last = len(buffer) - len(records[-1])
        buffer[last : last + 4] = (len(records[-1]) + draw(st.integers(-20, 20))).to_bytes(4, "big")
        buffer += bytes(20)
    return base, bytes(buffer)


@given(damaged_logs(), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_walks_agree(
    log: tuple[int, bytes], check_crc: bool, check_offset: bool, check_property_crc: bool, check_torn: bool
) -> None:
    base, buffer = log
    checks = {
        "check_crc": check_crc or check_property_crc,
        "check_offset": check_offset,
        "check_property_crc": check_property_crc,
        "check_torn": check_torn,
    }
    plain = walk(buffer, 0, len(buffer), base, **checks)
    compiled = native_walk(buffer, 0, len(buffer), base, **checks)
    assert (compiled.records, compiled.end_position, compiled.stop) == (
        len(plain.records),
        plain.end_position,
        plain.stop,
    )


@pytest.mark.parametrize("boundary", range(-3, 4))
@pytest.mark.parametrize("topic", ["t", "topic", "t" * 126])
@pytest.mark.parametrize("properties", [b"", b"A\x01b\x02", b"A\x01" + b"v" * 700 + b"\x02"])
def test_walks_agree_on_every_lost_sector(boundary: int, topic: str, properties: bytes) -> None:
    """Sector edges on both sides of topic, properties' length and properties; each sector lost once."""
    edge = 1024 - 89 + boundary
    for shift in (0, len(topic), len(topic) + 2):
        record = encode_record(
            topic, b"b" * (edge - shift), properties, queue_offset=1, physical_offset=0, store_timestamp=NOW
        )
        for lost in [None, *range(0, len(record), 512)]:
            buffer = bytearray(record)
            if lost is not None:
                end = min(lost + 512, len(record))
                buffer[lost:end] = bytes(end - lost)
            plain = walk(buffer, 0, len(buffer), 0, check_torn=True)
            compiled = native_walk(buffer, 0, len(buffer), 0, check_torn=True)
            assert (compiled.end_position, compiled.stop) == (plain.end_position, plain.stop)
            assert (plain.stop == "end") == (bytes(buffer) == record)


@pytest.mark.parametrize(
    "host", ["[::1.2.3.4]:5", "[::ffff:1.2.3.4]:5", "[::]:0", "[::1]:65535", "[fe80:0:0:1::]:7"]
)
def test_hosts_are_written_the_same_way(host: str) -> None:
    record = encode_record(
        "T", b"", born_host=host, store_host=host, queue_offset=0, physical_offset=0, store_timestamp=NOW
    )
    fields, message = decode_record(record), message_at(Slab(record), 0)
    assert (message.born_host, message.store_host) == (fields.born_host, fields.store_host)
    assert parse_host(message.born_host) == parse_host(host)


def test_fields_of_a_stored_message_have_the_same_value_by_any_way_to_their_name() -> None:
    """Tags of all lengths, some with the same ending: equal ones are shared, others never."""
    tags = [f"{head}{tail}" for head in ("", "a", "b", "é" * 9, "x" * 40) for tail in ("1", "2", "end")] * 2
    for tag in tags:
        properties = f"TAGS\x01{tag}\x02KEYS\x01k\x02".encode()
        record = encode_record("T", b"b", properties, queue_offset=7, physical_offset=0, store_timestamp=NOW)
        message = message_at(Slab(record), 0)
        assert (message.tags, message.keys, message.properties) == (tag, "k", {"TAGS": tag, "KEYS": "k"})
        for name in ("topic", "body", "tags", "keys", "properties", "queue_offset", "store_timestamp"):
            made = "".join(list(name))  # not the object that is in compiled code
            assert getattr(message, made) == getattr(message, name)
            assert type(message).__dict__[name].__get__(message) == getattr(message, name)
    with pytest.raises(AttributeError):
        message.nothing  # noqa: B018


@given(logs())
def test_stored_messages_agree_with_decoded_records(log: tuple[int, list[bytes]]) -> None:
    _, records = log
    buffer = b"".join(records)
    slab = Slab(buffer)
    position = 0
    for record in records:
        fields, message = decode_record(buffer, position), message_at(slab, position)
        assert message.size == fields.total_size
        for name in (
            "topic",
            "queue_id",
            "queue_offset",
            "physical_offset",
            "sys_flag",
            "flag",
            "body_crc",
            "born_timestamp",
            "store_timestamp",
            "reconsume_times",
            "prepared_transaction_offset",
            "born_host",
            "store_host",
            "message_id",
            "properties",
            "properties_bytes",
            "tags",
            "keys",
            "unique_key",
            "body",
        ):
            assert getattr(message, name) == getattr(fields, name), name
        assert bytes(message.raw) == record
        position += len(record)


keys = st.sampled_from(["T#a", "T#b", "T#Aa", "T#BB", "polygenelubricants"])


@given(
    st.lists(st.tuples(keys, st.integers(0, 1 << 40), st.integers(-5, 1 << 45)), max_size=12),
    st.integers(1, 4),
    st.tuples(st.integers(0, 1 << 45), st.integers(0, 1 << 45)),
)
def test_index_files_agree(puts: list[tuple[str, int, int]], slots: int, times: tuple[int, int]) -> None:
    plain = IndexOracle(slots, 8)
    memory = bytearray(index_file_size(slots, 8))
    compiled = Index(memory, slots, 8)
    for key, offset, timestamp in puts:
        assert compiled.put(key_hash(key), offset, timestamp) == plain.put_key(key, offset, timestamp)
    assert compiled.count == plain.header.index_count
    if puts:
        assert memory == plain.data
    for key in ("T#a", "T#b", "T#Aa", "polygenelubricants"):
        for limit in (1, 64):
            expected = plain.select(key, limit, *sorted(times))
            assert compiled.select(key_hash(key), limit, *sorted(times)) == expected


@given(st.binary(min_size=224, max_size=224), keys, longs, longs)
def test_searches_of_damaged_index_files_agree(data: bytes, key: str, begin: int, end: int) -> None:
    head = IndexOracle(6, 8).data[:40]
    memory = bytearray(head[:36] + (7).to_bytes(4, "big")) + data[40:]
    plain, compiled = IndexOracle(6, 8, memory), Index(memory, 6, 8)
    assert compiled.select(key_hash(key), 64, begin, end) == plain.select(key, 64, begin, end)


topics = st.sampled_from(["T", "主题", "SCHEDULE_TOPIC_XXXX", "%RETRY%" + "g" * 150, "%RETRY%" + "组" * 50])
names = st.one_of(words, st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "WAIT", "a"]))
values = st.one_of(words, st.sampled_from(["1", "18", "99", "-1", "x", "false"]))
messages = st.builds(
    Message,
    topics,
    st.one_of(
        st.binary(max_size=50), st.binary(max_size=50).map(bytearray), st.binary(max_size=9).map(memoryview)
    ),
    tags=st.one_of(st.none(), st.just(""), words),
    keys=st.one_of(st.none(), st.sampled_from(["a", "a b", " a  b ", " ", "键 k"]), words),
    queue_id=st.integers(0, 2),
    properties=st.one_of(st.none(), st.dictionaries(names, values, max_size=4)),
    unique_key=st.one_of(st.none(), words),
    flag=ints,
    sys_flag=st.sampled_from([0, 1, 2, 4, 8, 0xC, 0x701, 0x30]),
    born_timestamp=longs,
    born_host=st.one_of(st.none(), hosts),
    store_host=st.one_of(st.none(), hosts),
    reconsume_times=ints,
    prepared_transaction_offset=longs,
    delay_level=st.sampled_from([0, 0, 1, 18, 25]),
    wait=st.booleans(),
    raw_properties=st.one_of(
        st.none(), st.none(), st.sampled_from([b"", b"a\x01b", b"TAGS\x01t\x02KEYS\x01k l"])
    ),
)


class Log:
    """The compiled way into a log of one file in memory."""

    def __init__(self, size: int = 1 << 16, *, base: int = 0, property_crc: bool = False) -> None:
        self.memory = bytearray(size)
        self.queues: dict[tuple[str, int], Queue] = {}
        encoder = Encoder(Message, self.find_queue, parse_host, pack_host(OWN_HOST), 1 << 20, bytes(10))
        encoder.generate_unique_key = False
        encoder.property_crc = property_crc
        signal = Signal()
        self.appender = Appender(encoder, Flusher(signal), signal, lambda: "no further file")
        self.mapping = Mapping.over(self.memory, base)
        self.appender.use_file(self.mapping)

    def find_queue(self, topic: str, queue_id: int) -> Queue:
        return self.queues.setdefault((topic, queue_id), Queue(topic, queue_id, 1 << 16))

    @property
    def written(self) -> bytes:
        return bytes(self.memory[: self.mapping.wrote_position])


@given(st.lists(messages, max_size=6), st.booleans(), st.booleans())
def test_appended_records_have_the_bytes_of_encoded_ones(
    given_messages: list[Message], property_crc: bool, together: bool
) -> None:
    log = Log(base=1 << 20, property_crc=property_crc)
    if together:
        log.appender.put_many(given_messages, NOW)
    else:
        for message in given_messages:
            assert log.appender.put(message, NOW).ok
    expected = b""
    counters: dict[tuple[str, int], int] = {}
    for message in given_messages:
        queue = (message.topic, message.queue_id)
        expected += encode_message(
            message,
            queue_offset=counters.get(queue, 0),
            physical_offset=(1 << 20) + len(expected),
            store_timestamp=NOW,
            store_host=OWN_HOST,
            property_crc=property_crc,
        )
        if not message.sys_flag & 4:
            counters[queue] = counters.get(queue, 0) + 1
    assert log.written == expected


def test_a_file_without_room_is_closed_by_a_blank() -> None:
    message = Message("T", b"b" * 100)
    size = len(encode_message(message, queue_offset=0, physical_offset=0, store_timestamp=NOW))
    log = Log(size + 60)
    assert log.appender.put(message, NOW).ok
    assert not log.appender.put(message, NOW).ok
    assert log.memory[size : size + 8] == encode_blank(60)
    assert log.mapping.is_full


class QueueFile:
    """Just enough of a sparse file."""

    def __init__(self) -> None:
        self._file = os.memfd_create("queue")
        os.ftruncate(self._file, 1 << 16)

    def fileno(self) -> int:
        return self._file

    @property
    def content(self) -> bytes:
        return os.pread(self._file, 1 << 16, 0)

    def __del__(self) -> None:
        os.close(self._file)


@given(st.lists(messages, max_size=8))
def test_dispatched_units_and_keys_are_the_plain_ones(given_messages: list[Message]) -> None:
    log = Log()
    log.appender.put_many(given_messages, NOW)
    delays = parse_delay_levels()
    dispatch = Dispatch(delays)
    files: dict[tuple[str, int], QueueFile] = {}
    for key in {(message.topic, message.queue_id) for message in given_messages}:
        files[key] = QueueFile()
        queue = log.find_queue(*key)
        queue.attach(files[key], 0)
        dispatch.add_queue(queue)
    memory = bytearray(index_file_size(5, 200))
    dispatch.indexing = True
    dispatch.use_index(Index(memory, 5, 200))
    assert dispatch.run(log.written, 0, 1 << 30) == DONE

    plain = dispatch_run(log.written, 0, delays=delays)
    units: dict[tuple[str, int], bytes] = dict.fromkeys(files, b"")
    for write in plain.units:
        units[write.topic, write.queue_id] += write.unit
    for key, expected in units.items():
        assert files[key].content == expected.ljust(1 << 16, b"\0")
    index = IndexOracle(5, 200)
    for entry in plain.keys:
        assert index.put_hash(*entry)
    if plain.keys:
        assert memory == index.data
    assert dispatch.position == plain.end_position


def test_a_run_asks_for_what_it_lacks() -> None:
    log = Log()
    log.appender.put(Message("T", b"", keys="a b c", unique_key="u"), NOW)
    dispatch = Dispatch(parse_delay_levels())
    assert dispatch.run(log.written, 0, 1 << 30) == NEED_QUEUE
    queue = log.find_queue("T", 0)
    queue.attach(QueueFile(), 0)
    dispatch.add_queue(queue)
    memories = [bytearray(index_file_size(1, 3)) for _ in range(2)]
    dispatch.indexing = True
    dispatch.use_index(Index(memories[0], 1, 3))
    assert dispatch.run(log.written, 0, 1 << 30) == INDEX_FULL
    second = Index(memories[1], 1, 3)
    second.seed(NOW, 0)
    dispatch.use_index(second)
    assert dispatch.run(log.written, 0, 1 << 30) == DONE
    entries: list[Any] = [key.key_hash for key in dispatch_run(log.written, 0).keys]
    found = [entry[0] for memory in memories for entry in Index(memory, 1, 3).entries()]
    assert found == entries


@pytest.mark.parametrize("golden_log", CASES, indirect=True)
def test_walks_of_golden_logs_agree(golden_log: GoldenLog) -> None:
    by_property = bool(golden_log.manifest["config"].get("forceVerifyPropCRC"))
    for base, data, plain in golden_log.walks:
        compiled = native_walk(data, 0, len(data), base, check_property_crc=by_property, check_torn=True)
        assert (compiled.records, compiled.end_position, compiled.stop) == (
            len(plain.records),
            plain.end_position,
            plain.stop,
        )
        slab = Slab(data)
        for record in plain.records:
            message = message_at(slab, record.physical_offset - base)
            assert message.properties == record.properties
            assert (message.message_id, message.body) == (record.message_id, record.body)
