"""Records appended in bulk are the bytes that putting the same messages writes: log, queues and index."""

from __future__ import annotations

import array
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from store_files import contents

from penstock import Message, StoreConfig
from penstock._native.index import Index
from penstock._native.prepared import Prepared
from penstock.clock import ManualClock
from penstock.errors import DiskFull, MessageRejected
from penstock.format.batch import BatchBlock, encode_client_batch
from penstock.format.staged import encode_row, record_note
from penstock.message.properties import encode_properties
from penstock.store.messagestore import MessageStore
from penstock.store.opening import open_writable

NOW = 1_700_000_000_000
SEGMENT = 16 << 10
CONFIG = StoreConfig(
    mapped_file_size_commit_log=SEGMENT, max_hash_slot_num=100, max_index_num=400, max_message_size=8 << 10
)


def opened(path: Path, config: StoreConfig = CONFIG) -> MessageStore:
    return open_writable(path, config=config, clock=ManualClock(NOW), background=False)


def messages(count: int) -> list[Message]:
    return [
        Message(
            f"topic{n % 3}",
            bytes([n % 256]) * (n * 37 % 900),
            tags=f"tag{n % 5}",
            keys=f"key{n} shared",
            queue_id=n % 2,
            unique_key=f"{n:032X}",
            born_timestamp=NOW - n,
        )
        for n in range(count)
    ]


def runs(batch: list[Message]) -> tuple[bytearray, memoryview, list[tuple[str, int]]]:
    queues = sorted({(message.topic, message.queue_id) for message in batch})
    slots = array.array("i", [queues.index((m.topic, m.queue_id)) for m in batch])
    return bytearray(b"".join(encode_row(m) for m in batch)), memoryview(slots), queues


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_bulk_records_are_the_bytes_of_put_many(tmp_path: Path, size: int) -> None:
    batch = messages(200)  # several segments: records are closed off by blanks
    with opened(tmp_path / "put") as store:
        for message in batch:
            store.put_many([message])
    with opened(tmp_path / "bulk") as store:
        for begin in range(0, len(batch), size):
            store.put_records(*runs(batch[begin : begin + size]))
        store.flush()
    expected, found = contents(tmp_path / "put"), contents(tmp_path / "bulk")
    assert len([name for name in expected if name.startswith("commitlog")]) > 3
    assert found == expected


def client_batch(batch: list[Message]) -> bytes:
    return encode_client_batch(
        BatchBlock(bytes(each.body), each.raw_properties or b"", each.flag) for each in batch
    )


@pytest.mark.parametrize("topic", ["topic", "t" * 127])
@pytest.mark.parametrize("hosts", [("1.2.3.4:5", None), ("[::1]:5", None), ("1.2.3.4:5", "[::2]:6")])
@pytest.mark.parametrize("crc", [False, True])
def test_a_client_batch_is_stored_as_its_messages_are(
    tmp_path: Path, crc: bool, hosts: tuple[str, str | None], topic: str
) -> None:
    config = replace(CONFIG, enabled_append_prop_crc=crc)
    born, own = hosts
    common = Message(
        topic,
        b"",
        queue_id=1,
        sys_flag=8,
        born_timestamp=NOW - 5,
        born_host=born,
        store_host=own,
        reconsume_times=3,
        prepared_transaction_offset=4,
    )
    batches = [
        [
            msgspec.structs.replace(
                common,
                body=bytes([n]) * (n * 37 % 300),
                flag=n - 3,
                raw_properties=encode_properties({"KEYS": f"k{n}", "UNIQ_KEY": f"{number:016X}{n:016X}"})
                if n % 5
                else b"",
            )
            for n in range(10)
        ]
        for number in range(12)
    ]
    with opened(tmp_path / "many", config) as store:
        expected = [store.append_many(batch) for batch in batches]
        store.flush()
    with opened(tmp_path / "batch", config) as store:
        found = [store.append_batch(common, client_batch(batch)) for batch in batches]
        store.flush()
    assert contents(tmp_path / "many") == contents(tmp_path / "batch")
    for results, others in zip(found, expected, strict=True):
        assert results.ok
        places = [(each.queue_offset, each.physical_offset, each.message_id) for each in others]
        assert [(each.queue_offset, each.physical_offset, each.message_id) for each in results] == places
        assert (results.queue_offset, results.end_offset) == (results[0].queue_offset, results[-1].end_offset)
        assert results.message_ids() == ",".join(str(each.message_id) for each in others)


