"""What a broker writes down about popped messages: checkpoints and acks, RocketMQ's bytes (protocol 3.9).

A checkpoint says which messages of a queue a group was given until when; an ack, which of them are done with.
Both are timer messages for the revive topic: a checkpoint comes out of the wheel a second before the messages
are due again, its acks when they are. Whoever reads the revive topic then knows what nobody acked.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.message import Message, encode_properties
from penstock.message.properties import (
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQUE_KEY,
)

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
REVIVE_QUEUES = 8
ORDER_QUEUE = 999
"""In a handle instead of a queue of the revive topic: the messages were popped in order."""
CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
AHEAD_MS = 1000
"""So long before its messages are due again a checkpoint is read, so that it is known before its acks."""
MOST = 32
"""Messages of one checkpoint: its bits are those of a Java int."""

_INT32 = 1 << 31


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


class ReviveLog:
    """Makes the messages of one broker's revive topic."""

    def __init__(self, cluster: str, broker_name: str, address: str) -> None:
        self.topic = revive_topic(cluster)
        self.broker_name = broker_name
        self._address = address

    def checkpoint(self, point: CheckPoint, queue_id: int, now: int) -> Message:
        """The record of a checkpoint."""
        body = _encode(
            {
                "bm": _signed(point.bm),
                "bn": point.bn,
                "c": point.c,
                "d": point.d,
                "it": point.it,
                "n": point.n,
                "pt": point.pt,
                "q": point.q,
                "reviveTime": point.due_ms,
                "ro": point.ro,
                "so": point.so,
                "sp": point.sp,
                "t": point.t,
            }
        )
        key = f"{point.t}@{point.q}@{point.so}@{point.c}@{point.pt}@{point.bn}@{CHECKPOINT_TAG}"
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
        content = {
            "ao": offset,
            "bn": self.broker_name,
            "c": group,
            "pt": pop_time,
            "q": queue_id,
            "so": start,
            "t": topic,
        }
        if not single:
            content = {"ao": offset, "aol": list(offsets), **content}
        key = f"{topic}@{queue_id}@{offset}@{group}@{pop_time}@{self.broker_name}@{ACK_TAG}"
        tag = ACK_TAG if single else BATCH_ACK_TAG
        return self._message(revive_queue, _encode(content), tag, key, due_ms, now)

    def _message(self, queue_id: int, body: bytes, tag: str, key: str, deliver_ms: int, now: int) -> Message:
        properties = {
            PROPERTY_TIMER_DELIVER_MS: str(deliver_ms),
            PROPERTY_UNIQUE_KEY: key,
            PROPERTY_TAGS: tag,
        }
        return Message(
            self.topic,
            body,
            queue_id=queue_id,
            born_timestamp=now,
            born_host=self._address,
            raw_properties=encode_properties(properties),
        )
