"""Records of batch queues, extended queues and light queues: the same units as RocketMQ's, once each."""

from __future__ import annotations

import base64
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from format.golden_log import GoldenLog
from penstock.config import StoreConfig
from penstock.errors import StoreError
from penstock.files import DiskStorage, MemoryStorage, Storage
from penstock.format.extunit import ExtUnit, is_ext_address
from penstock.format.record import RecordFields, encode_record
from penstock.message.sysflag import INNER_BATCH_FLAG, TRANSACTION_PREPARED_TYPE
from penstock.store.batchconsumequeue import BatchConsumeQueue
from penstock.store.consumequeue import ConsumeQueue
from penstock.store.queuetable import QueueTable
from penstock.store.specialdispatch import SpecialDispatch

CONFIG = StoreConfig(
    mapped_file_size_consume_queue=200,
    mapped_file_size_consume_queue_ext=128,
    mapper_file_size_batch_consume_queue=230,
)
EXTENDED = CONFIG.replace(enable_consume_queue_ext=True)
LIGHT = CONFIG.replace(enable_multi_dispatch=True, enable_lmq=True)


class Log:
    """Records one behind the other, and what dispatches them."""

    def __init__(self, config: StoreConfig, storage: Storage | None = None) -> None:
        self.storage = storage if storage is not None else MemoryStorage()
        self.storage.makedirs("/s")
        self.config = config
        self.records: list[tuple[int, bytes]] = []
        self.end = 0
        self.open()

    def open(self) -> None:
        self.queues = QueueTable(self.storage, "/s", self.config)
        assert self.queues.load() == []
        self.special = SpecialDispatch(self.queues, self.config)

    def add(
        self,
        queue_offset: int,
        properties: str = "",
        *,
        topic: str = "topic",
        queue_id: int = 0,
        sys_flag: int = 0,
    ) -> None:
        raw = properties.replace("=", "\x01").replace(";", "\x02").encode()
        record = encode_record(
            topic=topic,
            body=b"body",
            properties=raw,
            queue_id=queue_id,
            sys_flag=sys_flag,
            queue_offset=queue_offset,
            physical_offset=self.end,
            store_timestamp=5000 + self.end,
        )
        self.records.append((self.end, record))
        self.end += len(record)

    def dispatch(self, first: int = 0) -> None:
        for position, record in self.records[first:]:
            self.special.put(memoryview(record + b"what follows"), position)

    def simple(self, topic: str = "topic", queue_id: int = 0) -> ConsumeQueue:
        queue = self.queues.get(topic, queue_id)
        assert isinstance(queue, ConsumeQueue)
        return queue

    def places(self, topic: str = "topic", queue_id: int = 0) -> list[tuple[int, int]]:
        return [(u.queue_offset, u.physical_offset) for u in self.simple(topic, queue_id).iterate(0)]

    def ext_units(self) -> list[ExtUnit | None]:
        ext = self.queues.extension("topic", 0)
        return [ext.get(unit.tags_code) for unit in self.simple().iterate(0)]


# -- golden directories ----------------------------------------------------------------------------


def bitmaps_of(log: GoldenLog) -> Callable[[RecordFields], bytes | None]:
    bitmaps = {int(k): base64.b64decode(v) for k, v in log.manifest.get("filterBitmaps", {}).items()}
    return lambda record: bitmaps.get(record.physical_offset)


def config_of(log: GoldenLog) -> StoreConfig:
    given = log.manifest["config"]
    return StoreConfig(
        mapped_file_size_consume_queue=given["mappedFileSizeConsumeQueue"],
        mapped_file_size_consume_queue_ext=given.get("mappedFileSizeConsumeQueueExt", 2048),
        mapper_file_size_batch_consume_queue=given.get("mapperFileSizeBatchConsumeQueue", 1840),
        enable_consume_queue_ext=bool(given.get("enableConsumeQueueExt")),
        enable_multi_dispatch=bool(given.get("enableMultiDispatch")),
    )