def test_a_damaged_client_batch_is_not_stored_and_refusals_are_told(tmp_path: Path) -> None:
    common = Message("topic", b"")
    good = client_batch([Message("topic", b"x" * 100), Message("topic", b"y")])
    large = client_batch([Message("topic", b"x" * 100), Message("topic", b"y" * (9 << 10))])
    with opened(tmp_path) as store:
        for cut in (1, 30, 130, len(good) - 1):
            with pytest.raises(ValueError):
                store.append_batch(common, good[:cut])
        assert len(store.append_batch(common, b"")) == 0
        refused = store.append_batch(common, large)
        assert [each.status for each in refused] == ["PUT_OK", "MESSAGE_ILLEGAL"]
        with pytest.raises(ValueError):
            refused.message_ids()
        illegal = store.append_batch(Message("../topic", b""), good)
        assert [each.status for each in illegal] == ["MESSAGE_ILLEGAL", "MESSAGE_ILLEGAL"]
        assert (illegal.queue_offset, illegal.end_offset) == (-1, -1)


def test_bulk_records_go_on_where_puts_ended(tmp_path: Path) -> None:
    batch = messages(60)
    with opened(tmp_path) as store:
        store.put_many(batch[:20])
        store.put_records(*runs(batch[20:40]))
        assert store.put_many(batch[40:]).ok  # type: ignore[union-attr]
        store.dispatch()
        for topic in ("topic0", "topic1", "topic2"):
            for queue_id in (0, 1):
                bodies = [bytes(m.body) for m in store.get(topic, queue_id, 0, 100)]
                assert bodies == [m.body for m in batch if (m.topic, m.queue_id) == (topic, queue_id)]


def test_log_with_whole_record_checksums_takes_no_finished_records(tmp_path: Path) -> None:
    config = CONFIG.replace(enabled_append_prop_crc=True)
    record = bytearray(encode_row(messages(1)[0]))
    with opened(tmp_path, config) as store, pytest.raises(ValueError, match="checksum"):
        store.put_records(record, memoryview(array.array("i", [0])), [("topic0", 0)])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data, slots, queues: (data[:-1], slots, queues), "no record"),
        (lambda data, slots, queues: (data + b"\0", slots, queues), "behind the last"),
        (lambda data, slots, queues: (data, slots, [("other", 0), *queues[1:]]), "another queue"),
        (lambda data, slots, queues: (data, slots, queues[:1]), "slot"),
    ],
)
def test_run_that_contradicts_itself_appends_nothing(tmp_path: Path, change: object, reason: str) -> None:
    with opened(tmp_path) as store:
        with pytest.raises(ValueError, match=reason):
            store.put_records(*change(*runs(messages(5))))  # type: ignore[operator]
        assert store.max_physical_offset == 0


def test_record_that_no_file_has_room_for_is_refused(tmp_path: Path) -> None:
    long = Message("topic", b"x" * SEGMENT, unique_key="a", born_timestamp=NOW)
    with opened(tmp_path) as store:
        with pytest.raises(ValueError, match="fits"):
            store.put_records(*runs([long]))
        with pytest.raises(MessageRejected, match="not allowed"):
            store.put_records(bytearray(), memoryview(array.array("i", [])), [("a/b", 0)])
        assert store.max_physical_offset == 0


