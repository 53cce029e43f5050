"""The real store behind the face that the tests of the services use."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from fakestore import FakePut, FakeRecord, Hook

from penstock.clock import ManualClock
from penstock.config import StoreConfig
from penstock.format.record import decode_record
from penstock.message import Message
from penstock.store.messagestore import MessageStore
from penstock.store.opening import open_writable

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536,
    mapped_file_size_consume_queue=6000,
    mapped_file_size_timer_log=65536,
    message_index_enable=False,
)


class RealStore:
    """A ``MessageStore`` without threads: what is put is flushed and dispatched before the put returns."""

    def __init__(self, clock: ManualClock, storage: Any, hooks: list[Hook]) -> None:
        self.clock = clock
        self.storage = storage
        self.hooks = hooks
        self.config = CONFIG
        self.path = "/store"
        self.flushes = 0
        self.refuse: Callable[[Message], str | None] = lambda message: None
        self.real: MessageStore = open_writable(
            self.path, storage=storage, clock=clock, config=CONFIG, background=False
        )

    def put(self, message: Message) -> Any:
        for hook in self.hooks:
            answer = hook(message, self)
            if isinstance(answer, str):
                return FakePut(answer, ok=False)
            message = answer
        return self.put_raw(message)

    def put_raw(self, message: Message) -> Any:
        status = self.refuse(message)
        if status is not None:
            return FakePut(status, ok=False)
        result = self.real.put_raw(message)
        self.real.flush()
        self.real.dispatch()
        return result

    def append_records(self, records: bytearray, slots: array[int], queues: Sequence[tuple[str, int]]) -> int:
        """As the store does it, up to the first message that ``refuse`` is against."""
        ends, answer = [0], 0
        for _ in slots:
            record = decode_record(records, ends[-1])
            try:
                if self.refuse(Message(record.topic, record.body)) is not None:
                    break
            except Exception:
                if len(ends) == 1:
                    raise
                break
            ends.append(ends[-1] + record.total_size)
        if len(ends) > 1:
            part = memoryview(records)[: ends[-1]]
            answer = self.real.append_records(part, slots[: len(ends) - 1], queues)
        self.real.flush()
        self.real.dispatch()
        return answer

    def flush(self) -> None:
        self.flushes += 1
        self.real.flush()

    @property
    def flushed(self) -> int:
        return len([r for r in self.log if r.physical_offset + r.size <= self.real.flushed_where])

    @property
    def log(self) -> list[FakeRecord]:
        """Every record, in log order."""
        found = []
        offset = self.real.min_physical_offset
        while offset < self.real.max_physical_offset:
            message = self.real.lookup(offset)
            if message is None:
                offset += CONFIG.mapped_file_size_commit_log - offset % CONFIG.mapped_file_size_commit_log
                continue
            values = [
                getattr(message, name) for name in FakeRecord.__dataclass_fields__ if name != "tags_code"
            ]
            found.append(FakeRecord(*values))
            offset += message.size
        return found

    def bodies(self, topic: str) -> list[bytes]:
        return [record.body for record in self.log if record.topic == topic]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)