FOLDERS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")


def queue_bytes(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for folder in FOLDERS
        for path in sorted(root.glob(f"{folder}/*/*/*"))
    }


@pytest.mark.parametrize("golden_log", ["batches", "queue-ext", "lmq"], indirect=True)
@pytest.mark.parametrize("times", [1, 2])
def test_queues_are_rebuilt_byte_for_byte(golden_log: GoldenLog, times: int, tmp_path: Path) -> None:
    root = tmp_path / "rebuilt"
    root.mkdir()
    queues = QueueTable(DiskStorage(), str(root), config_of(golden_log))
    queues.batch_topics |= set(golden_log.manifest["batchQueueTopics"])
    special = SpecialDispatch(queues, queues.config)
    special.filter_bitmap = bitmaps_of(golden_log)
    for record in golden_log.records:
        data = golden_log.bytes_at(record.physical_offset, record.total_size)
        for _ in range(times):
            special.put(memoryview(data), record.physical_offset)
    queues.flush()
    assert queue_bytes(root) == queue_bytes(golden_log.store.path)
    for answer in golden_log.store.answers["queues"]:
        queue = queues.get(answer["topic"], answer["queueId"])
        assert (queue.min_offset, queue.max_offset) == (answer["minOffset"], answer["maxOffset"])
    queues.close()


@pytest.mark.parametrize("golden_log", ["queue-ext"], indirect=True)
@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
def test_a_cut_store_gets_its_units_back(golden_log: GoldenLog, part: float) -> None:
    """Cut RocketMQ's queues at a record, dispatch the rest again: the bytes are RocketMQ's again."""
    expected = queue_bytes(golden_log.store.path)
    first = int(len(golden_log.records) * part)
    queues = QueueTable(DiskStorage(), str(golden_log.store.path), config_of(golden_log))
    assert queues.load() == []
    assert queues.truncate_dirty(golden_log.records[first].physical_offset) > 0
    special = SpecialDispatch(queues, queues.config)
    special.filter_bitmap = bitmaps_of(golden_log)
    for record in golden_log.records[first:]:
        data = golden_log.bytes_at(record.physical_offset, record.total_size)
        special.put(memoryview(data), record.physical_offset)
    queues.close()
    assert queue_bytes(golden_log.store.path) == expected


# -- batch queues ----------------------------------------------------------------------------------


def test_an_inner_batch_covers_its_messages_and_an_ordinary_message_one() -> None:
    log = Log(CONFIG)
    log.queues.batch_topics.add("topic")
    log.add(0, "INNER_NUM=3;INNER_BASE=0;TAGS=a;", sys_flag=INNER_BATCH_FLAG)
    log.add(3, "TAGS=b;")
    log.add(4, "INNER_NUM=2;INNER_BASE=4;", sys_flag=INNER_BATCH_FLAG)
    log.dispatch()
    log.dispatch()
    queue = log.queues.get("topic", 0)
    assert isinstance(queue, BatchConsumeQueue)
    assert [(u.base_offset, u.batch_size, u.tags_code) for u in queue.iterate(0)] == [
        (0, 3, 97),
        (3, 1, 98),
        (4, 2, 0),
    ]
    assert queue.native.special


def test_an_inner_batch_on_a_simple_queue_is_one_unit() -> None:
    log = Log(CONFIG)
    log.add(0, "INNER_NUM=3;INNER_BASE=0;", sys_flag=INNER_BATCH_FLAG)
    log.add(1)
    log.dispatch()
    assert log.places() == [(0, 0), (1, log.records[1][0])]


def test_a_prepared_message_has_no_unit() -> None:
    log = Log(EXTENDED)
    log.add(0, sys_flag=TRANSACTION_PREPARED_TYPE)
    log.dispatch()
    assert log.places() == []
    assert not log.storage.exists("/s/consumequeue_ext")


