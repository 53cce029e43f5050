"""Asking producers about half messages that stay open (store format, section 16.5).

One pass goes over the half queue from the group's progress. Half messages that an op message names are over;
of the others, each old enough is stored again at the end of the half queue and its producer is asked about
the copy, so the progress can always move on. Unlike RocketMQ, a pass reads every op message before it holds
a half message for open, ends at a position and not at a time (clocks jump), counts a check only when the
producer is really asked, and never runs because of a shutdown.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.message import Message
from penstock.message.properties import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
)
from penstock.message.topic import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from penstock.store.face import HOPELESS, OffsetTable, PutOutcome, ServiceStore, StoredRecord
from penstock.store.rewrite import copy_record, parse_number, real_place
from penstock.store.servicethread import ServiceThread
from penstock.store.transaction import HALF_QUEUE_ID
from penstock.store.transactionopreader import OpReader
from penstock.store.transactionops import TransactionOps

_log = logging.getLogger(__name__)

CHECK_GROUP = "CID_RMQ_SYS_TRANS"
MAX_PASS_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """The question to a producer group. The verdict is about the copy: its two offsets name it."""

    producer_group: str
    half: StoredRecord
    message: Message
    queue_offset: int
    physical_offset: int
    times: int


@dataclass(slots=True)
class CheckReport:
    """What one pass did. ``failed`` counts listeners that raised and records that could not be handled."""

    over: int = 0
    asked: int = 0
    postponed: int = 0
    discarded: int = 0
    missing: int = 0
    failed: int = 0
    half_offset: int = 0
    op_offset: int = 0


class _Stop(Exception):
    """The pass ends here; this half message is looked at again by the next one."""


class TransactionCheckService:
    """Looks for open half messages and asks their producers through ``listener``.

    The listener is called on the checking thread with one ``CheckRequest`` at a time. What it raises is
    logged: the copy of the half message is stored by then and comes up again.
    """

    def __init__(
        self,
        store: ServiceStore,
        offsets: OffsetTable,
        ops: TransactionOps,
        listener: Callable[[CheckRequest], None],
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._ops = ops
        self._listener = listener
        self._lock = threading.Lock()
        self._first = True
        self._thread = ServiceThread("penstock-transaction-check", self._step)

    def start(self) -> None:
        """Check on a thread, first after one interval."""
        self._first = True
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()

    def run_once(self, now: int | None = None) -> CheckReport:
        """One pass. Progress is kept also when it ends with an error."""
        with self._lock:
            return self._pass(self._store.clock.now_ms() if now is None else now)

    def _step(self) -> int:
        if not self._first:
            self.run_once()
        self._first = False
        return self._store.config.transaction_check_interval_ms

    def _pass(self, now: int) -> CheckReport:
        self._ops.flush()
        report = CheckReport()
        begin = self._progress(TRANS_HALF_TOPIC)
        # Copies that this pass appends lie behind the end and are for the next one.
        end = self._store.max_offset(TRANS_HALF_TOPIC, HALF_QUEUE_ID)
        reader = OpReader(self._store, HALF_QUEUE_ID, self._progress(TRANS_OP_HALF_TOPIC), begin)
        deadline = self._store.clock.monotonic() + MAX_PASS_SECONDS
        offset = begin
        try:
            while offset < end and self._store.clock.monotonic() < deadline and not self._thread.stopping:
                if self._is_over(reader, offset):
                    report.over += 1
                    offset += 1
                    continue
                offset = self._look_at(offset, now, reader, report)
            if offset >= end:
                reader.read_all()
        except _Stop:
            pass
        finally:
            report.half_offset = offset
            report.op_offset = reader.done_before(offset, reached_end=offset >= end)
            self._keep(TRANS_HALF_TOPIC, offset)
            self._keep(TRANS_OP_HALF_TOPIC, report.op_offset)
        return report

    def _progress(self, topic: str) -> int:
        """Where to go on; a queue that was cut or cleaned since moves it."""
        low = max(self._store.min_offset(topic, HALF_QUEUE_ID), 0)
        high = max(self._store.max_offset(topic, HALF_QUEUE_ID), 0)
        return max(low, min(self._offsets.query(CHECK_GROUP, topic, HALF_QUEUE_ID), high))

    def _keep(self, topic: str, offset: int) -> None:
        if self._offsets.query(CHECK_GROUP, topic, HALF_QUEUE_ID) != offset:
            self._offsets.commit(CHECK_GROUP, topic, HALF_QUEUE_ID, offset)

    def _is_over(self, reader: OpReader, offset: int) -> bool:
        return self._ops.is_over(offset, HALF_QUEUE_ID) or reader.names(offset)

    def _look_at(self, offset: int, now: int, reader: OpReader, report: CheckReport) -> int:
        """Handle one half message that no op message names; the offset to go on from."""
        answer = self._store.get(TRANS_HALF_TOPIC, HALF_QUEUE_ID, offset, 1)
        if not answer.messages:
            if answer.next_begin_offset <= offset:
                raise _Stop
            report.missing += answer.next_begin_offset - offset
            return answer.next_begin_offset
        half = answer.messages[0]
        if half.queue_offset > offset:
            report.missing += half.queue_offset - offset
            return half.queue_offset
        try:
            self._handle(half, now, reader, report)
        except (_Stop, PenstockError, OSError):
            raise
        except Exception:
            # One record that cannot be understood must not hold up all behind it.
            _log.exception("half message at %d is set aside", half.physical_offset)
            report.failed += 1
            self._discard(half, report)
        return offset + 1

    def _handle(self, half: StoredRecord, now: int, reader: OpReader, report: CheckReport) -> None:
        config = self._store.config
        age = now - half.born_timestamp
        times = parse_number(half.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES)) or 0
        if times >= config.transaction_check_max or age > config.file_reserved_time_hours * 3_600_000:
            self._discard(half, report)
            return
        wish = half.properties.get(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
        if wish is None:
            if 0 <= age <= config.transaction_time_out_ms:
                raise _Stop
        else:
            original = parse_number(half.properties.get(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET))
            if original is not None and self._is_over(reader, original):
                report.over += 1
                return
            seconds = parse_number(wish)
            immunity = config.transaction_time_out_ms if seconds in (None, -1) else (seconds or 0) * 1000
            if age <= immunity:
                self._postpone(half, half.queue_offset if original is None else original, report)
                return
        self._ask(half, times + 1, report)

    def _postpone(self, half: StoredRecord, original: int, report: CheckReport) -> None:
        properties = dict(half.properties)
        properties[PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET] = str(original)
        if self._append(self._copy(half, properties)) is None:
            self._discard(half, report)
        else:
            report.postponed += 1

    def _ask(self, half: StoredRecord, times: int, report: CheckReport) -> None:
        copy = self._copy(half, {**half.properties, PROPERTY_TRANSACTION_CHECK_TIMES: str(times)})
        outcome = self._append(copy)
        if outcome is None:
            self._discard(half, report)
            return
        report.asked += 1
        group = half.properties.get(PROPERTY_PRODUCER_GROUP, "")
        request = CheckRequest(group, half, copy, outcome.queue_offset, outcome.physical_offset, times)
        try:
            self._listener(request)
        except Exception:
            _log.exception("asking %r about the half message at %d", group, half.physical_offset)
            report.failed += 1

    def _discard(self, half: StoredRecord, report: CheckReport) -> None:
        if self._append(copy_record(half, topic=TRANS_CHECK_MAX_TIME_TOPIC, queue_id=0)) is None:
            _log.error("half message at %d is skipped, no topic takes it", half.physical_offset)
            report.failed += 1
        report.discarded += 1
        place = real_place(half)
        if place is not None:
            self._ops.metrics.add(place[0], -1)

    @staticmethod
    def _copy(half: StoredRecord, properties: dict[str, str]) -> Message:
        return copy_record(half, topic=TRANS_HALF_TOPIC, queue_id=HALF_QUEUE_ID, properties=properties)

    def _append(self, message: Message) -> PutOutcome | None:
        """The answer to the put; None when no put of this message can succeed. Ends the pass on the rest."""
        outcome = self._store.put_raw(message)
        if outcome.ok:
            return outcome
        if outcome.status in HOPELESS:
            return None
        _log.warning("transaction check stops: %s", outcome.status)
        raise _Stop
