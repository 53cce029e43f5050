"""Timer messages: delivery at an arbitrary time (store format, sections 15.3 to 15.8).

A message with a time is stored under ``rmq_sys_wheel_timer``. This service takes it from there into the wheel
(*enqueue*), and when its tick is over out of the wheel into its real topic (*dequeue*). What is further away
than the wheel's window is put back into the timer topic half way (*roll*).

**Once, never early.** Progress becomes durable after everything it stands for: delivered messages, then the
timer log, then the wheel, then the checkpoint. A crash loses nothing; what was delivered since the last flush
(``timer_flush_interval_ms``) is found in the commit log and left out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from penstock._native.timerjoin import count_late
from penstock.errors import FlushFailed
from penstock.format.record import physical_offset_of, queue_offset_of
from penstock.format.timerjoin import NO_TIME
from penstock.format.timerunit import WHEEL_SLOTS_TOTAL, TimerCheckpoint
from penstock.message.properties import PROPERTY_TIMER_OUT_MS
from penstock.message.topic import TIMER_TOPIC
from penstock.store.dataversion import DataVersion
from penstock.store.face import ServiceStore, publish
from penstock.store.rewrite import parse_number
from penstock.store.servicethread import ServiceThread
from penstock.store.timercheckpoint import TimerCheckpointFile
from penstock.store.timerdelivered import STEP_BYTES, DeliveryPlace
from penstock.store.timerdelivery import NEVER_ENQUEUED, DueSlot, TimerDelivery, TimerReport
from penstock.store.timerhook import ScheduleHook
from penstock.store.timerlog import TimerLog
from penstock.store.timermetrics import TimerMetrics
from penstock.store.timerrecovery import BLANK_SLOTS, TimerRecovery, recover
from penstock.store.timerwheel import TimerWheel

_log = logging.getLogger(__name__)

_PULL = 1024
_CLEAN_SECONDS = 30.0
# So many messages are put before they are made readable together, and with a loop beside the timer.
_SHARE, _GENTLE_SHARE = 1024, 512
_REST_SECONDS = 0.001
# A clock set back further than this is believed; a smaller step is waited out.
_CLOCK_STEP_MS = 60_000


class TimerMessageStore:
    """The timer of one store. ``load`` first; then ``run_once`` as often as you like, or ``start``.

    Times: slots before ``read_time`` have been emptied; slots from ``write_time`` on are not due yet.
    """

    def __init__(self, store: ServiceStore) -> None:
        self._store = store
        config, root = store.config, store.path
        self._precision = config.timer_precision_ms
        self._window = _roll_window(config.timer_roll_window_slot) * self._precision
        self.log = TimerLog(store.storage, f"{root}/timerlog", config.mapped_file_size_timer_log)
        self.wheel = TimerWheel(
            store.storage,
            f"{root}/timerwheel",
            self._precision,
            snapshots=config.timer_wheel_snapshot_flush,
        )
        self.metrics = TimerMetrics(store.storage, f"{root}/config/timermetrics", store.clock)
        self._checkpoint_file = TimerCheckpointFile(store.storage, f"{root}/config/timercheck")
        self._checkpoint = TimerCheckpoint()
        self._place = DeliveryPlace(store.storage, str(root))
        self._delivery = TimerDelivery(store, self.log, self.metrics)
        self.on_delivered: Callable[[], object] = _nothing
        """Called on the timer's thread when messages were put into their topics and may be read."""
        self.gentle = False
        """Whether an event loop shares the interpreter: then the timer rests as long as it works."""
        self._open_slot: DueSlot | None = None
        self._replay_before = 0
        self._replay_fired_before = 0
        self._published = 0
        self._dirty = False
        self._stopping = False
        self._failure: FlushFailed | None = None
        self._lock = threading.RLock()
        self._flushed_at = self._cleaned_at = store.clock.monotonic()
        self._snapshot_at = float("-inf")
        self._thread = ServiceThread("penstock-timer", self._step)
        self.read_time = 0
        self.write_time = 0
        self.queue_offset = 0
        self.hook = ScheduleHook(self.wheel.message_count)
        """The put hook that knows how full the wheel is."""

    def load(self) -> TimerRecovery:
        """Read the files of an earlier run and bring them into agreement with the store."""
        with self._lock:
            self._checkpoint = self._checkpoint_file.load()
            self.metrics.load()
            self.log.load()
            now = self._store.clock.now_ms()
            found = recover(self._store, self.log, self.wheel, self._checkpoint, now)
            # Messages that wait in the topic join the slots of the time that passed meanwhile, so that those
            # which delete one another still meet; write_time moves on behind them.
            self.read_time = self.write_time = found.read_time
            self.queue_offset = found.queue_offset
            self._replay_before = found.replay_before
            self._replay_fired_before = self._checkpoint.last_read_time
            self._dirty = (found.wheel_rebuilt and found.log_end > 0) or found.cut > 0
            begin = self._place.load()
            if begin is not None:
                self._delivery.rolled_end = self._delivery.delivered.find(self._store, begin)
            # From here on until the first flush: what this run delivers is found by the next one too.
            end = self._store.max_physical_offset
            self._place.save(end if begin is None else min(begin, end), durable=True)
            return found

    def start(self) -> None:
        """Run on a thread from now on."""
        self._thread.start()

    @property
    def checkpoint(self) -> TimerCheckpoint:
        """The progress that is on disk."""
        return self._checkpoint

    def wake(self) -> None:
        """Have the thread look at the clock now."""
        self._thread.wake()

    def stop(self) -> None:
        """End the thread, make the progress durable and let go of the files."""
        self._thread.stop()
        with self._lock:
            self._stopping = True
            self._dirty = self._dirty or not self.wheel.is_new  # a wheel that was never used stays unwritten
            try:
                self.flush()
            finally:
                self.close()

    def abandon(self) -> None:
        """End the thread and keep nothing, as a killed process would."""
        self._thread.stop()
        self.close()

    def close(self) -> None:
        """Let go of the files as they are."""
        self.log.close()
        self.wheel.close()
        self._checkpoint_file.close()
        self._place.close()

    def run_once(self, now: int | None = None) -> TimerReport:
        """One step: take up new messages, empty the slots whose tick is over; now and then flush and clean.

        A put that fails ends the step; the next one goes on with the same message.
        """
        with self._lock:
            moment = self._store.clock.now_ms() if now is None else now
            report = TimerReport()
            self._published = 0
            tick = moment // self._precision * self._precision
            if self.write_time - tick > _CLOCK_STEP_MS and self._open_slot is None:
                self._go_back(tick)
            place, until = None, self._delivery.delivered.until
            # Again only for messages that rolled, and only while that leads on.
            while self._enqueue(moment, report) and place != (self.queue_offset, self.read_time):
                place = (self.queue_offset, self.read_time)
                self.write_time = max(self.write_time, tick)
                if not self._rolls_under_way:
                    self._dequeue(report)
                    # A clock that was set back has slots before it which were emptied already.
                    if self.read_time == self.write_time and self.read_time + self._precision > until:
                        self._delivery.delivered.forget()
                self._publish(report)
                if not self._rolls_under_way or not self._rolls_readable:
                    break
            self._publish(report)
            elapsed = self._store.clock.monotonic()
            if (elapsed - self._flushed_at) * 1000 >= self._store.config.timer_flush_interval_ms:
                self.flush()
            if elapsed - self._cleaned_at >= _CLEAN_SECONDS:
                self.clean()
            return report

    def flush(self) -> None:
        """Make the progress durable, if there was any. The order is what keeps messages from being lost.

        A sync that failed is terminal: from then on every flush raises the same error and no progress is
        kept, so that the next run delivers again what this one cannot prove.
        """
        with self._lock:
            self._flushed_at = self._store.clock.monotonic()
            if self._failure is not None:
                raise self._failure
            if not self._dirty:
                if self._store.max_physical_offset - self._place.offset > STEP_BYTES:
                    self._place.save(self._delivered_from())
                return
            try:
                self._flush()
            except FlushFailed as error:
                self._failure = error
                raise
            self.metrics.persist()

    def clean(self) -> int:
        """Delete timer log files whose messages the commit log no longer has; how many."""
        with self._lock:
            self._cleaned_at = self._store.clock.monotonic()
            return self.log.delete_before(self._store.min_physical_offset)

    def _flush_wheel(self) -> None:
        """A whole copy is large: now and then is enough, the timer log has the rest."""
        now = self._store.clock.monotonic()
        interval = self._store.config.timer_wheel_snapshot_interval_ms / 1000
        if self._store.config.timer_wheel_snapshot_flush:
            if now - self._snapshot_at < interval and not self._stopping:
                return
            self._snapshot_at = now
        self.wheel.flush(self.log.flushed_position)

    def _flush(self) -> None:
        delivered_from = self._delivered_from()
        self._store.flush()
        self.log.flush()
        self._flush_wheel()
        before = self._checkpoint
        version = DataVersion(before.state_version, before.version_counter, before.version_timestamp)
        version = version.next(self._store.clock.now_ms(), before.state_version)
        self._checkpoint = TimerCheckpoint(
            self.read_time,
            self.log.flushed_position,
            self.queue_offset,
            self.queue_offset,
            version.state_version,
            version.timestamp,
            version.counter,
        )
        self._checkpoint_file.save(self._checkpoint)
        self._place.save(delivered_from)
        self._dirty = False

    def _delivered_from(self) -> int:
        """Where in the log to look for deliveries that the progress of this moment does not cover."""
        if self._delivery.delivered:
            return self._place.offset  # not all of the last crash is sorted out yet
        return self._store.max_physical_offset if self._open_slot is None else self._open_slot.log_end

    def _step(self) -> int:
        self.run_once()
        if self._rolls_under_way:
            return 2
        idle = max(10, 100 * self._precision // 1000)
        # Awake when the tick is over, not some time after it.
        return min(idle, self._precision - self._store.clock.now_ms() % self._precision)

    @property
    def _rolls_under_way(self) -> bool:
        """Whether messages that rolled are not in the wheel again: slots further on may be theirs."""
        return self.queue_offset < self._delivery.rolled_end

    @property
    def _rolls_readable(self) -> bool:
        return self._store.max_offset(TIMER_TOPIC, 0) >= self._delivery.rolled_end

    def _publish(self, report: TimerReport) -> None:
        """Make readable what was put since the last call."""
        put = report.delivered + report.rolled
        if put > self._published:
            publish(self._store)
            self.on_delivered()
        self._published = put

    def _enqueue(self, now: int, report: TimerReport) -> bool:
        """Take up the messages that are in the topic now; False when one must be tried again."""
        end = self._store.max_offset(TIMER_TOPIC, 0)
        self.queue_offset = max(self.queue_offset, self._store.min_offset(TIMER_TOPIC, 0))
        while self.queue_offset < end and not self._thread.stopping:
            begin = self._store.clock.monotonic()
            answer = self._store.get_bulk(TIMER_TOPIC, 0, self.queue_offset, _PULL)
            records = answer.raw
            if not self._enqueue_run(records, now, report):
                return False
            if answer.next_begin_offset <= self.queue_offset and not records:
                break
            self.queue_offset = max(self.queue_offset, answer.next_begin_offset)
            if self.gentle:
                self._thread.rest(min(self._store.clock.monotonic() - begin, _REST_SECONDS))
        return True

    def _enqueue_run(self, records: list[Any], now: int, report: TimerReport) -> bool:
        """Take up messages in their order; False when one must be tried again. What is done with is noted."""
        done = 0
        while done < len(records):
            taken = 0
            if self.queue_offset >= self._replay_before:
                taken = self._join(records, done, now, report) or self._deliver_late(
                    records, done, now, report
                )
            if not taken and not self._enqueue_one(records, done, now, report):
                return False
            done += taken or 1
            self.queue_offset = queue_offset_of(records[done - 1]) + 1
            self._dirty = True
        return True

    def _join(self, records: list[Any], begin: int, now: int, report: TimerReport, out: int = NO_TIME) -> int:
        """Have messages join the wheel from ``begin`` on; how many could. ``out``: only this one, then.

        The units are written before the slots lead to them, and both before they count as taken up.
        """
        room = self.log.room()
        base = max(self.write_time, now // self._precision * self._precision)
        rules = self.write_time, base, self._window, self._precision, self._first_full_slot
        taken, units, slots, counts = self.wheel.units(
            records, begin, self.log.end_position, room if out == NO_TIME else 1, rules, out
        )
        if taken:
            self.log.append(units)
            self.wheel.set(slots)
            report.enqueued += taken
            for topic, count in counts.items():
                self.metrics.add(topic, count)
        return taken

    def _deliver_late(self, records: list[Any], begin: int, now: int, report: TimerReport) -> int:
        """Deliver messages whose tick was over before they came, from ``begin`` on; how many."""
        late = count_late(records, begin, min(self._first_full_slot, now - self._precision + 1))
        return self._delivery.put_late(records[begin : begin + late], report)

    def _enqueue_one(self, records: list[Any], index: int, now: int, report: TimerReport) -> bool:
        """Take up a message that is not like the others; False when it must be tried again."""
        record = self._store.lookup(physical_offset_of(records[index]))
        out = None if record is None else parse_number(record.properties.get(PROPERTY_TIMER_OUT_MS))
        if record is None or out is None:
            report.dropped += 1
            return True
        if record.queue_offset < self._replay_before and out < self._replay_fired_before:
            return True
        if out < self._first_full_slot:
            if out + self._precision <= now:
                return self._delivery.put(record, NEVER_ENQUEUED, False, report)
            # The clock was set back a little: its slot is emptied already, so take the next one.
            out = max(self.write_time, self._first_full_slot)
        if not self._join(records, index, now, report, out):
            _log.error("timer message at %d: no slot for the time %d, dropped", record.physical_offset, out)
            report.dropped += 1
        return True

    @property
    def _first_full_slot(self) -> int:
        """From here on slots can be joined: nobody has begun to empty them, whether they are due or not."""
        return self.read_time if self._open_slot is None else self._open_slot.time + self._precision

    def _go_back(self, tick: int) -> None:
        """The clock was set back to stay. Slots between now and ``read_time`` have fired: once is enough.

        Durable at once: a unit below a ``read_time`` that a crash brings back would count as fired.
        """
        for time, _ in list(self.wheel.used(tick, self.read_time)):
            self.wheel.erase(time)
        self.read_time = min(self.read_time, tick)
        self.write_time = tick
        self._dirty = True
        self.flush()

    def _dequeue(self, report: TimerReport) -> None:
        """Empty the slots from ``read_time`` to ``write_time``, oldest first."""
        while self.read_time < self.write_time and not self._thread.stopping:
            due = self._open_slot
            if due is None:
                found = next(self.wheel.used(self.read_time, self.write_time), None)
                if found is None:
                    self.read_time = self.write_time
                    break
                self.read_time, slot = found
                due = self._delivery.open_slot(self.read_time, slot.last_position, self._precision, report)
                self._open_slot = due
            goes_on = self._delivery.drain(due, report, _GENTLE_SHARE if self.gentle else _SHARE)
            self._dirty = True
            if not goes_on:
                break
            if due.waiting:
                self._publish(report)
                if self.gentle:
                    self._thread.rest(_REST_SECONDS)
                continue
            self._open_slot = None
            self.read_time = due.time + self._precision
            if self._rolls_under_way:
                break  # what deletes one of them may be among them, and both may be due already


def _nothing() -> None:
    """Nobody has to be told."""


def _roll_window(slots: int) -> int:
    """The configured window, or the largest one when it makes no sense."""
    largest = WHEEL_SLOTS_TOTAL - BLANK_SLOTS
    return slots if 2 <= slots <= largest else largest
