"""Messages that carry their own queue offset: the offset they carry is the offset they have."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from format.golden_log import GoldenLog
from golden_store import body_of
from penstock.clock import ManualClock
from penstock.config import StoreConfig
from penstock.files import MemoryStorage
from penstock.format.record import RecordFields
from penstock.format.walk import walk
from penstock.message import Message, encode_properties
from penstock.message.sysflag import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG, TRANSACTION_PREPARED_TYPE
from penstock.store.commitlog import CommitLog
from penstock.store.innerput import needs_offset, put_with_offset
from penstock.store.logfolders import log_folders
from penstock.store.queuetable import QueueTable

NOW = 1_700_000_000_000
INNER = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536,
    mapped_file_size_consume_queue=2000,
    enable_lmq=True,
    generate_unique_key=False,
)


class RollingLog(CommitLog):
    """A log that lets somebody in when it goes over to the next file."""

    intruder: Callable[[], object] | None = None

    def _roll(self) -> str | None:
        reason = super()._roll()
        intruder, self.intruder = self.intruder, None
        if intruder is not None:
            intruder()
        return reason


@dataclass
class Store:
    config: StoreConfig = CONFIG
    batch_topics: tuple[str, ...] = ("batch",)
    storage: MemoryStorage = field(default_factory=MemoryStorage)

    def __post_init__(self) -> None:
        self.storage.makedirs("/s")
        self.queues = QueueTable(self.storage, "/s", self.config)
        self.queues.batch_topics |= set(self.batch_topics)
        folders = log_folders(self.storage, "/s", self.config)
        self.log = RollingLog(
            self.storage, folders, self.config, ManualClock(NOW), self.queues.native, background=False
        )
        self.log.load()
        self.log.open_end(0)

    def put(self, message: Message, *, wait: bool = True) -> Any:
        return put_with_offset(self.log, self.queues, message, NOW, wait)

    def plain(self, message: Message) -> Any:
        return self.log.appender.put(message, NOW, True)

    def next_offset(self, topic: str, queue_id: int = 0) -> int:
        return int(self.queues.get(topic, queue_id).native.next_offset)

    def records(self) -> list[RecordFields]:
        found: list[RecordFields] = []
        for file in self.log.files.files:
            data = self.storage.read_file(file.path)
            found += walk(data, 0, len(data), file.file_from_offset).records
        return found


def batch(count: int, **changes: Any) -> Message:
    properties = {"INNER_NUM": str(count), "UNIQ_KEY": "u"}
    return replace(Message("batch", b"blocks", properties=properties, sys_flag=INNER), **changes)


def light(names: str, topic: str = "parent", **properties: str) -> Message:
    return Message(topic, b"body", properties={"INNER_MULTI_DISPATCH": names, **properties})


# -- which messages --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message("t", b""), False),
        (Message("t", b"", properties={"a": "b"}), False),
        (Message("t", b"", sys_flag=INNER), True),
        (Message("t", b"", properties={"INNER_NUM": "3"}), True),
        (light("%LMQ%a"), True),
        (light(" "), False),
        (light("%LMQ%a", "%RETRY%group"), False),
        (light("%LMQ%a", "rmq_sys_trace"), False),
        (light("%LMQ%a", "SCHEDULE_TOPIC_XXXX"), False),
        (Message("t", b"", raw_properties=encode_properties({"INNER_MULTI_DISPATCH": "%LMQ%a"})), True),
        (Message("t", b"", raw_properties=encode_properties({"x": "INNER_MULTI_DISPATCH"})), False),
        (Message("t", b"", raw_properties=encode_properties({"INNER_NUM": "1"})), True),
    ],
)
def test_only_messages_that_tell_their_offset_need_it(message: Message, expected: bool) -> None:
    assert needs_offset(message, CONFIG, {"batch"}) is expected


def test_light_queues_are_off_by_default() -> None:
    assert not needs_offset(light("%LMQ%a"), StoreConfig(), ())


# -- inner batches ---------------------------------------------------------------------------------


def test_an_inner_batch_is_stored_under_its_base_and_advances_by_its_messages() -> None:
    store = Store()
    results = [store.put(batch(3)), store.plain(Message("batch", b"one")), store.put(batch(2))]
    assert [(r.status, r.queue_offset, r.message_num) for r in results] == [
        ("PUT_OK", 0, 3),
        ("PUT_OK", 3, 1),
        ("PUT_OK", 4, 2),
    ]
    assert store.next_offset("batch") == 6
    first, _, last = store.records()
    assert first.properties == {"INNER_NUM": "3", "UNIQ_KEY": "u", "INNER_BASE": "0"}
    assert (last.properties["INNER_BASE"], last.queue_offset) == ("4", 4)


@pytest.mark.parametrize("number", ["0", "-4", None])
def test_an_inner_batch_advances_by_one_at_least(number: str | None) -> None:
    store = Store()
    properties = {} if number is None else {"INNER_NUM": number}
    assert store.put(batch(1, properties=properties)).ok
    assert store.next_offset("batch") == 1


@pytest.mark.parametrize(
    "message",
    [
        Message("batch", b"", properties={"INNER_NUM": "3"}),
        batch(3, topic="other"),
        batch(40000),
        batch(3, properties={"INNER_NUM": "many"}),
        batch(3, properties={"INNER_NUM": "3", "a": "x\x02y"}),
        batch(3, properties={"INNER_NUM": "3", "a": "\ud800"}),
        batch(3, properties={"INNER_NUM": "3", "a": 5}),
        batch(3, topic="a/b"),
        batch(3, queue_id=-1),
        batch(3, body=None),
    ],
)
def test_what_cannot_be_stored_is_refused_and_changes_nothing(message: Message) -> None:
    store = Store()
    result = store.put(message)
    assert (result.status, result.physical_offset) == ("MESSAGE_ILLEGAL", -1)
    assert store.next_offset("batch") == 0
    assert store.records() == []
    assert store.put(batch(1)).ok  # and the put lock is free


def test_properties_that_are_too_long_are_refused() -> None:
    store = Store()
    result = store.put(batch(1, properties={"INNER_NUM": "1", "long": "x" * 40000}))
    assert result.status == "PROPERTIES_SIZE_EXCEEDED"


def test_a_unique_key_is_given_when_the_store_gives_them() -> None:
    store = Store(CONFIG.replace(generate_unique_key=True))
    store.put(batch(1, properties={"INNER_NUM": "1"}))
    store.put(batch(1))
    first, second = store.records()
    assert first.unique_key is not None
    assert len(first.unique_key) == 32
    assert second.unique_key == "u"


# -- light queues ----------------------------------------------------------------------------------


def test_each_light_queue_counts_for_itself() -> None:
    store = Store()
    for names in ("%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%b,plain", "%LMQ%a"):
        assert store.put(replace(light(names), queue_id=2)).ok
    offsets = [record.properties["INNER_MULTI_QUEUE_OFFSET"] for record in store.records()]
    assert offsets == ["0", "1,0", "1,0", "2"]
    assert (store.next_offset("%LMQ%a"), store.next_offset("%LMQ%b")) == (3, 2)
    assert store.next_offset("plain", 2) == 1
    assert store.next_offset("parent", 2) == 4


def test_the_wait_property_is_not_stored_with_a_light_message() -> None:
    store = Store()
    assert store.put(replace(light("%LMQ%a", WAIT="true", TAGS="x"), tags="y")).ok
    assert store.put(replace(light("%LMQ%a"), wait=False)).ok
    first, second = store.records()
    assert list(first.properties) == ["TAGS", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"]
    assert list(second.properties) == ["INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"]


def test_a_name_that_cannot_be_a_queue_gets_offset_zero() -> None:
    store = Store()
    store.put(light("a/b,%LMQ%a,"))
    store.put(light("a/b,%LMQ%a,"))
    assert store.records()[1].properties["INNER_MULTI_QUEUE_OFFSET"] == "0,1,0"


def test_a_queue_named_twice_counts_once() -> None:
    store = Store()
    store.put(light("%LMQ%a,%LMQ%a,parent"))
    assert store.next_offset("%LMQ%a") == 1
    assert store.next_offset("parent") == 1


def test_a_prepared_message_takes_no_offset() -> None:
    store = Store()
    assert store.put(replace(light("%LMQ%a"), sys_flag=TRANSACTION_PREPARED_TYPE)).queue_offset == 0
    assert (store.next_offset("%LMQ%a"), store.next_offset("parent")) == (0, 0)


# -- the disk --------------------------------------------------------------------------------------


def test_a_write_that_fails_takes_no_offset_and_frees_the_lock() -> None:
    store = Store()
    store.put(light("%LMQ%a"))
    store.storage.fail("write", errno.ENOSPC, path_glob="*commitlog*")
    with pytest.raises(OSError):
        store.put(light("%LMQ%a"))
    store.storage.heal()
    assert store.put(light("%LMQ%a")).queue_offset == 1
    assert [r.properties["INNER_MULTI_QUEUE_OFFSET"] for r in store.records()] == ["0", "1"]


@pytest.mark.parametrize("wait", [True, False])
def test_with_sync_flush_it_is_on_disk_when_it_is_acknowledged(wait: bool) -> None:
    store = Store()
    result = store.put(batch(2), wait=wait)
    assert (store.log.flushed_where >= result.end_offset) is wait
    after = store.put(replace(light("%LMQ%a"), wait=False))
    assert store.log.flushed_where < after.end_offset


def test_a_disk_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    store.put(batch(1))

    class Slow:
        def wait(self, offset: int, timeout: float) -> bool:
            return False

    monkeypatch.setattr(store.log, "flusher", Slow())
    assert store.put(batch(2)).status == "FLUSH_DISK_TIMEOUT"
    assert store.next_offset("batch") == 3


def test_records_roll_over_files_with_true_offsets() -> None:
    store = Store()
    for n in range(40):
        assert store.put(batch(1 + n % 3, body=bytes(5000))).ok
    assert len(store.log.files.files) > 2
    assert all(int(r.properties["INNER_BASE"]) == r.queue_offset for r in store.records())


def test_a_message_that_slips_in_while_the_file_rolls_gets_another_offset() -> None:
    store = Store()
    for n in range(40):
        store.log.intruder = lambda: store.plain(Message("batch", b"slipped in"))
        assert store.put(batch(1 + n % 3, body=bytes(5000))).ok
    inner = [r for r in store.records() if "INNER_BASE" in r.properties]
    assert len(inner) < len(store.records())
    assert [int(r.properties["INNER_BASE"]) for r in inner] == [r.queue_offset for r in inner]


# -- RocketMQ's own puts ---------------------------------------------------------------------------


@pytest.mark.parametrize("golden_log", ["lmq", "batches"], indirect=True)
def test_the_same_puts_give_the_same_offsets_and_properties(golden_log: GoldenLog) -> None:
    store = Store(batch_topics=tuple(golden_log.manifest["batchQueueTopics"]))
    client_batches = {put["topic"] for put in golden_log.manifest["puts"] if "batch" in put}
    compared = 0
    for put in golden_log.manifest["puts"]:
        if put["topic"] in client_batches:
            continue
        message = Message(
            put["topic"],
            body_of(put["body"]),
            queue_id=put["queueId"],
            properties=put["propertiesGiven"],
            sys_flag=put["sysFlag"],
            flag=put["flag"],
        )
        if not needs_offset(message, store.config, store.queues.batch_topics):
            result = store.plain(message)
        else:
            result = store.put(message)
            compared += 1
        assert (result.status, result.queue_offset, result.message_num) == (
            put["status"],
            put["queueOffset"],
            put["msgNum"],
        )
        expected = golden_log.by_offset[put["physicalOffset"]]
        assert result.size == expected.total_size
        assert store.records()[-1].properties == expected.properties
    assert compared > 10
