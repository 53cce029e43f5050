"""Half messages and the end of a transaction (store format, sections 16.2 and 16.3).

A half message is stored under a topic nobody subscribes to. Commit stores it again, under its real topic;
commit and rollback both write its queue offset into an op message.

**At least once.** The committed message lies before its op message in the log, so whatever a crash cuts off,
a transaction is never over without its message being there. A commit whose op message was lost is repeated
when the producer is asked again.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from penstock.message import Message, unique_id
from penstock.message.properties import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_UNIQUE_KEY,
)
from penstock.message.sysflag import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    with_transaction_type,
)
from penstock.message.topic import TRANS_HALF_TOPIC
from penstock.store.face import PutOutcome, ServiceStore, StoredRecord
from penstock.store.rewrite import copy_record, parse_number, property_map, real_place, redirected
from penstock.store.transactionops import TransactionOps

HALF_QUEUE_ID = 0
# The record is in the log with each of these, whatever became of its flush or its replicas.
_STORED = frozenset({"PUT_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"})


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A producer's verdict. ``action`` is 8 for commit, 12 for rollback, anything else for not yet known."""

    commit_log_offset: int
    half_queue_offset: int
    producer_group: str
    action: int
    from_check: bool = False


@dataclass(frozen=True, slots=True)
class EndOutcome:
    """What became of a verdict.

    ``code`` is ``SUCCESS``, ``ILLEGAL_OPERATION``, ``SYSTEM_ERROR`` or, for an unknown verdict, ``IGNORED``
    (nothing is answered). ``put`` is the answer to the put of a committed message.
    """

    code: str
    remark: str = ""
    put: PutOutcome | None = None

    @property
    def ok(self) -> bool:
        return self.code == "SUCCESS"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict that holds: ``message`` is to be stored (None: rolled back), then the half marked as over."""

    half: StoredRecord
    message: Message | None


def prepare_half(message: Message, store: ServiceStore) -> Message:
    """What is stored for a message sent in a transaction.

    Its transaction bits are cleared: only so does it get a place in the half topic's queue.
    """
    properties = property_map(message)
    if store.config.generate_unique_key:
        properties.setdefault(PROPERTY_UNIQUE_KEY, unique_id())
    unique_key = properties.get(PROPERTY_UNIQUE_KEY)
    if unique_key:
        properties[PROPERTY_TRANSACTION_ID] = unique_key
    half = redirected(message, store, properties, topic=TRANS_HALF_TOPIC, queue_id=HALF_QUEUE_ID)
    return replace(half, sys_flag=with_transaction_type(message.sys_flag, TRANSACTION_NOT_TYPE))


def committed_message(half: StoredRecord, topic: str, queue_id: int) -> Message:
    """What is stored for a half message that was committed.

    As in RocketMQ 5.5 the stored properties have lost ``REAL_TOPIC`` and ``REAL_QID`` and kept ``TRAN_MSG``.
    """
    hidden = (PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE_ID)
    properties = {name: value for name, value in half.properties.items() if name not in hidden}
    message = copy_record(half, topic=topic, queue_id=queue_id, properties=properties)
    return replace(
        message,
        sys_flag=with_transaction_type(message.sys_flag, TRANSACTION_COMMIT_TYPE),
        prepared_transaction_offset=half.physical_offset,
    )


def _topic_of(half: StoredRecord) -> str | None:
    place = real_place(half)
    return place[0] if place is not None else None


class TransactionService:
    """Takes half messages and the verdicts on them."""

    def __init__(self, store: ServiceStore, ops: TransactionOps) -> None:
        self._store = store
        self.ops = ops

    def put_half(self, message: Message) -> PutOutcome:
        """Store a half message.

        A delay it asks for begins when it is committed, so the hooks do not see it here. (RocketMQ lets them,
        and drops the message when the delay is over.)
        """
        outcome = self._store.put_raw(prepare_half(message, self._store))
        if outcome.ok:
            self.ops.metrics.add(message.topic, 1)
        return outcome

    def judge(self, verdict: EndTransaction) -> EndOutcome | Verdict:
        """Whether the verdict is about its half message and from its group; and what is to be stored for it.

        Refusals are in RocketMQ's words.
        """
        if verdict.action not in (TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE):
            return EndOutcome("IGNORED", f"action {verdict.action} is neither commit nor rollback")
        half = self._store.lookup(verdict.commit_log_offset)
        if half is None or half.topic != TRANS_HALF_TOPIC:
            return EndOutcome("SYSTEM_ERROR", "Find prepared transaction message failed")
        refusal = self._refuse(half, verdict)
        if refusal is not None:
            return refusal
        if verdict.action == TRANSACTION_ROLLBACK_TYPE:
            return Verdict(half, None)
        place = real_place(half)
        if place is None:
            return EndOutcome("SYSTEM_ERROR", f"the half message at {half.physical_offset} has no real topic")
        return Verdict(half, committed_message(half, *place))

    def end(self, verdict: EndTransaction) -> EndOutcome:
        """Commit or roll back. Checks that the verdict is about this half message and from its group."""
        judged = self.judge(verdict)
        if isinstance(judged, EndOutcome):
            return judged
        half = judged.half
        if judged.message is None:
            self.ops.mark(half.queue_offset, half.queue_id, topic=_topic_of(half))
            return EndOutcome("SUCCESS")
        outcome = self._store.put(judged.message)
        if not outcome.ok and outcome.status not in _STORED:
            return EndOutcome("SYSTEM_ERROR", outcome.status, outcome)
        self.ops.mark(half.queue_offset, half.queue_id, topic=_topic_of(half))
        return EndOutcome("SUCCESS", put=outcome)

    def _refuse(self, half: StoredRecord, verdict: EndTransaction) -> EndOutcome | None:
        immunity = half.properties.get(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
        if immunity is not None and not verdict.from_check:
            # Later than this the producer is being asked, and the answer to that question decides.
            limit = max((parse_number(immunity) or 0) * 1000, self._store.config.transaction_time_out_ms)
            if self._store.clock.now_ms() - half.born_timestamp > limit:
                return EndOutcome("ILLEGAL_OPERATION", "the verdict came after the immunity time")
        if half.properties.get(PROPERTY_PRODUCER_GROUP) != verdict.producer_group:
            return EndOutcome("SYSTEM_ERROR", "The producer group wrong")
        if half.queue_offset != verdict.half_queue_offset:
            return EndOutcome("SYSTEM_ERROR", "The transaction state table offset wrong")
        if half.physical_offset != verdict.commit_log_offset:
            return EndOutcome("SYSTEM_ERROR", "The commit log offset wrong")
        return None
