"""What a broker writes down about popped messages: checkpoints and acks, RocketMQ's bytes (protocol 3.9).

A checkpoint says which messages of a queue a group was given until when; an ack, which of them are done with.
Both are timer messages for the revive topic: a checkpoint comes out of the wheel a second before the messages
are due again, its acks when they are. Whoever reads the revive topic then knows what nobody acked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from penstock.message import Message
from penstock.message.topic import TIMER_TOPIC
from penstock.store.timerhook import wheel_time

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
REVIVE_QUEUES = 8
ORDER_QUEUE = 999
"""In a handle instead of a queue of the revive topic: the messages were popped in order."""
CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
AHEAD_MS = 1000
"""So long before its messages are due again a checkpoint is read, so that it is known before its acks."""
MOST = 32
"""Messages of one checkpoint: its bits are those of a Java int."""

_INT32, _INT63 = 1 << 31, 1 << 62
"""Far from where a sum of two does not fit any more."""


def revive_topic(cluster: str) -> str:
    """Where checkpoints and acks end up."""
    return f"rmq_sys_REVIVE_LOG_{cluster}"


class CheckPoint(msgspec.Struct, omit_defaults=False):
    """Messages of one queue that were popped together. The fields have RocketMQ's names."""

    bm: int = 0
    """Which of them are acked: a bit each."""
    bn: str | None = None
    """The broker's name."""
    c: str | None = None
    """The group."""
    d: list[int] | None = None
    """Each message's distance from ``so``."""
    it: int = 0
    """How long nobody else gets them, in ms from ``pt``."""
    n: int = 0
    pt: int = 0
    q: int = 0
    ro: int = 0
    """Its own offset in the revive topic, once it is there."""
    so: int = 0
    """The queue offset where the pop began to read."""
    t: str | None = None
    """The topic, a retry topic included."""
    rp: str | None = None
    """How often it was written again because a message could not be revived."""
    sp: bool = False
    """The messages were given back, not failed: another delivery does not count."""

    @property
    def makes_sense(self) -> bool:
        """Whether it can be a checkpoint of anything: whoever may send to the revive topic can write one."""
        distances = self.d or ()
        return (
            bool(self.t and self.c)
            and 0 <= self.n <= MOST
            and 0 <= self.q < _INT32
            and 0 <= self.so < _INT63
            and 0 <= self.pt < _INT63
            and -_INT63 < self.it < _INT63
            and len(distances) <= MOST
            and all(0 <= distance < _INT32 for distance in distances)
        )

    @property
    def due_ms(self) -> int:
        """When what is not acked is given to somebody else."""
        return self.pt + self.it

    @property
    def key(self) -> tuple[str | None, str | None, int, int, int, str | None]:
        """What its acks name it by."""
        return self.t, self.c, self.q, self.so, self.pt, self.bn

    def index(self, offset: int) -> int:
        """Which of its messages has this queue offset; -1 for none."""
        distance = offset - self.so
        if not self.d:
            return distance if 0 <= distance < self.n else -1
        try:
            return self.d.index(distance)
        except ValueError:
            return -1

    def offset(self, index: int) -> int:
        """The queue offset of one of its messages."""
        return self.so + (self.d[index] if self.d else index)

    def unacked(self) -> list[int]:
        """Queue offsets of the messages that nobody acked."""
        count = min(self.n, len(self.d)) if self.d else self.n
        return [self.offset(index) for index in range(min(count, MOST)) if not self.bm >> index & 1]

    def ack(self, offset: int) -> bool:
        """Note that a message is done with; whether it is one of these and was not before."""
        index = self.index(offset)
        if index < 0 or self.bm >> index & 1:
            return False
        self.bm |= 1 << index
        return True


class AckRecord(msgspec.Struct):
    """Acks of one checkpoint's messages: a single one (``ao``) or several (``aol``)."""

    ao: int = -1
    aol: list[int] | None = None
    bn: str | None = None
    c: str | None = None
    pt: int = 0
    q: int = 0
    so: int = 0
    t: str | None = None

    @property
    def key(self) -> tuple[str | None, str | None, int, int, int, str | None]:
        return self.t, self.c, self.q, self.so, self.pt, self.bn

    @property
    def offsets(self) -> Sequence[int]:
        return (self.ao,) if self.aol is None else self.aol


