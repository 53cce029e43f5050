"""What becomes of a timer message when its time has come (store format, section 15.7)."""

from __future__ import annotations

import logging
from array import array
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from penstock._native.timercopy import copy_due
from penstock.format.record import queue_offset_of
from penstock.format.timerunit import TIMER_MAGIC_ROLL, TimerUnit
from penstock.message.properties import (
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_ROLL_TIMES,
)
from penstock.message.topic import TIMER_TOPIC
from penstock.store.face import HOPELESS, ServiceStore, StoredRecord
from penstock.store.rewrite import copy_record, parse_number, real_place
from penstock.store.timerdelivered import Delivered
from penstock.store.timerlog import TimerLog
from penstock.store.timermetrics import TimerMetrics
from penstock.store.timerrecovery import message_behind

_log = logging.getLogger(__name__)

_HELD = TIMER_TOPIC.encode()
# Copies of so many bytes are made before they are put: it bounds the memory of a slot of large messages.
_RUN_BYTES = 1 << 20

NEVER_ENQUEUED = 2**63 - 1
"""The enqueue time of a message that was due before it reached the wheel."""


@dataclass(slots=True)
class TimerReport:
    """What a step did. ``dropped`` are units without a message, and messages no topic takes; ``repeated`` are
    messages that were delivered already when the process was killed.
    """

    enqueued: int = 0
    delivered: int = 0
    rolled: int = 0
    deleted: int = 0
    dropped: int = 0
    repeated: int = 0


@dataclass(slots=True)
class DueSlot:
    """The units of one slot whose messages still have to be put, newest first, and the keys that delete some.

    Eight bytes for each: a slot may hold millions. Kept while its puts fail: a repetition goes on with the
    message that failed. ``log_end`` is where the commit log ended before the first of them was put.
    """

    time: int
    log_end: int
    waiting: array[int]
    deleted_keys: set[bytes]


