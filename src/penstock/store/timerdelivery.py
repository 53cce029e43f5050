"""What becomes of a timer message when its time has come (store format, section 15.7)."""

from __future__ import annotations

import logging
from array import array
from dataclasses import dataclass

from penstock.format.timerunit import TIMER_MAGIC_DELETE, TIMER_MAGIC_ROLL, TimerUnit
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
    deleted_keys: set[str]


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
        slot = DueSlot(time, self._store.max_physical_offset, array("q"), set())
        position = last_position
        while position >= 0:
            unit = self._log.read(position)
            if unit is None or (unit.write_time + unit.delay) // precision != time // precision:
                _log.warning("timer slot %d: its chain breaks off at %d", time, position)
                report.dropped += 1
                break
            if unit.magic & TIMER_MAGIC_DELETE and not unit.magic & TIMER_MAGIC_ROLL:
                self._note_deleted(unit, slot.deleted_keys)
            else:
                slot.waiting.append(position)
            if unit.previous >= position:
                _log.warning("timer slot %d: unit %d leads forwards", time, position)
                break
            position = unit.previous
        return slot

    def drain(self, slot: DueSlot, report: TimerReport, most: int) -> bool:
        """Put messages of a slot, so many at ``most``; False when one must be tried again later."""
        while slot.waiting and most > 0:
            unit = self._log.read(slot.waiting[-1])
            record = None if unit is None else message_behind(self._store, unit.physical_offset, unit.size)
            if unit is None or record is None:
                _log.warning("the timer message of unit %d is gone", slot.waiting[-1])
                report.dropped += 1
            elif slot.deleted_keys and _keys_of(record) & slot.deleted_keys:
                self._count(record, -1)
                report.deleted += 1
            elif not self.put(record, unit.write_time, bool(unit.magic & TIMER_MAGIC_ROLL), report):
                return False
            slot.waiting.pop()
            most -= 1
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

    def count_enqueued(self, record: StoredRecord) -> None:
        """Count a message that joined the wheel; one that deletes another counts against it."""
        self._count(record, -1 if PROPERTY_TIMER_DEL_UNIQKEY in record.properties else 1)

    def _note_deleted(self, unit: TimerUnit, keys: set[str]) -> None:
        record = message_behind(self._store, unit.physical_offset, unit.size)
        key = None if record is None else record.properties.get(PROPERTY_TIMER_DEL_UNIQKEY)
        if record is not None and key is not None:
            keys.add(key)
            self._count(record, 1)

    def _count(self, record: StoredRecord, count: int) -> None:
        place = real_place(record)
        if place is not None:
            self._metrics.add(place[0], count)


def _keys_of(record: StoredRecord) -> set[str]:
    """The names under which a message can be deleted: its unique key, bare or behind its topic and a plus."""
    unique_key = record.unique_key
    place = real_place(record)
    if not unique_key:
        return set()
    return {unique_key} if place is None else {unique_key, f"{place[0]}+{unique_key}"}