decode_checkpoint = msgspec.json.Decoder(CheckPoint, strict=False).decode
decode_ack = msgspec.json.Decoder(AckRecord, strict=False).decode
_encode = msgspec.json.Encoder().encode


def _signed(bits: int) -> int:
    """Bits as Java's int writes them."""
    return bits - 2 * _INT32 if bits >= _INT32 else bits


@lru_cache(4096)
def _quoted(text: str) -> str:
    return _encode(text).decode()


_NEXT_TO_EACH_OTHER = [",".join(map(str, range(count))) for count in range(MOST + 1)]


class ReviveLog:
    """Makes the records of one broker's revive topic, for the timer topic until they are due there.

    What the put hook would do to them step by step is done here at once, to the same bytes: there is a
    record with every pop and nearly every ack. The one rule that is left out is the hook's limit of messages
    a slot: a message that was given out has to be noted.
    """

    def __init__(self, cluster: str, broker_name: str, address: str, precision_ms: int = 1000) -> None:
        """``precision_ms`` is the timer's."""
        self.topic = revive_topic(cluster)
        self.broker_name = broker_name
        self._address = address
        self._precision = precision_ms

    def checkpoint(self, point: CheckPoint, queue_id: int, now: int) -> Message:
        """The record of a checkpoint."""
        topic, group, broker, distances = point.t or "", point.c or "", point.bn or "", point.d or ()
        listed = (
            _NEXT_TO_EACH_OTHER[point.n]
            if len(distances) == point.n and (not distances or distances[-1] == point.n - 1)
            else ",".join(map(str, distances))
        )
        body = (
            f'{{"bm":{_signed(point.bm)},"bn":{_quoted(broker)},"c":{_quoted(group)},"d":[{listed}],'
            f'"it":{point.it},"n":{point.n},"pt":{point.pt},"q":{point.q},"reviveTime":{point.due_ms},'
            f'"ro":{point.ro},"so":{point.so},"sp":{"true" if point.sp else "false"},"t":{_quoted(topic)}}}'
        )
        key = f"{topic}@{point.q}@{point.so}@{group}@{point.pt}@{broker}@{CHECKPOINT_TAG}"
        return self._message(queue_id, body, CHECKPOINT_TAG, key, point.due_ms - AHEAD_MS, now)

    def ack(
        self,
        topic: str,
        group: str,
        queue_id: int,
        start: int,
        pop_time: int,
        due_ms: int,
        offsets: Sequence[int],
        revive_queue: int,
        now: int,
    ) -> Message:
        """The record of acks of one checkpoint's messages."""
        single = len(offsets) == 1
        # Several have no offset; their unique key is made as if they were a single one, as RocketMQ does.
        offset = offsets[0] if single else -1
        several = "" if single else f'"aol":[{",".join(map(str, offsets))}],'
        body = (
            f'{{"ao":{offset},{several}"bn":{_quoted(self.broker_name)},"c":{_quoted(group)},'
            f'"pt":{pop_time},"q":{queue_id},"so":{start},"t":{_quoted(topic)}}}'
        )
        key = f"{topic}@{queue_id}@{offset}@{group}@{pop_time}@{self.broker_name}@{ACK_TAG}"
        return self._message(revive_queue, body, ACK_TAG if single else BATCH_ACK_TAG, key, due_ms, now)

    def _message(self, queue_id: int, body: str, tag: str, key: str, deliver_ms: int, now: int) -> Message:
        text = f"TIMER_DELIVER_MS\x01{deliver_ms}\x02UNIQ_KEY\x01{key}\x02TAGS\x01{tag}\x02"
        topic = self.topic
        if deliver_ms > now:
            out = wheel_time(deliver_ms, self._precision)
            text = f"REAL_TOPIC\x01{topic}\x02{text}TIMER_OUT_MS\x01{out}\x02REAL_QID\x01{queue_id}\x02"
            topic, queue_id = TIMER_TOPIC, 0
        return Message(
            topic,
            body.encode(),
            queue_id=queue_id,
            born_timestamp=now,
            born_host=self._address,
            raw_properties=text.encode(),
        )
