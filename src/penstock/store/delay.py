"""Delivery of messages with a delay level (store format, section 15.2).

Each level has a queue of ``SCHEDULE_TOPIC_XXXX``, in order of time because every message of a queue waits
equally long. The service keeps one offset per level, the next unit to look at, in ``delayOffset.json``.

**At least once.** An offset is written only after everything delivered below it is on disk, so a message is
never lost. After a crash delivery goes on from the offset written last: what was delivered since (at most
``flush_delay_offset_interval_ms``) comes again. A stop writes the offsets: nothing comes twice after it.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

from penstock.message.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from penstock.store.dataversion import DataVersion
from penstock.store.delaypipeline import POLL_MS as IN_FLIGHT_POLL_MS
from penstock.store.delaypipeline import DelayLine
from penstock.store.face import HOPELESS, ServiceStore, StoredRecord, publish
from penstock.store.jsonfile import JsonFile
from penstock.store.rewrite import copy_record, real_place
from penstock.store.servicethread import ServiceThread

_log = logging.getLogger(__name__)

POLL_MS = 100
DELIVERING_THREADS = 4
_VERSION_STEP = 200


class ScheduleMessageService:
    """Puts delayed messages into their real queue when their time has come.

    ``run_once`` may be called by a test or a loop of the caller's; ``start`` calls it on a thread. Calls do
    not overlap.
    """

    def __init__(self, store: ServiceStore, *, executor: Executor | None = None) -> None:
        """``executor`` delivers where ``enable_schedule_async_deliver`` is on; None: threads of its own."""
        self._store = store
        self._asynchronous = store.config.enable_schedule_async_deliver
        self._executor = executor
        self._own_executor: ThreadPoolExecutor | None = None
        self._lines: dict[int, DelayLine] = {}
        self._file = JsonFile(store.storage, f"{store.path}/config/delayOffset.json", decode=_decode)
        self._delays = store.config.delay_levels_ms
        self._offsets: dict[int, int] = {}
        self._version = DataVersion()
        self._changes = 0
        self._lock = threading.Lock()
        self._persisted_at = store.clock.monotonic()
        self._thread = ServiceThread("penstock-delay", self._step)

    @property
    def offsets(self) -> dict[int, int]:
        """The next queue offset of each level that was ever looked at."""
        return dict(self._offsets)

    def load(self) -> None:
        """Read the offsets of an earlier run; each is moved into what its queue still holds."""
        offsets, self._version = self._file.load() or ({}, DataVersion())
        self._offsets = {level: self._clamp(level, offset) for level, offset in offsets.items()}

    def persist(self) -> None:
        """Make the progress so far durable. The delivered messages are flushed first."""
        with self._lock:
            self._persist()

    def start(self) -> None:
        """Deliver on a thread from now on. ``load`` comes first."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and write the offsets: a message delivered before is not delivered again."""
        self._thread.stop()
        with self._lock:
            self._stop_lines()
            self._persist()

    def abandon(self) -> None:
        """End the thread and keep nothing, as a killed process would."""
        self._thread.stop()
        self._stop_lines()

    def run_once(self, now: int | None = None) -> int:
        """Deliver everything that is due; the number of messages delivered. Asynchronously: have it
        delivered, and count what was since the last call.

        A level that fails is tried again from the same message by the next call and does not stop the others;
        the first error is raised when all had their turn.
        """
        with self._lock:
            moment = self._store.clock.now_ms() if now is None else now
            delivered = 0
            failure: Exception | None = None
            for level in range(1, len(self._delays) + 1):
                try:
                    run = self._run_line if self._asynchronous else self._run_level
                    delivered += run(level, moment)
                except Exception as error:
                    _log.warning("delay level %d stands at offset %d: %s", level, self._offsets[level], error)
                    failure = failure or error
            if delivered:
                publish(self._store)
            interval = self._store.config.flush_delay_offset_interval_ms / 1000
            if self._store.clock.monotonic() - self._persisted_at >= interval:
                self._persist()
            if failure is not None:
                raise failure
            return delivered

    def _step(self) -> int:
        self.run_once()
        return IN_FLIGHT_POLL_MS if any(line.in_flight for line in self._lines.values()) else POLL_MS

    def _run_line(self, level: int, now: int) -> int:
        """One level, asynchronously: settle what was delivered, put what is due into its line."""
        queue_id = level - 1
        line = self._lines.get(level)
        if line is None:
            if level not in self._offsets and self._store.max_offset(SCHEDULE_TOPIC, queue_id) <= 0:
                return 0
            self._save(level, self._clamp(level, self._offsets.get(level, 0)))
            line = self._lines[level] = DelayLine(level, self._workers(), self._store.clock)
        delivered, waiting = self._settle(level, line)
        offset = self._offsets[level] + waiting
        if not waiting:
            offset = self._clamp(level, offset)
            self._save(level, offset)
        while line.has_room and not self._thread.stopping:
            unit = self._store.queue_unit(SCHEDULE_TOPIC, queue_id, offset)
            if unit is None or self._due(level, unit[2], now) > now:
                break
            record = self._store.lookup(unit[0])
            by_record = record is not None and unit[2] < record.store_timestamp
            if record is not None and by_record and self._due_by_record(level, record, now) > now:
                break
            # Of a record that is gone nothing is left to deliver; its place in the line keeps the count.
            line.offer(offset, partial(self._deliver, record, offset) if record is not None else _nothing)
            offset += 1
        line.push()
        return delivered

    def _settle(self, level: int, line: DelayLine) -> tuple[int, int]:
        """Keep the progress of a line: what was delivered since, and how many are still in it."""
        delivered, waiting = line.settle()
        if delivered:
            self._save(level, self._offsets[level] + delivered)
        return delivered, waiting

    def _workers(self) -> Executor:
        if self._executor is not None:
            return self._executor
        if self._own_executor is None:
            self._own_executor = ThreadPoolExecutor(DELIVERING_THREADS, "penstock-delay-deliver")
        return self._own_executor

    def _stop_lines(self) -> None:
        for level, line in self._lines.items():
            line.stop()
            self._settle(level, line)
        self._lines.clear()
        if self._own_executor is not None:
            self._own_executor.shutdown()
            self._own_executor = None

    def _run_level(self, level: int, now: int) -> int:
        delivered = 0
        queue_id = level - 1
        if level not in self._offsets and self._store.max_offset(SCHEDULE_TOPIC, queue_id) <= 0:
            return 0
        offset = self._clamp(level, self._offsets.get(level, 0))
        self._save(level, offset)
        while not self._thread.stopping:
            unit = self._store.queue_unit(SCHEDULE_TOPIC, queue_id, offset)
            if unit is None:
                break
            physical_offset, _, tags_code = unit
            if self._due(level, tags_code, now) > now:
                break
            record = self._store.lookup(physical_offset)
            if record is not None:
                # With extension files, or units another program made, the unit may not hold a time at all.
                if tags_code < record.store_timestamp and self._due_by_record(level, record, now) > now:
                    break
                if not self._deliver(record, offset):
                    break
                delivered += 1
            offset += 1
            self._save(level, offset)
        return delivered

    def _due(self, level: int, tags_code: int, now: int) -> int:
        """When a unit is due. A time further away than the level's delay means the clock was set back."""
        return now if tags_code > now + self._delays[level - 1] else tags_code

    def _due_by_record(self, level: int, record: StoredRecord, now: int) -> int:
        return self._due(level, record.store_timestamp + self._delays[level - 1], now)

    def _deliver(self, record: StoredRecord, offset: int) -> bool:
        """Whether the unit is done with; False when it must be tried again."""
        place = real_place(record)
        if place is None or place[0] == TRANS_HALF_TOPIC:
            # A half message outside its topic could never be committed.
            _log.warning("delayed message at %d (offset %d) has no real topic: dropped", *_at(record, offset))
            return True
        # Stored as it is, DELAY and all: a put with hooks would delay it again.
        outcome = self._store.put_raw(copy_record(record, topic=place[0], queue_id=place[1], wait=False))
        if outcome.ok:
            return True
        if outcome.status in HOPELESS:
            _log.error("delayed message at %d (offset %d): %s, dropped", *_at(record, offset), outcome.status)
            return True
        return False

    def _clamp(self, level: int, offset: int) -> int:
        low = self._store.min_offset(SCHEDULE_TOPIC, level - 1)
        high = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
        return max(low, min(offset, high), 0)

    def _save(self, level: int, offset: int) -> None:
        if self._offsets.get(level) == offset:
            return
        self._offsets[level] = offset
        self._changes += 1
        if self._changes % _VERSION_STEP == 0:
            self._version = self._version.next(self._store.clock.now_ms())

    def _persist(self) -> None:
        self._persisted_at = self._store.clock.monotonic()
        self._store.flush()
        table = {"dataVersion": self._version.to_json(), "offsetTable": dict(sorted(self._offsets.items()))}
        self._store.storage.makedirs(f"{self._store.path}/config")
        self._file.save(table)


def _nothing() -> bool:
    return True


def _at(record: StoredRecord, offset: int) -> tuple[int, int]:
    return record.physical_offset, offset


def _decode(content: Any) -> tuple[dict[int, int], DataVersion]:
    """Offsets and version of a file; ValueError when it is none. Files of RocketMQ 4.x have no version."""
    if not isinstance(content, dict):
        raise ValueError("no object with an offsetTable")
    offsets = content.get("offsetTable") or {}
    if not isinstance(offsets, dict):
        raise ValueError("offsetTable is no object")
    table: dict[int, int] = {}
    for level, offset in offsets.items():
        number = int(level)
        if number < 1 or type(offset) is not int:
            raise ValueError(f"level {level} has no offset: {offset!r}")
        table[number] = offset
    return table, DataVersion.from_json(content.get("dataVersion"))