# -- extensions ------------------------------------------------------------------------------------


def test_tags_code_and_bitmap_go_to_the_extension() -> None:
    log = Log(EXTENDED)
    log.special.filter_bitmap = lambda record: b"\x05" if record.tags == "a" else None
    log.add(0, "TAGS=a;")
    log.add(1)
    log.dispatch()
    assert log.ext_units() == [ExtUnit(97, 5000, b"\x05"), ExtUnit(0, 5000 + log.records[1][0])]


def test_a_delayed_message_tells_its_time_of_delivery() -> None:
    log = Log(CONFIG)
    log.add(0, "DELAY=3;TAGS=a;", topic="SCHEDULE_TOPIC_XXXX", queue_id=2)
    log.dispatch()
    assert [u.tags_code for u in log.simple("SCHEDULE_TOPIC_XXXX", 2).iterate(0)] == [5000 + 10_000]


def test_a_bitmap_that_does_not_fit_leaves_the_tags_code_in_the_queue() -> None:
    log = Log(EXTENDED)
    log.special.filter_bitmap = lambda record: bytes(500)
    log.add(0, "TAGS=a;")
    log.dispatch()
    assert [u.tags_code for u in log.simple().iterate(0)] == [97]


@pytest.mark.parametrize(
    ("operation", "glob"),
    [("create", "*consumequeue/*"), ("create", "*consumequeue_ext/*"), ("write", "*consumequeue_ext/*")],
)
def test_after_a_failure_the_unit_is_put_once(operation: str, glob: str) -> None:
    log = Log(EXTENDED)
    assert isinstance(log.storage, MemoryStorage)
    for n in range(25):
        log.add(n, "TAGS=a;")
    failures = 0
    for position, record in log.records:
        log.storage.fail(operation, errno.ENOSPC, path_glob=glob)
        try:
            log.special.put(memoryview(record), position)
        except (OSError, StoreError):
            failures += 1
        log.storage.heal()
        log.special.put(memoryview(record), position)
    assert failures > 0
    assert log.places() == [(n, position) for n, (position, _) in enumerate(log.records)]
    assert log.ext_units() == [ExtUnit(97, 5000 + position) for position, _ in log.records]
    assert log.queues.extension("topic", 0).end_offset == 4 * 128 + 20  # six units to a file of 128 bytes


@pytest.mark.parametrize("kept", [0, 3, 10, 24])
def test_a_truncated_queue_takes_its_extension_with_it(kept: int) -> None:
    log = Log(EXTENDED)
    for n in range(25):
        log.add(n, "TAGS=a;")
    log.dispatch()
    end = log.queues.extension("topic", 0).end_offset
    log.queues.truncate_dirty(log.records[kept][0])
    log.dispatch()
    assert log.queues.extension("topic", 0).end_offset == end
    assert log.ext_units() == [ExtUnit(97, 5000 + position) for position, _ in log.records]


def test_after_a_power_cut_no_unit_refers_to_the_extension_of_another() -> None:
    """Whatever of queue and extension reached the disk: a tags code is the message's own, or unknown."""
    log = Log(EXTENDED)
    assert isinstance(log.storage, MemoryStorage)
    for n in range(4):
        log.add(n, f"TAGS={n};")
    log.dispatch()
    log.queues.flush()
    for n in range(4, 14):
        log.add(n, f"TAGS={n};")
    log.dispatch(4)
    checked = 0
    for image in log.storage.crash_states(limit=60):
        after = Log(EXTENDED, image)
        after.records = log.records
        after.dispatch()
        units = list(after.simple().iterate(0))
        assert [u.physical_offset for u in units] == [position for position, _ in log.records]
        assert all(is_ext_address(u.tags_code) for u in units)
        for unit, found in zip(units, after.ext_units(), strict=True):
            assert found is None or found.store_timestamp == 5000 + unit.physical_offset
            checked += 1
    assert checked > 100