def test_run_whose_second_file_fails_says_how_much_of_it_is_in_the_log(tmp_path: Path) -> None:
    """Whoever appends again what was not must not append the first part twice."""
    config = CONFIG.replace(mapped_file_size_commit_log=64 << 10)
    batch = [Message("topic0", bytes(2000), unique_key=f"{n}", born_timestamp=NOW) for n in range(60)]
    records, slots, queues = runs(batch)
    with opened(tmp_path, config) as store:
        files, real = store._log.files, store._log.files.get_last_mapped_file
        made = 0

        def failing(*arguments: object) -> object:
            nonlocal made
            file = real(*arguments)  # type: ignore[arg-type]
            made += 1
            if made == 2:
                assert file is not None
                file.mapping.inject(write_error=28, write_times=1)
            return file

        files.get_last_mapped_file = failing  # type: ignore[method-assign, assignment]
        done = store.append_records(records, slots, queues)
        assert 0 < done < 60
        end = sum(len(encode_row(message)) for message in batch[:done])
        assert store.append_records(records[end:], slots[done:], queues) == 60 - done
        store.flush()
        store.dispatch()
        found = [message for offset in (0, 32) for message in store.get("topic0", 0, offset, 32)]
        assert [message.unique_key for message in found] == [f"{n}" for n in range(60)]


def test_records_that_may_not_be_appended_together_are_left_to_single_puts(tmp_path: Path) -> None:
    records, slots, queues = runs(messages(1))
    with opened(tmp_path / "checksums", CONFIG.replace(enabled_append_prop_crc=True)) as store:
        assert store.append_records(records, slots, queues) == 0
    with opened(tmp_path / "names") as store:
        assert store.append_records(records, slots, [("a/b", 0)]) == 0
        long = Message("topic0", b"x" * SEGMENT, unique_key="a", born_timestamp=NOW)
        assert store.append_records(*runs([long])) == 0
        assert store.max_physical_offset == 0


def notes_of(batch: list[Message]) -> memoryview:
    """Notes of some, and of others that they must be looked at."""
    notes = [record_note(encode_row(m), looked_at=n % 5 == 0) for n, m in enumerate(batch)]
    return memoryview(array.array("i", [number for note in notes for number in note]))


def put_prepared(
    store: MessageStore, batch: list[Message], size: int, prepared: Prepared, *, noted: bool = False
) -> None:
    for begin in range(0, len(batch), size):
        part = batch[begin : begin + size]
        records, slots, queues = runs(part)
        store.put_records(records, slots, queues)
        notes = notes_of(part) if noted else None
        store.prepare_dispatch(prepared, memoryview(records), slots, queues, notes)
    store.flush()


@pytest.mark.parametrize("entries", [400, 10_000])  # the second takes all, beside the units
@pytest.mark.parametrize("limit", [0, 1, 50, 1000])
@pytest.mark.parametrize("size", [7, 1000])
@pytest.mark.parametrize("noted", [False, True])
def test_prepared_records_become_the_units_and_entries_that_the_dispatcher_makes(
    tmp_path: Path, noted: bool, size: int, limit: int, entries: int
) -> None:
    batch = messages(300)  # several segments
    config = CONFIG.replace(max_index_num=entries)
    batch[40] = Message("topic0", b"plain", queue_id=0, unique_key="", born_timestamp=NOW)
    batch[41] = Message("topic0", b"keys", keys=" ".join(f"k{n}" for n in range(20)), born_timestamp=NOW)
    with opened(tmp_path / "read", config) as store:
        for begin in range(0, len(batch), size):
            store.put_records(*runs(batch[begin : begin + size]))
        store.flush()
    with opened(tmp_path / "prepared", config) as store:
        prepared = Prepared(limit)
        put_prepared(store, batch, size, prepared, noted=noted)
        assert len(prepared) == min(limit, len(batch))
        assert store.undispatched, "nothing may be visible before it is asked for"
        store.dispatch_prepared(prepared)
        assert not store.undispatched
    expected, found = contents(tmp_path / "read"), contents(tmp_path / "prepared")
    assert (len([name for name in expected if name.startswith("index")]) > 1) == (entries == 400)
    assert found == expected


