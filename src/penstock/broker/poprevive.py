"""Messages that were popped and not acked in time come back, and no others.

Reads the revive topic as RocketMQ does, and keeps its place there under the same name: either of them can
go on where the other stopped. A checkpoint is judged when nothing can be on its way any more that acks one
of its messages: its time is over, and the timer gave out, and we read, all that was written before that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.broker.popcheckpoint import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
    MOST,
    REVIVE_GROUP,
    REVIVE_QUEUES,
    CheckPoint,
    decode_ack,
    decode_checkpoint,
)
from penstock.broker.popretry import normal_topic, revived
from penstock.errors import PenstockError
from penstock.message.topic import TIMER_TOPIC

if TYPE_CHECKING:
    from penstock._native.stored import StoredMessage
    from penstock.broker.broker import Broker
    from penstock.broker.popping import Popping

log = logging.getLogger("penstock.broker")

GRACE_MS = 1000
"""An ack that is so late still counts."""
READ_EACH, REVIVE_EACH = 1024, 256
"""So many records are read, and so many messages revived, before the loop goes on."""
MAX_MARKS = 1000
MAX_EARLY = 10_000
SAME_KEY = 64
"""So many messages with a key are looked at for one that is back already."""

Key = tuple[str | None, str | None, int, int, int, str | None]


class _Sample:
    """A moment, and what must be read of a queue to know all that was acked by then."""

    __slots__ = ("end", "until")

    def __init__(self, end: int, until: int) -> None:
        self.end = end
        self.until = until


class _Queue:
    """One queue of the revive topic, and the checkpoints in it that are not judged yet, in their order."""

    def __init__(self, number: int, position: int, end: int) -> None:
        self.number = number
        self.position = position
        self.found = end
        """What is before it was there at the start: an earlier run may have judged it."""
        self.points: dict[Key, CheckPoint] = {}
        self.sample: _Sample | None = None
        self.fetching = False
        self.fetched: Key | None = None
        self.early: dict[Key, list[int]] = {}
        """Acks whose checkpoint is not here yet: they came late, and a timer that is behind still has it."""

    def keep_early(self, key: Key, offsets: Sequence[int]) -> None:
        known = self.early.setdefault(key, [])
        if len(known) < MOST:
            known.extend(offsets[:MOST])
        while len(self.early) > MAX_EARLY:
            del self.early[next(iter(self.early))]


class PopRevive:
    """Steps on the loop; nothing in it waits."""

    def __init__(self, broker: Broker, popping: Popping) -> None:
        self._broker = broker
        self._popping = popping
        self._store = broker.store
        self._topic = popping.log.topic
        self._offsets = broker.consumer_offsets
        self._queues = [
            _Queue(
                number,
                self._offsets.query(REVIVE_GROUP, self._topic, number) + 1,
                self._store.max_offset(self._topic, number),
            )
            for number in range(REVIVE_QUEUES)
        ]
        # When, and how far the timer's topic went then: for knowing that the timer has seen all up to there.
        self._marks: deque[tuple[int, int]] = deque()
        self._taken_up = 0
        # What was done, by where it ends in the log: kept when that is on disk.
        self._unsaved: deque[tuple[int, int, int]] = deque()
        self._end = 0
        self._saving: asyncio.Future[object] | None = None
        self._save = False
        self.revived = 0
        """Messages that were put back since the start."""

    @property
    def waiting(self) -> int:
        """Checkpoints that are known and not judged yet."""
        return sum(len(queue.points) for queue in self._queues)

    def run_once(self) -> None:
        """Read what came, judge what is over."""
        room = READ_EACH
        for queue in self._queues:
            room -= self._read(queue, room)
        if any(queue.points for queue in self._queues):
            self._look_at_timer()
            room = REVIVE_EACH
            for queue in self._queues:
                room -= self._judge(queue, room)
        self._keep()

    # -- reading ------------------------------------------------------------------------------------------

    def _read(self, queue: _Queue, most: int) -> int:
        store, topic, number = self._store, self._topic, queue.number
        queue.position = max(queue.position, store.min_offset(topic, number))
        done = 0
        while done < most and queue.position < store.max_offset(topic, number):
            result = store.get(topic, number, queue.position, 32)
            for message in result.messages:
                self._take(queue, message)
                queue.position = message.queue_offset + 1
            if not len(result) and result.next_begin_offset <= queue.position:
                break
            done += len(result)
            queue.position = max(queue.position, result.next_begin_offset)
        return done

    def _take(self, queue: _Queue, message: StoredMessage) -> None:
        try:
            if message.tags == CHECKPOINT_TAG:
                point = decode_checkpoint(message.body)
                if point.makes_sense:
                    point.ro = message.queue_offset
                    point.bm &= 0xFFFFFFFF
                    self._add(queue, point)
            elif message.tags in (ACK_TAG, BATCH_ACK_TAG):
                ack = decode_ack(message.body)
                if not ack.bn:
                    ack.bn = self._broker.config.broker_name
                known = queue.points.get(ack.key)
                if known is None:
                    queue.keep_early(ack.key, ack.offsets)
                else:
                    for offset in ack.offsets:
                        known.ack(offset)
        except msgspec.MsgspecError as error:
            log.warning(
                "record %d of %s-%d is passed over: %s",
                message.queue_offset,
                self._topic,
                queue.number,
                error,
            )

    def _add(self, queue: _Queue, point: CheckPoint) -> None:
        # A timer that was killed may give one out twice: what is acked of the first stays so.
        known = queue.points.setdefault(point.key, point)
        for offset in queue.early.pop(point.key, ()):
            known.ack(offset)

    # -- judging ------------------------------------------------------------------------------------------

    def _look_at_timer(self) -> None:
        """Say for each queue what is known about when, once it is read to where it ends now."""
        store, now = self._store, self._broker.clock.now_ms()
        if not store.config.timer_wheel_enable:
            emptied, seen = now, store.next_offset(TIMER_TOPIC, 0)
        else:
            timer = store.schedules.timer
            emptied, seen = timer.read_time, timer.queue_offset
        if len(self._marks) < MAX_MARKS:
            self._marks.append((now, store.next_offset(TIMER_TOPIC, 0)))
        while self._marks and self._marks[0][1] <= seen:
            self._taken_up = self._marks.popleft()[0]
        until = min(emptied, self._taken_up - GRACE_MS)
        for queue in self._queues:
            if queue.points and queue.sample is None:
                queue.sample = _Sample(store.next_offset(self._topic, queue.number), until)

    def _judge(self, queue: _Queue, most: int) -> int:
        """Put back what nobody acked of the checkpoints whose time is over; how many messages."""
        sample = queue.sample
        if sample is None or queue.position < sample.end or queue.fetching:
            return 0
        done = 0
        while queue.points and done < most:
            key, point = next(iter(queue.points.items()))
            if point.due_ms > sample.until:
                queue.sample = None
                break
            if self._must_fetch(queue, key, point):
                return done
            try:
                done += self._revive(point, again=point.ro < queue.found)
            except PenstockError as error:
                log.error("popped messages can't be put back at the moment: %s", error)
                return most
            del queue.points[key]
            self._unsaved.append((self._end, queue.number, point.ro))
        if not queue.points:
            queue.sample = None
        return done

    def _must_fetch(self, queue: _Queue, key: Key, point: CheckPoint) -> bool:
        """Whether the disk has to give messages first; then somebody asks it, beside the loop."""
        if queue.fetched == key:
            return False
        cold, topic = self._store.cold_reads, point.t or ""
        places = [place for offset in point.unacked() for place in cold.missing(topic, point.q, offset, 1)]
        if not places:
            return False
        queue.fetching = True

        async def fetch() -> None:
            try:
                await self._broker.pulling.fetch(places)
            finally:
                queue.fetched, queue.fetching = key, False

        self._broker.spawn(fetch())
        return True

    def _revive(self, point: CheckPoint, *, again: bool) -> int:
        """Put back what is not acked; with ``again`` not what an earlier run put back, and was killed."""
        broker, topic, group = self._broker, point.t or "", point.c or ""
        if broker.topics.find(normal_topic(topic, group)) is None or broker.groups.find(group) is None:
            return 0
        count = 0
        for offset in point.unacked():
            result = self._store.get(topic, point.q, offset, 1)
            record = result[0] if len(result) else None
            if (
                record is not None
                and record.queue_offset == offset
                and not (again and self._is_back(point, record, topic, group))
            ):
                self._put_back(point, record, topic, group)
                count += 1
            # Noted at once: if the next one fails this one is not put again.
            point.ack(offset)
        self._popping.inflight.done(topic, group, point.q, point.pt, count)
        self.revived += count
        self._save |= count > 0
        return count

    def _is_back(self, point: CheckPoint, record: StoredMessage, topic: str, group: str) -> bool:
        key = record.unique_key
        if not key:
            return False
        wanted = revived(record, topic, group, point.pt, self._broker.address, counted=not point.sp)
        found = self._store.query(wanted.topic, key, max=SAME_KEY)
        return any(
            each.reconsume_times == wanted.reconsume_times and each.properties_bytes == wanted.raw_properties
            for each in found
        )

    def _put_back(self, point: CheckPoint, record: StoredMessage, topic: str, group: str) -> None:
        broker = self._broker
        message = revived(record, topic, group, point.pt, broker.address, counted=not point.sp)
        if broker.topics.find(message.topic) is None:
            broker.topics.ensure(message.topic, 1)
            if self._offsets.query(group, message.topic, message.queue_id) < 0:
                self._offsets.commit(group, message.topic, message.queue_id, 0)
        result = self._store.append(message, hooks=False)
        if not result.ok:
            raise PenstockError(f"the store answers {result.status}")
        self._end = result.end_offset
        broker.dispatching.appended((message.topic, message.queue_id))
        broker.stats.count_put(message.topic, 1, result.size)
        broker.when_durable(result.end_offset, lambda error: None)

    # -- keeping ------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Commit the place of what is done and on disk. After messages were put back it is saved soon: a kill
        before that puts them back once more."""
        where = self._store.flusher.flushed_where
        while self._unsaved and self._unsaved[0][0] <= where:
            _, number, offset = self._unsaved.popleft()
            self._offsets.commit(REVIVE_GROUP, self._topic, number, offset)
        if self._save and not self._unsaved and (self._saving is None or self._saving.done()):
            self._save = False
            self._saving = self._broker.write_beside(self._offsets.persist)
