"""What the services of this package need of a store.

Delay, timer and transactions are written against these protocols, not against ``MessageStore``: the store
never imports them back in a circle, and their tests can bring a store of a few lines.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from penstock.clock import Clock
from penstock.config import StoreConfig
from penstock.message import Message

HOPELESS = frozenset({"MESSAGE_ILLEGAL", "PROPERTIES_SIZE_EXCEEDED"})
"""Statuses of a put that no repetition can turn into success: such a message must not hold up others."""


class StoredRecord(Protocol):
    """The parts of a stored message that a service reads."""

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def message_id(self) -> str: ...
    @property
    def unique_key(self) -> str | None: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def flag(self) -> int: ...
    @property
    def born_timestamp(self) -> int: ...
    @property
    def born_host(self) -> str: ...
    @property
    def store_timestamp(self) -> int: ...
    @property
    def store_host(self) -> str: ...
    @property
    def reconsume_times(self) -> int: ...
    @property
    def prepared_transaction_offset(self) -> int: ...
    @property
    def properties(self) -> Mapping[str, str]: ...
    @property
    def properties_bytes(self) -> bytes: ...
    @property
    def body(self) -> bytes: ...


class PutOutcome(Protocol):
    """The answer to a put. ``ok`` is about the append: a record whose flush timed out is in the log too."""

    @property
    def status(self) -> str: ...
    @property
    def ok(self) -> bool: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def size(self) -> int: ...


class GetOutcome(Protocol):
    """The answer to a get: RocketMQ's status and where to go on."""

    @property
    def status(self) -> str: ...
    @property
    def next_begin_offset(self) -> int: ...
    @property
    def messages(self) -> Sequence[StoredRecord]: ...
    @property
    def raw(self) -> list[Any]:
        """The same messages as the bytes of their records."""
        ...


class ServiceStore(Protocol):
    """A message store, as far as its services use it."""

    @property
    def config(self) -> StoreConfig: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def path(self) -> str | os.PathLike[str]: ...
    @property
    def storage(self) -> Any: ...
    @property
    def min_physical_offset(self) -> int: ...
    @property
    def max_physical_offset(self) -> int: ...

    def put(self, message: Message) -> PutOutcome:
        """Store a message; delay and timer requests in its properties are honoured."""
        ...

    def put_raw(self, message: Message) -> PutOutcome:
        """Store a message as it is, whatever its properties ask for."""
        ...

    def get(self, topic: str, queue_id: int, offset: int, count: int = 32) -> GetOutcome: ...

    def get_bulk(self, topic: str, queue_id: int, offset: int, count: int) -> GetOutcome:
        """As ``get``, with many more at once."""
        ...

    def lookup(self, place: int) -> StoredRecord | None:
        """The record at a physical offset, or None when there is none."""
        ...

    def records_at(self, places: Iterable[tuple[int, int]]) -> list[Any]:
        """The bytes at each physical offset and size; None where so much cannot be read."""
        ...

    def append_records(self, records: bytearray, slots: array[int], queues: Sequence[tuple[str, int]]) -> int:
        """Append finished records, record ``i`` to ``queues[slots[i]]``; how many, from the first one on.

        Queue offset, physical offset and store time are filled in where they lie. Does not wait for the disk.
        """
        ...

    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def max_offset(self, topic: str, queue_id: int) -> int: ...

    def queue_unit(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code at a queue offset, or None outside the queue."""
        ...

    def flush(self) -> None:
        """Return when everything put so far is on disk."""
        ...


class OffsetTable(Protocol):
    """Progress of consumer groups, kept in ``consumerOffset.json``."""

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset the group reads, or -1 when it never said."""
        ...

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None: ...


def publish(store: ServiceStore) -> None:
    """Make readable what was put without waiting: under sync flush only flushed messages are."""
    if store.config.flush_disk_type == "sync":
        store.flush()
