"""Op messages: which half messages are over (store format, section 16.4).

A committed or rolled back half message stays in its queue; an op message names it by its queue offset. Many
names share one op message, so they wait a moment in memory. What a crash loses there is a half message that
looks open: its producer is asked once more.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass, field

from penstock.message import Message, encode_properties
from penstock.message.properties import PROPERTY_TAGS, PROPERTY_WAIT_STORE_MSG_OK
from penstock.message.topic import TRANS_OP_HALF_TOPIC
from penstock.store.face import ServiceStore, StoredRecord
from penstock.store.servicethread import ServiceThread
from penstock.store.transactionmetrics import TransactionMetrics

_log = logging.getLogger(__name__)

REMOVE_TAG = "d"
# Names that wait for one queue; the next one is written at once instead.
CAPACITY = 20_000
_POLL_MS = 100
METRICS_INTERVAL_SECONDS = 10
_PROPERTIES = encode_properties({PROPERTY_WAIT_STORE_MSG_OK: "true", PROPERTY_TAGS: REMOVE_TAG})


def parse_op_body(record: StoredRecord) -> list[int]:
    """The half queue offsets an op message names. Anything that is no number is skipped.

    Brokers of 4.x wrote one number without a comma; it reads the same way.
    """
    if record.properties.get(PROPERTY_TAGS) != REMOVE_TAG:
        return []
    text = bytes(record.body).decode("utf-8", "replace")
    return [int(part) for part in text.split(",") if part.isascii() and part.isdigit() and len(part) < 20]


@dataclass(slots=True)
class _Pending:
    """What one half queue has waiting. ``unseen`` are op messages that are written but not yet in a queue."""

    names: dict[int, None] = field(default_factory=dict)
    characters: int = 0
    written_at: float = 0.0
    unseen: deque[tuple[int, frozenset[int]]] = field(default_factory=deque)


class TransactionOps:
    """Collects the half offsets that are over and writes them in batches. Safe to call from many threads."""

    def __init__(self, store: ServiceStore) -> None:
        self._store = store
        # The first is held for moments: nobody who marks waits for the disk. The second while writing.
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._pending: dict[int, _Pending] = {}
        self._metrics: TransactionMetrics | None = None
        self._metrics_at = store.clock.monotonic()
        self._thread = ServiceThread("penstock-transaction-ops", self._step)

    def start(self) -> None:
        """Write batches on a thread from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and write what waits."""
        self._thread.stop()
        self.flush()
        if self._metrics is not None:
            self._metrics.persist()

    @property
    def metrics(self) -> TransactionMetrics:
        """Open transactions by topic. Written every ten seconds by the thread, and at a stop."""
        with self._lock:
            if self._metrics is None:
                path = f"{self._store.path}/config/transactionMetrics"
                self._metrics = TransactionMetrics(self._store.storage, path, self._store.clock)
                self._metrics.load()
            return self._metrics

    def mark(
        self, half_offset: int, queue_id: int = 0, *, write: bool = True, topic: str | None = None
    ) -> None:
        """The half message at this queue offset is over. It counts as over at once for ``is_over``.

        ``write`` False leaves also a full batch to the thread: for a caller who must not wait for the disk.
        ``topic`` is the real topic: it has one open transaction less.
        """
        with self._lock:
            pending = self._of(queue_id)
            new = False
            if half_offset not in pending.names:
                pending.names[half_offset] = None
                pending.characters += len(str(half_offset)) + 1
                new = True
            large = self._is_large(pending)
        if new and topic is not None:
            self.metrics.add(topic, -1)
        if write and large:
            with self._writing:
                self._write(queue_id, pending)

    def is_over(self, half_offset: int, queue_id: int = 0) -> bool:
        """Whether the offset is named here but perhaps not yet where a reader of the op queue sees it."""
        with self._lock:
            pending = self._pending.get(queue_id)
            if pending is None:
                return False
            if half_offset in pending.names:
                return True
            self._forget_seen(queue_id, pending)
            return any(half_offset in names for _, names in pending.unseen)

    def run_once(self) -> int:
        """Write the queues whose batch is large or old enough; the number of op messages written."""
        interval = self._store.config.transaction_op_batch_interval_ms / 1000
        now = self._store.clock.monotonic()
        written = 0
        with self._writing:
            for queue_id, pending in list(self._pending.items()):
                if pending.names and (self._is_large(pending) or now - pending.written_at >= interval):
                    written += self._write(queue_id, pending)
        return written

    def flush(self) -> int:
        """Write everything that waits; the number of op messages written."""
        written = 0
        with self._writing:
            for queue_id, pending in list(self._pending.items()):
                while pending.names:
                    if not self._write(queue_id, pending):
                        break
                    written += 1
        return written

    def _step(self) -> int:
        self.run_once()
        now = self._store.clock.monotonic()
        if self._metrics is not None and now - self._metrics_at >= METRICS_INTERVAL_SECONDS:
            self._metrics_at = now
            self._metrics.persist()
        return _POLL_MS

    def _of(self, queue_id: int) -> _Pending:
        pending = self._pending.get(queue_id)
        if pending is None:
            pending = self._pending[queue_id] = _Pending(written_at=self._store.clock.monotonic())
        return pending

    def _is_large(self, pending: _Pending) -> bool:
        limit = self._store.config.transaction_op_msg_max_size
        return pending.characters > limit or len(pending.names) > CAPACITY

    def _write(self, queue_id: int, pending: _Pending) -> int:
        """Write one op message, 1 when it is stored: then names leave ``pending``. ``_writing`` is held."""
        names: list[int] = []
        length = 0
        with self._lock:
            for name in pending.names:
                if length >= self._store.config.transaction_op_msg_max_size:
                    break
                names.append(name)
                length += len(str(name)) + 1
        if not names:
            return 0
        body = "".join(f"{name}," for name in names).encode()
        outcome = self._store.put_raw(
            Message(TRANS_OP_HALF_TOPIC, body, queue_id=queue_id, raw_properties=_PROPERTIES)
        )
        pending.written_at = self._store.clock.monotonic()
        if not outcome.ok:
            _log.warning("op message for %d half messages: %s, kept for later", len(names), outcome.status)
            return 0
        with self._lock:
            for name in names:
                del pending.names[name]
            pending.characters -= length
            self._forget_seen(queue_id, pending)
            pending.unseen.append((outcome.queue_offset, frozenset(names)))
        return 1

    def _forget_seen(self, queue_id: int, pending: _Pending) -> None:
        """Drop what a reader of the op queue finds by itself."""
        if pending.unseen:
            seen = self._store.max_offset(TRANS_OP_HALF_TOPIC, queue_id)
            while pending.unseen and pending.unseen[0][0] < seen:
                pending.unseen.popleft()
