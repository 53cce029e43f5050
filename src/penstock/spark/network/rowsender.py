"""What a writing task does: rows in, messages at brokers out, each queue in the order of the rows.

A task may run a second time, and a batch of a stream may be repeated. So the unique key of a message is made
of the write's name, the partition, the number of the row and its content, and the first row is stored before
any other leaves: if its key is there, the brokers are asked for the key of each row that follows, and only
what is missing is sent. The same is done where an answer got lost. A row whose content changed between two
attempts has another key: it is sent, never taken for stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from penstock._native.units import record_header
from penstock.client.packed import block
from penstock.client.queue import MessageQueue
from penstock.message import Message
from penstock.message.topic import RETRY_TOPIC_PREFIX
from penstock.spark.network.access import Access
from penstock.spark.network.outbox import Outbox, Parcel
from penstock.spark.rowencoder import RowEncoder, WritePlan

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 256 << 10
BATCH_MESSAGES = 1000
SEVERAL_TOPICS = 720
"""Divided by the numbers of queues that topics have, so that an order key goes where RocketMQ's selector has
it go, whatever the topic."""
_UNIQUE = b"UNIQ_KEY\x01"
_KEY_LENGTH = 32
_HOST_FLAGS = 0x30


@dataclass
class Written:
    """What became of the rows of a task."""

    sent: int = 0
    skipped: int = 0
    """Rows that an earlier attempt had stored."""


@dataclass(frozen=True)
class Identity:
    """The name of a write, the same for all attempts, and a part of it."""

    name: str
    partition: int
    salt: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "salt", blake2b(self.name.encode(), digest_size=16).digest())

    def key(self, row: int, properties: bytes, body: memoryview) -> str:
        """The unique key of a row."""
        made = blake2b(properties, digest_size=16, key=self.salt)
        made.update(b"%d %d " % (self.partition, row))
        made.update(body)
        return made.hexdigest().upper()


class _SendEncoder(RowEncoder):
    """As for a store, but what is to be delivered later goes to the broker as it is."""

    def __init__(self, plan: WritePlan, partition: int, queues: int) -> None:
        super().__init__(plan, partition, queues=queues)
        self.alone: set[int] = set()
        """Where records begin that can't be part of a batch."""

    def add_scheduled(self, message: Message) -> None:
        self.alone.add(self.native.size)
        self.add_message(message)


class RowSender:
    """Sends the rows of one task attempt."""

    def __init__(self, plan: WritePlan, access: Access, identity: Identity) -> None:
        self._plan = plan
        self._identity = identity
        self._outbox = Outbox(access, plan.options.producer_group, plan.options.queues)
        topic = plan.options.topic if "topic" not in plan.roles else None
        queues = len(self._outbox.queues(topic)) if topic is not None else SEVERAL_TOPICS
        self._encoder = _SendEncoder(plan, identity.partition, queues)
        self._open: dict[MessageQueue, Parcel] = {}
        self._targets: list[MessageQueue] = []
        self._row = 0
        self._own_born = "bornTimestamp" in plan.roles

    def send(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Send everything; on return all of it is stored. What was sent before an error stays sent."""
        with self._outbox:
            for batch in batches:
                self._encoder.encode(batch)
                self._pack()
            for parcel in self._open.values():
                self._outbox.put(parcel)
            self._outbox.finish()
        return Written(self._outbox.sent, self._outbox.skipped)

    def _pack(self) -> None:
        """Put the encoded rows into the parcels of their queues."""
        slots_view, view = self._encoder.native.peek()
        slots = slots_view.cast("i") if len(slots_view) else slots_view
        while len(self._targets) < len(self._encoder.native.queues):
            self._targets.append(self._target(*self._encoder.native.queues[len(self._targets)]))
        at = 0
        for slot in slots:
            size = self._put(self._targets[slot], view, at)
            at += size
            self._row += 1
        self._encoder.native.clear()
        self._encoder.alone.clear()

    def _target(self, topic: str, number: int) -> MessageQueue:
        """The queue that a row means: by its id where the rows say ids, else in turn."""
        queues = self._outbox.queues(topic)
        if "queueId" in self._plan.roles:
            found = next((queue for queue in queues if queue.queue_id == number), None)
            if found is not None:
                return found
        return queues[number % len(queues)]

    def _put(self, queue: MessageQueue, view: memoryview, at: int) -> int:
        header = record_header(view[at:])
        assert header is not None
        size, _, _, _, sys_flag, _, body_at, body_length, _, _, where, length = header
        body = view[at + body_at : at + body_at + body_length]
        properties = bytes(view[at + where : at + where + length])
        flag = int.from_bytes(view[at + 16 : at + 20], "big", signed=True)
        born = int.from_bytes(view[at + 40 : at + 48], "big", signed=True) if self._own_born else None
        key = None
        place = properties.find(_UNIQUE) + len(_UNIQUE)
        if place >= len(_UNIQUE) and properties.startswith(self._encoder.prefix, place):
            rest = properties[:place] + properties[place + _KEY_LENGTH :]
            key = self._identity.key(self._row, rest, body)
            properties = properties[:place] + key.encode() + properties[place + _KEY_LENGTH :]
        sys_flag &= ~_HOST_FLAGS
        if at in self._encoder.alone or sys_flag or queue.topic.startswith(RETRY_TOPIC_PREFIX):
            self._close(queue)
            single = Parcel(queue, born, properties=properties.decode(), flag=flag, sys_flag=sys_flag)
            single.add(key, bytes(body))
            self._leave(single)
            return int(size)
        parcel = self._open.get(queue)
        if parcel is not None and (
            parcel.born != born or parcel.size >= BATCH_BYTES or len(parcel.blocks) >= BATCH_MESSAGES
        ):
            self._close(queue)
            parcel = None
        if parcel is None:
            parcel = self._open[queue] = Parcel(queue, born)
        parcel.add(key, block(body, properties, flag))
        if self._row == 0:
            self._close(queue)
        return int(size)

    def _close(self, queue: MessageQueue) -> None:
        parcel = self._open.pop(queue, None)
        if parcel is not None:
            self._leave(parcel)

    def _leave(self, parcel: Parcel) -> None:
        if self._row > 0 or parcel.keys[0] is None:
            self._outbox.put(parcel)
            return
        # The first row tells later attempts that there was one: it is stored before others leave.
        parcel.doubtful = True
        self._outbox.put(parcel)
        self._outbox.finish()
        self._outbox.doubtful = self._outbox.skipped > 0
