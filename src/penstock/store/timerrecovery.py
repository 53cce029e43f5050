"""Where a timer goes on after a stop or a crash (store format, section 15.8).

The timer log is the truth. Numbered as the code below:

1. The log ends behind its last good unit. From the position flushed last on, every unit is looked at.
2. Units at the end whose message the commit log no longer has are cut: their offsets will be given to other
   messages.
3. What the wheel holds must agree with the log, slot by slot. If not, or if there was no wheel, it is made
   again from the whole log; otherwise only the units behind the flushed position are added.
4. Messages up to the last unit are in the wheel; further ones up to the checkpoint were delivered at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.format.timerunit import (
    TIMER_MAGIC_DELETE,
    TIMER_UNIT_SIZE,
    WHEEL_SLOTS,
    WHEEL_SLOTS_TOTAL,
    TimerCheckpoint,
)
from penstock.message.topic import TIMER_TOPIC
from penstock.store.face import ServiceStore, StoredRecord
from penstock.store.timerlog import ScannedUnit, TimerLog
from penstock.store.timerwheel import TimerWheel

BLANK_SLOTS = 60


@dataclass(frozen=True, slots=True)
class TimerRecovery:
    """What recovery found. ``cut`` counts the units dropped because their message is gone.

    Messages below ``replay_before`` were handled once, but their units are lost: those that fired before
    ``read_time`` are not to be delivered again.
    """

    read_time: int
    queue_offset: int
    replay_before: int
    log_end: int
    cut: int
    wheel_rebuilt: bool


def message_behind(store: ServiceStore, physical_offset: int, size: int) -> StoredRecord | None:
    """The timer message a unit stands for, or None when something else or nothing is there."""
    if physical_offset < store.min_physical_offset or physical_offset + size > store.max_physical_offset:
        return None
    record = store.lookup(physical_offset)
    if record is None or record.topic != TIMER_TOPIC or record.size != size:
        return None
    return record


def recover(
    store: ServiceStore, log: TimerLog, wheel: TimerWheel, checkpoint: TimerCheckpoint, now: int
) -> TimerRecovery:
    """Bring log and wheel into agreement with each other and with the store. Both are open and loaded."""
    precision = wheel.precision_ms
    oldest = now // precision * precision - (WHEEL_SLOTS_TOTAL - BLANK_SLOTS) * precision
    read_time = max(checkpoint.last_read_time, oldest)

    flushed = _flushed_position(log, checkpoint)
    good_end = flushed
    for unit in log.scan(flushed):
        good_end = unit.position + TIMER_UNIT_SIZE
    end, last, cut = _drop_dangling(store, log, good_end)
    log.truncate(end)

    rebuilt = wheel.is_new or not _agrees(log, wheel, read_time)
    if rebuilt:
        wheel.clear()
        _add(wheel, log.scan(log.begin_position), read_time)
    else:
        since = (
            flushed
            if wheel.log_position is None
            else max(min(wheel.log_position, flushed), log.begin_position)
        )
        _add(wheel, log.scan(since), read_time)

    queue_offset, replay_before = _queue_offset(store, checkpoint, end, last)
    return TimerRecovery(read_time, queue_offset, replay_before, end, cut, rebuilt)


def _flushed_position(log: TimerLog, checkpoint: TimerCheckpoint) -> int:
    """Where to begin the scan: the flushed position if a unit can begin there, else the log's head."""
    position = checkpoint.last_timer_log_flush_position
    if position < log.begin_position or position > log.end_position:
        return log.begin_position
    return log.begin_position if position % log.file_size % TIMER_UNIT_SIZE else position


def _drop_dangling(store: ServiceStore, log: TimerLog, end: int) -> tuple[int, StoredRecord | None, int]:
    """The end without units whose message is gone, the message of the last one left, and how many went.

    Units lie in the order of their messages, so the dangling ones are at the end. Messages that the commit
    log has cleaned away since are gone as well, but those units are old, and cutting them would cost nothing.
    """
    cut = 0
    while True:
        position = log.last_before(end)
        if position is None:
            return end, None, cut
        unit = log.read(position)
        if unit is not None:
            record = message_behind(store, unit.physical_offset, unit.size)
            if record is not None:
                return end, record, cut
            if unit.physical_offset < store.min_physical_offset:
                return end, None, cut
        end = position
        cut += 1


def _agrees(log: TimerLog, wheel: TimerWheel, read_time: int) -> bool:
    """Whether every slot still to come ends at a unit of the log that fires then."""
    for time, slot in wheel.used(read_time, read_time + WHEEL_SLOTS * wheel.precision_ms):
        unit = log.read(slot.last_position)
        if unit is None or (unit.write_time + unit.delay) // wheel.precision_ms != time // wheel.precision_ms:
            return False
    return True


def _add(wheel: TimerWheel, units: Iterable[ScannedUnit], read_time: int) -> None:
    for unit in units:
        if unit.fires_at >= read_time:
            slot = wheel.slot(unit.fires_at)
            if slot is None or slot.last_position < unit.position:
                wheel.add(unit.fires_at, unit.position, -1 if unit.magic & TIMER_MAGIC_DELETE else 1)


def _queue_offset(
    store: ServiceStore, checkpoint: TimerCheckpoint, log_end: int, last: StoredRecord | None
) -> tuple[int, int]:
    """The next message of the timer topic to take up, and below which offset messages may have fired."""
    known = min(checkpoint.last_timer_queue_offset, checkpoint.master_timer_queue_offset)
    reached = 0 if last is None else last.queue_offset + 1
    log_is_whole = log_end >= checkpoint.last_timer_log_flush_position
    offset = max(reached, known) if log_is_whole else reached
    low = max(store.min_offset(TIMER_TOPIC, 0), 0)
    high = max(store.max_offset(TIMER_TOPIC, 0), 0)
    return max(low, min(offset, high)), 0 if log_is_whole else known