# -- light queues ----------------------------------------------------------------------------------


def test_a_record_goes_to_every_light_queue_it_names() -> None:
    log = Log(LIGHT)
    log.add(0, "INNER_MULTI_DISPATCH=%LMQ%a,other;INNER_MULTI_QUEUE_OFFSET=0,0;TAGS=a;", queue_id=7)
    log.add(1, "INNER_MULTI_DISPATCH=%LMQ%a;INNER_MULTI_QUEUE_OFFSET=1;TAGS=a;", queue_id=7)
    log.dispatch()
    log.dispatch()
    first, second = (position for position, _ in log.records)
    assert log.places("topic", 7) == log.places("%LMQ%a", 0) == [(0, first), (1, second)]
    assert log.places("other", 7) == [(0, first)]
    assert [u.tags_code for u in log.simple("%LMQ%a").iterate(0)] == [97, 97]


@pytest.mark.parametrize(
    ("names", "offsets"),
    [
        ("a/b,%LMQ%c", "0,0"),
        ("..,%LMQ%c", "0,0"),
        ("x" * 200 + ",%LMQ%c", "0,0"),
        ("%LMQ%c,%LMQ%c", "0,0"),
    ],
)
def test_names_that_cannot_be_queues_are_skipped(names: str, offsets: str) -> None:
    log = Log(LIGHT)
    log.add(0, f"INNER_MULTI_DISPATCH={names};INNER_MULTI_QUEUE_OFFSET={offsets};")
    log.dispatch()
    assert sorted(entry.name for entry in log.storage.listdir("/s/consumequeue")) == ["%LMQ%c", "topic"]
    assert log.places("%LMQ%c") == [(0, 0)]


@pytest.mark.parametrize("offsets", ["", "0", "0,1,2", "0,x", "0,-1"])
def test_lists_that_disagree_dispatch_the_record_only(offsets: str) -> None:
    log = Log(LIGHT)
    log.add(0, f"INNER_MULTI_DISPATCH=%LMQ%a,%LMQ%b;INNER_MULTI_QUEUE_OFFSET={offsets};")
    log.dispatch()
    assert log.places() == [(0, 0)]
    assert [entry.name for entry in log.storage.listdir("/s/consumequeue")] == ["topic"]


def test_light_queues_need_multi_dispatch() -> None:
    log = Log(CONFIG.replace(enable_lmq=True))
    log.add(0, "INNER_MULTI_DISPATCH=%LMQ%a;INNER_MULTI_QUEUE_OFFSET=0;")
    log.dispatch()
    assert log.queues.find("%LMQ%a", 0) is None


def test_an_absurd_offset_does_not_fill_the_disk() -> None:
    log = Log(LIGHT)
    for n, offset in enumerate([0, 2**62, 10**9, 1]):
        log.add(n, f"INNER_MULTI_DISPATCH=%LMQ%a;INNER_MULTI_QUEUE_OFFSET={offset};")
    log.dispatch()
    assert [offset for offset, _ in log.places("%LMQ%a")] == [0, 1]
    assert len(log.places()) == 4


def test_light_queues_keep_no_file_open(tmp_path: Path) -> None:
    config = LIGHT.replace(max_open_files=16)
    queues = QueueTable(DiskStorage(), str(tmp_path), config)
    special = SpecialDispatch(queues, config)
    log = Log(LIGHT)
    for n in range(100):
        log.add(n, f"INNER_MULTI_DISPATCH=%LMQ%{n};INNER_MULTI_QUEUE_OFFSET=0;")
    for position, record in log.records:
        special.put(memoryview(record), position)
    assert len(queues) == 101
    attached = [queue for queue in queues if queue.native.attached_file is not None]
    assert attached == []
    queues.close()


def test_bytes_that_are_no_record_are_an_error() -> None:
    with pytest.raises(StoreError):
        Log(CONFIG).special.put(memoryview(bytes(200)), 0)
