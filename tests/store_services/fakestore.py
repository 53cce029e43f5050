"""A store of a few lines: what the services need of one, in memory, with failures on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.config import StoreConfig
from penstock.format.record import decode_record, encode_record
from penstock.message import Message, parse_properties, unique_id
from penstock.message.ids import message_id_of
from penstock.message.properties import message_property_bytes
from penstock.message.topic import SCHEDULE_TOPIC

FAKE_ONLY = pytest.mark.parametrize("store", ["fake"], indirect=True)
"""For tests that do to a store what no real one lets be done to it."""

Hook = Callable[[Message, Any], "Message | str"]


@dataclass(frozen=True)
class FakeRecord:
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    sys_flag: int
    flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    properties_bytes: bytes
    body: bytes
    tags_code: int = 0

    @property
    def properties(self) -> dict[str, str]:
        return parse_properties(self.properties_bytes)

    @property
    def unique_key(self) -> str | None:
        return self.properties.get("UNIQ_KEY")

    @property
    def message_id(self) -> str:
        return message_id_of(self.store_host, self.physical_offset)

    @property
    def raw(self) -> bytes:
        """The record as a log would hold it."""
        return encode_record(
            self.topic,
            self.body,
            self.properties_bytes,
            queue_id=self.queue_id,
            flag=self.flag,
            sys_flag=self.sys_flag,
            born_timestamp=self.born_timestamp,
            born_host=self.born_host,
            store_host=self.store_host,
            reconsume_times=self.reconsume_times,
            prepared_transaction_offset=self.prepared_transaction_offset,
            queue_offset=self.queue_offset,
            physical_offset=self.physical_offset,
            store_timestamp=self.store_timestamp,
        )


@dataclass(frozen=True)
class FakePut:
    status: str
    queue_offset: int = -1
    physical_offset: int = -1
    size: int = 0
    ok: bool = True


@dataclass(frozen=True)
class FakeGet:
    status: str
    next_begin_offset: int
    messages: Sequence[FakeRecord] = ()

    @property
    def raw(self) -> list[bytes]:
        return [record.raw for record in self.messages]


def append_one_by_one(
    put: Callable[[Message], Any], records: bytearray, slots: Sequence[int], queues: Sequence[tuple[str, int]]
) -> int:
    """Put finished records as messages and fill in what their places give them; how many, as the store's own
    ``append_records``: an error counts only when it meets the first one.
    """
    at = 0
    for number, slot in enumerate(slots):
        record = decode_record(records, at)
        assert (record.topic, record.queue_id) == queues[slot]
        message = Message(
            record.topic,
            record.body,
            queue_id=record.queue_id,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
            wait=False,
            raw_properties=record.properties_bytes,
        )
        try:
            outcome = put(message)
        except Exception:
            if number == 0:
                raise
            return number
        if not outcome.ok:
            return number
        records[at + 20 : at + 28] = outcome.queue_offset.to_bytes(8, "big")
        records[at + 28 : at + 36] = outcome.physical_offset.to_bytes(8, "big")
        at += record.total_size
    return len(slots)


@dataclass
class FakeStore:
    """Queues of records. ``refuse`` may answer a put with a status, or raise. Threads may put at once."""

    clock: ManualClock
    storage: Any
    config: StoreConfig = field(default_factory=StoreConfig)
    path: str = "/store"
    hooks: list[Hook] = field(default_factory=list)
    refuse: Callable[[Message], str | None] = lambda message: None
    log: list[FakeRecord] = field(default_factory=list)
    queues: dict[tuple[str, int], list[FakeRecord]] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    dispatching: bool = True
    flushed: int = 0
    flushes: int = 0
    min_physical_offset: int = 0
    putting: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def max_physical_offset(self) -> int:
        return self.log[-1].physical_offset + self.log[-1].size if self.log else 0

    def put(self, message: Message) -> FakePut:
        for hook in self.hooks:
            answer = hook(message, self)
            if isinstance(answer, str):
                return FakePut(answer, ok=False)
            message = answer
        return self.put_raw(message)

    def put_raw(self, message: Message) -> FakePut:
        status = self.refuse(message)
        if status is not None:
            return FakePut(status, ok=False)
        with self.putting:
            return self.append(message)

    def append(self, message: Message) -> FakePut:
        raw = message_property_bytes(message)
        if message.raw_properties is None and "UNIQ_KEY" not in parse_properties(raw):
            raw += f"UNIQ_KEY\x01{unique_id()}\x02".encode()
        key = (message.topic, message.queue_id)
        queue = [r for r in self.log if (r.topic, r.queue_id) == key]
        now = self.clock.now_ms()
        properties = parse_properties(raw)
        tags_code = 0
        if message.topic == SCHEDULE_TOPIC:
            tags_code = now + self.config.delay_levels_ms[int(properties["DELAY"]) - 1]
        record = FakeRecord(
            message.topic,
            message.queue_id,
            len(queue),
            self.max_physical_offset,
            91 + len(message.body) + len(raw) + len(message.topic),
            message.sys_flag,
            message.flag,
            message.born_timestamp or now,
            message.born_host or "127.0.0.1:1",
            now,
            message.store_host or self.config.store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            raw,
            bytes(message.body),
            tags_code,
        )
        self.log.append(record)
        if self.dispatching:
            self.dispatch()
        return FakePut("PUT_OK", record.queue_offset, record.physical_offset, record.size)

    def dispatch(self) -> None:
        queues: dict[tuple[str, int], list[FakeRecord]] = {}
        for record in self.log:
            queues.setdefault((record.topic, record.queue_id), []).append(record)
        self.queues = queues  # whole at once: a reader must never see a queue shorter than it was

    def flush(self) -> None:
        self.flushes += 1
        self.flushed = len(self.log)

    def cut(self, count: int) -> None:
        """The log as recovery leaves it: only the first ``count`` records."""
        del self.log[count:]
        self.dispatch()

    def get(self, topic: str, queue_id: int, offset: int, count: int = 32) -> FakeGet:
        queue = self.queues.get((topic, queue_id), [])
        if not queue:
            return FakeGet("NO_MESSAGE_IN_QUEUE", 0)
        if offset >= len(queue):
            status = "OFFSET_OVERFLOW_ONE" if offset == len(queue) else "OFFSET_OVERFLOW_BADLY"
            return FakeGet(status, len(queue))
        units = queue[offset : offset + count]
        found = [record for record in units if record.physical_offset not in self.removed]
        status = "FOUND" if found else "MESSAGE_WAS_REMOVING"
        return FakeGet(status, offset + len(units), found)

    get_bulk = get

    def records_at(self, places: Iterable[tuple[int, int]]) -> list[bytes | None]:
        found = [self.lookup(offset) for offset, _ in places]
        return [None if record is None else record.raw for record in found]

    def append_records(
        self, records: bytearray, slots: Sequence[int], queues: Sequence[tuple[str, int]]
    ) -> int:
        return append_one_by_one(self.put_raw, records, slots, queues)

    def lookup(self, place: int) -> FakeRecord | None:
        if place in self.removed:
            return None
        return next((record for record in self.log if record.physical_offset == place), None)

    def min_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get((topic, queue_id), []))

    def queue_unit(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        queue = self.queues.get((topic, queue_id), [])
        if not 0 <= offset < len(queue):
            return None
        return queue[offset].physical_offset, queue[offset].size, queue[offset].tags_code

    def bodies(self, topic: str) -> list[bytes]:
        """Bodies of a topic in log order."""
        return [record.body for record in self.log if record.topic == topic]