class TimerDelivery:
    """Reads slots and puts their messages where they belong."""

    def __init__(self, store: ServiceStore, log: TimerLog, metrics: TimerMetrics) -> None:
        self._store = store
        self._log = log
        self._metrics = metrics
        self.delivered = Delivered()
        """What was put behind the checkpoint that this run began with."""
        self.rolled_end = 0
        """Messages that rolled lie before this offset of the timer topic."""

    def open_slot(self, time: int, last_position: int, precision: int, report: TimerReport) -> DueSlot:
        """Follow a slot's chain from its newest unit.

        A chain only ever leads back in the log and to units of the same tick; where it does not, it ends.
        """
        log_end = self._store.max_physical_offset
        chain = self._log.chain(last_position, time // precision, precision)
        if chain.fault is not None:
            _log.warning("timer slot %d: its chain is cut: %s", time, chain.fault)
            report.dropped += chain.broken
        keys: set[bytes] = set()
        for position in chain.deletes:
            unit = self._log.read(position)
            if unit is not None:
                self._note_deleted(unit, keys)
        return DueSlot(time, log_end, chain.units, keys)

    def drain(self, slot: DueSlot, report: TimerReport, most: int) -> bool:
        """Put messages of a slot, so many at ``most``; False when one must be tried again later."""
        while slot.waiting and most > 0:
            done = self._drain_run(slot.waiting[: -most - 1 : -1], slot.deleted_keys, report)
            if not done and not self._drain_one(slot, report):
                return False
            del slot.waiting[-(done or 1) :]
            most -= done or 1
        return True

    def put_late(self, records: list[Any], report: TimerReport) -> int:
        """Put messages that never were in the wheel; how many, from the first one on."""
        if not records or self.delivered:
            return 0
        times = array("q", [NEVER_ENQUEUED]) * len(records)
        return self._put_run(records, times, False, frozenset(), report)[1]

    def _drain_run(self, units: array[int], deleted: Set[bytes], report: TimerReport) -> int:
        """Put the messages of units together, oldest first; how many, up to the first that is not like the
        others, or none after a crash.
        """
        if self.delivered:
            return 0
        times, places, kind = array("q"), [], -1
        for _, _, magic, write_time, _, physical_offset, size, _, _ in self._log.read_many(units):
            if kind != magic & TIMER_MAGIC_ROLL and kind >= 0:
                break
            kind = magic & TIMER_MAGIC_ROLL
            times.append(write_time)
            places.append((physical_offset, size))
        records = self._store.records_at(places)
        counts, done = self._put_run(records, times, bool(kind), deleted, report)
        for topic, count in counts.items():
            self._metrics.add(topic, -count)
        return done

    def _put_run(
        self, records: list[Any], times: array[int], roll: bool, deleted: Set[bytes], report: TimerReport
    ) -> tuple[Counter[str], int]:
        """Append copies of messages; how many of each real topic, and of all, from the first one on."""
        config = self._store.config
        most = min(config.max_message_size + 65536, config.mapped_file_size_commit_log - 8)
        copies, begins, slots, queues = copy_due(
            records, times, _HELD, self._store.clock.now_ms(), roll, deleted, config.max_message_size, most,
            _RUN_BYTES,
        )  # fmt: skip
        counts: Counter[str] = Counter()
        if not slots:
            return counts, 0
        if roll:
            done = self._store.append_records(copies, array("i", bytes(4 * len(slots))), [(TIMER_TOPIC, 0)])
        else:
            done = self._store.append_records(copies, slots, queues)
        for number, count in Counter(slots[:done]).items():
            counts[queues[number][0]] += count
        if roll and done:
            self.rolled_end = queue_offset_of(memoryview(copies)[begins[done - 1] :]) + 1
            report.rolled += done
        else:
            report.delivered += done
        return counts, done

    def _drain_one(self, slot: DueSlot, report: TimerReport) -> bool:
        """Put the message of the next unit; False when it must be tried again later."""
        unit = self._log.read(slot.waiting[-1])
        record = None if unit is None else message_behind(self._store, unit.physical_offset, unit.size)
        if unit is None or record is None:
            _log.warning("the timer message of unit %d is gone", slot.waiting[-1])
            report.dropped += 1
        elif slot.deleted_keys and _keys_of(record) & slot.deleted_keys:
            self._count(record, -1)
            report.deleted += 1
        else:
            return self.put(record, unit.write_time, bool(unit.magic & TIMER_MAGIC_ROLL), report)
        return True

    def put(self, record: StoredRecord, enqueue_time: int, roll: bool, report: TimerReport) -> bool:
        """Put one message: back into the timer topic when it rolls, else where it belongs.

        True when it is done with. A message that only deletes another is done with when its time is over.
        """
        properties = dict(record.properties)
        place = (TIMER_TOPIC, 0) if roll else real_place(record)
        if place is None or (not roll and PROPERTY_TIMER_DEL_UNIQKEY in properties):
            report.dropped += place is None
            return True
        properties[PROPERTY_TIMER_ENQUEUE_MS] = str(enqueue_time)
        properties[PROPERTY_TIMER_DEQUEUE_MS] = str(self._store.clock.now_ms())
        if roll:
            times = parse_number(properties.get(PROPERTY_TIMER_ROLL_TIMES)) or 0
            properties[PROPERTY_TIMER_ROLL_TIMES] = str(times + 1)
        topic, queue_id = place
        rolled = properties.get(PROPERTY_TIMER_ROLL_TIMES, "")
        if self.delivered and self.delivered.take(record, topic, queue_id, rolled):
            if enqueue_time != NEVER_ENQUEUED:
                self._count(record, -1)
            report.repeated += 1
            return True
        # Waiting for each flush would cost a sync per message: progress is kept only after a flush of all.
        outcome = self._store.put_raw(
            copy_record(record, topic=topic, queue_id=queue_id, properties=properties, wait=False)
        )
        if not outcome.ok and outcome.status not in HOPELESS:
            return False
        if enqueue_time != NEVER_ENQUEUED:
            self._count(record, -1)
        if not outcome.ok:
            _log.error("timer message at %d: %s, dropped", record.physical_offset, outcome.status)
            report.dropped += 1
        elif roll:
            self.rolled_end = outcome.queue_offset + 1
            report.rolled += 1
        else:
            report.delivered += 1
        return True

    def _note_deleted(self, unit: TimerUnit, keys: set[bytes]) -> None:
        record = message_behind(self._store, unit.physical_offset, unit.size)
        key = None if record is None else record.properties.get(PROPERTY_TIMER_DEL_UNIQKEY)
        if record is not None and key is not None:
            keys.add(key.encode())
            self._count(record, 1)

    def _count(self, record: StoredRecord, count: int) -> None:
        place = real_place(record)
        if place is not None:
            self._metrics.add(place[0], count)


def _keys_of(record: StoredRecord) -> set[bytes]:
    """The names under which a message can be deleted: its unique key, bare or behind its topic and a plus."""
    unique_key = record.unique_key
    place = real_place(record)
    if not unique_key:
        return set()
    keys = {unique_key} if place is None else {unique_key, f"{place[0]}+{unique_key}"}
    return {key.encode() for key in keys}