def test_a_record_with_too_many_keys_is_left_to_the_dispatcher(tmp_path: Path) -> None:
    batch = messages(20)
    batch[10] = Message("topic0", b"", keys=" ".join(f"k{n}" for n in range(100)), born_timestamp=NOW)
    with opened(tmp_path / "read") as store:
        store.put_records(*runs(batch))
        store.flush()
    with opened(tmp_path / "prepared") as store:
        prepared = Prepared()
        put_prepared(store, batch, 20, prepared)
        assert (len(prepared), prepared.ended) == (10, True)
        store.dispatch_prepared(prepared)
    assert contents(tmp_path / "prepared") == contents(tmp_path / "read")


@pytest.mark.parametrize("entries", [400, 10_000])
def test_records_that_others_put_between_are_dispatched_in_their_place(tmp_path: Path, entries: int) -> None:
    for name in ("read", "prepared"):
        with opened(tmp_path / name, CONFIG.replace(max_index_num=entries)) as store:
            prepared = Prepared()
            put_prepared(store, messages(50), 50, prepared)
            store.put_many(messages(3))
            put_prepared(store, messages(50), 50, prepared)
            if name == "prepared":
                store.dispatch_prepared(prepared)
                assert not store.undispatched
    assert contents(tmp_path / "prepared") == contents(tmp_path / "read")


def test_queue_files_that_cannot_be_made_leave_no_entry_twice(tmp_path: Path) -> None:
    """The index is ahead of the queues then: whoever goes on must not index the same records again."""
    config = CONFIG.replace(max_index_num=10_000)
    for name in ("read", "prepared"):
        with opened(tmp_path / name, config) as store:
            prepared = Prepared()
            put_prepared(store, messages(50), 50, prepared)
            if name == "prepared":
                attach = store._queues.attach
                store._queues.attach = failing  # type: ignore[method-assign]
                with pytest.raises(DiskFull):
                    store.dispatch_prepared(prepared)
                store._queues.attach = attach  # type: ignore[method-assign]
                assert store.undispatched
            store.dispatch()
    assert contents(tmp_path / "prepared") == contents(tmp_path / "read")


def failing(queue: object) -> None:
    raise OSError(28, "No space left on device", "queue")


@pytest.mark.parametrize("entries", [400, 10_000])
def test_what_was_dispatched_already_is_not_dispatched_again(tmp_path: Path, entries: int) -> None:
    for name in ("read", "prepared"):
        with opened(tmp_path / name, CONFIG.replace(max_index_num=entries)) as store:
            prepared = Prepared()
            put_prepared(store, messages(50), 50, prepared)
            store.dispatch()
            put_prepared(store, messages(50), 50, prepared)
            if name == "prepared":
                store.dispatch_prepared(prepared)
    assert contents(tmp_path / "prepared") == contents(tmp_path / "read")


def test_preparing_refuses_what_is_no_record(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        records, slots, queues = runs(messages(5))
        with pytest.raises(ValueError, match="no record"):
            store.prepare_dispatch(Prepared(), memoryview(records)[10:], slots, queues)


@pytest.mark.parametrize(
    "notes", [[], [7], [7, 3, 1, 2], [7, 33, *range(33)], [7, 2**31 - 1, *range(40)], [7, 0, 7]]
)
def test_preparing_refuses_notes_that_do_not_fit_the_records(tmp_path: Path, notes: list[int]) -> None:
    with opened(tmp_path) as store:
        records, slots, queues = runs(messages(2))
        store.put_records(records, slots, queues)
        with pytest.raises(ValueError, match="no record"):
            store.prepare_dispatch(
                Prepared(), memoryview(records), slots, queues, memoryview(array.array("i", notes))
            )
        with pytest.raises(ValueError, match="no record"):
            store.prepare_dispatch(
                Prepared(), memoryview(records)[:90], slots, queues, memoryview(array.array("i", [7, 0] * 2))
            )


def test_an_index_without_room_for_all_entries_says_so(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        prepared = Prepared()
        put_prepared(store, messages(50), 50, prepared)
        small = Index(bytearray(40 + 4 * 10 + 20 * 20), 10, 20)
        with pytest.raises(ValueError, match="no room"):
            prepared.put_keys(small, 0, store.max_physical_offset)
        assert small.is_full
