"""What a timer had delivered before a crash: so that nothing fires twice.

Progress is kept once in a while, messages are delivered all the time. What was delivered behind the last
checkpoint is in the commit log: recovery looks for it there, from a place that ``penstock.timer`` names. This
small file of ours lies beside RocketMQ's, which ignores it. It is written after the checkpoint: an older one
only makes recovery look further back. Absent or foreign means that nothing is known, and then a crash repeats
what it would repeat on RocketMQ.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

from penstock.files.storage import SparseFile, Storage
from penstock.message.properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
)
from penstock.message.topic import TIMER_TOPIC
from penstock.store.face import ServiceStore, StoredRecord
from penstock.store.timerlog import make_durable

NAME = "penstock.timer"
_SIZE = 4096
_MAGIC = b"PNSTTIM1"
_body = struct.Struct(">8sq")
_crc = struct.Struct(">I")
_MARK = PROPERTY_TIMER_DEQUEUE_MS.encode()
# An idle timer moves its place on when so much was written: it bounds what the next start reads.
STEP_BYTES = 16 << 20
# Further back nobody looks: a place that old was left by somebody who did not keep it.
MOST_BYTES = 1 << 30

DeliveryKey = tuple[str, str, int, str, str, str, int]
"""What a delivered message and the one in the timer topic have in common."""


class DeliveryPlace:
    """The file. Deliveries that the checkpoint does not cover lie at ``offset`` in the log or behind it."""

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage = storage
        self._path = f"{root}/{NAME}"
        self._file: SparseFile | None = None
        self.offset = -1

    def load(self) -> int | None:
        """What was saved last; None when nothing is known."""
        if not self._storage.exists(self._path):
            return None
        data = self._storage.read_file(self._path)[: _body.size + _crc.size]
        if len(data) < _body.size + _crc.size or _crc.unpack_from(data, _body.size)[0] != zlib.crc32(
            data[: _body.size]
        ):
            return None
        magic, offset = _body.unpack_from(data)
        return int(offset) if magic == _MAGIC else None

    def save(self, offset: int, *, durable: bool = False) -> None:
        """Write a place; only the first one has to be ``durable``, any older one will do as well."""
        if offset == self.offset:
            return
        if self._file is None:
            self._file = self._storage.open_sparse(self._path, _SIZE, create=True)
        body = _body.pack(_MAGIC, offset)
        self._file.write(0, body + _crc.pack(zlib.crc32(body)))
        if durable:
            make_durable(self._file)
        self.offset = offset

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Delivered:
    """The deliveries found in the log, each to be left out once."""

    def __init__(self) -> None:
        self._found: Counter[DeliveryKey] = Counter()
        self.until = 0
        """When the last of them was delivered, by a clock that may have been ahead of today's."""

    def __bool__(self) -> bool:
        return bool(self._found)

    def find(self, store: ServiceStore, begin: int) -> int:
        """Look through the log from a place on; the end of the timer topic's queue as far as it is there."""
        rolled_end = 0
        for record in _records(store, max(begin, store.max_physical_offset - MOST_BYTES)):
            if _MARK in bytes(record.properties_bytes):
                key = delivery_key(record, record.topic, record.queue_id)
                if key is not None:
                    self._found[key] += 1
                    when = record.properties.get(PROPERTY_TIMER_DEQUEUE_MS, "")
                    if when.isascii() and when.isdigit() and len(when) < 19:
                        self.until = max(self.until, int(when))
                if record.topic == TIMER_TOPIC:
                    rolled_end = record.queue_offset + 1
        return rolled_end

    def take(self, record: StoredRecord, topic: str, queue_id: int, roll_times: str) -> bool:
        """Whether a message that is about to be put to a place is there already. Asked once for each."""
        key = delivery_key(record, topic, queue_id, roll_times)
        if key is None or not self._found.get(key):
            return False
        self._found[key] -= 1
        if not self._found[key]:
            del self._found[key]
        return True

    def forget(self) -> None:
        """All that was under way at the crash is through."""
        self._found.clear()
        self.until = 0


def delivery_key(
    record: StoredRecord, topic: str, queue_id: int, roll_times: str | None = None
) -> DeliveryKey | None:
    """None for what no timer delivered: the topic is neither the real one nor, for a roll, the timer's."""
    properties = record.properties
    real, out = properties.get(PROPERTY_REAL_TOPIC), properties.get(PROPERTY_TIMER_OUT_MS)
    if out is None or real is None or topic not in (real, TIMER_TOPIC):
        return None
    # A message that has rolled keeps its count: it tells copies in the timer topic apart.
    times = properties.get(PROPERTY_TIMER_ROLL_TIMES, "") if roll_times is None else roll_times
    return topic, real, queue_id, out, record.unique_key or "", times, record.born_timestamp


def _records(store: ServiceStore, begin: int) -> Iterator[StoredRecord]:
    """Every record of the log from a place on, in order."""
    position = max(begin, store.min_physical_offset)
    file_size = store.config.mapped_file_size_commit_log
    while position < store.max_physical_offset:
        record = store.lookup(position)
        if record is None:  # the blank that closes a file
            position += file_size - position % file_size
            continue
        yield record
        position += record.size
