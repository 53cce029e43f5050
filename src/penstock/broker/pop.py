"""Pops: messages are given to a group for a while, whoever of it asks (protocol 3.9)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.broker.names import FAQ
from penstock.broker.popcheckpoint import MOST, ORDER_QUEUE, REVIVE_QUEUES, CheckPoint
from penstock.broker.popheader import PopHeader, pop_header, topic_kind
from penstock.broker.popholding import HeldPop
from penstock.broker.popretry import retry_topics, shown
from penstock.broker.pulling import JOIN_BYTES, MAX_HOLD_MS
from penstock.broker.topics import PERM_READ, TopicConfig
from penstock.errors import PenstockError, RequestRefused
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode
from penstock.store.coldread import Place

if TYPE_CHECKING:
    from penstock._native.reading import GetResult
    from penstock.broker.broker import Broker
    from penstock.broker.popping import Popping

NOTHING = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
"""The fields that Java wants in every answer, for one that gives nothing."""
LATE_MS = 500
"""A pop whose time was over so long ago has nobody waiting for it."""
EARLY_MS = 50
"""A pop is answered so long before its time is over, so that the answer comes in time."""
RETRY_FIRST_PERCENT = 20
"""So many pops look at what came back before they look at what is new."""
NO_MESSAGE = "NO_MESSAGE_IN_QUEUE"


class Taken:
    """What one pop gets."""

    __slots__ = (
        "count",
        "end",
        "offsets",
        "orders",
        "places",
        "rest",
        "revive",
        "size",
        "starts",
        "time",
        "views",
    )

    def __init__(self, time: int, revive: int) -> None:
        self.time = time
        self.revive = revive
        self.views: list[memoryview | bytes] = []
        self.count = 0
        self.size = 0
        self.rest = 0
        self.end = -1
        """Where the last checkpoint ends in the log."""
        self.starts: list[str] = []
        self.offsets: list[str] = []
        self.orders: list[str] = []
        self.places: list[Place] = []
        """What the disk has to give first."""


class Pops:
    """Gives messages to those who pop them."""

    def __init__(self, broker: Broker, popping: Popping) -> None:
        self._broker = broker
        self._popping = popping
        self._store = broker.store
        self._topics = broker.topics
        self._cold = broker.store.cold_reads
        self._numbers = itertools.count()
        self._sync = broker.store.config.flush_disk_type == "sync"

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.POP_MESSAGE: self.pop}

    def pop(self, connection: Connection, request: Command) -> Command | None:
        header = pop_header(request.fields)
        try:
            self._check(connection, header)
            wanted = self._broker.pulling.brought(header.topic, header.expression, header.expression_type)
        except RequestRefused as refused:
            refused.fields.update(NOTHING)
            raise
        request.body = b""
        return self._serve(HeldPop(connection, request, header, wanted))

    # -- checks -------------------------------------------------------------------------------------------

    def _check(self, connection: Connection, header: PopHeader) -> None:
        broker = self._broker
        config, now = broker.config, broker.clock.now_ms()
        if header.born_ms <= 0:
            header.born_ms = now
        me = f"the broker[{config.advertised_host}]"
        if now - header.born_ms - header.poll_ms > LATE_MS:
            raise RequestRefused(ResponseCode.POLLING_TIMEOUT, f"{me} pop message is timeout too much")
        if not config.broker_permission & PERM_READ:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"{me} pop message is forbidden")
        if header.count < 0:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"{me} pop message's num is negative")
        if header.count > MOST:
            remark = f"{me} pop message's num is greater than {MOST}"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
        if not self._store.config.timer_wheel_enable:
            remark = f"{me} pop message is forbidden because timerWheelEnable is false"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        self.check_place(connection, header)
        self._check_times(header)

    def _check_times(self, header: PopHeader) -> None:
        """No timer takes an invisible time beyond its horizon; RocketMQ gives such a pop nothing, forever."""
        longest = self._store.config.timer_max_delay_sec * 1000
        if not 0 <= header.invisible_ms <= longest:
            remark = f"invisibleTime[{header.invisible_ms}] is illegal, it must be between 0 and {longest}"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)

    def check_place(self, connection: Connection, header: PopHeader) -> TopicConfig:
        """Whether the group may read there. Raises RequestRefused."""
        broker, name = self._broker, header.topic
        topic = self._topics.find(name)
        if topic is None:
            remark = f"topic[{name}] not exist, apply first please! {FAQ}"
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden"
            )
        if header.queue_id >= topic.read_queue_nums:
            remark = illegal_queue(connection, topic, header.queue_id)
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
        group = broker.groups.get(header.group)
        if group is None:
            remark = f"subscription group [{header.group}] does not exist, {FAQ}"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.group}"
            )
        return topic

    # -- taking -------------------------------------------------------------------------------------------

    def queues(self, header: PopHeader) -> Iterator[tuple[str, int]]:
        """Where to look, in the order of looking: all queues from a random one on, and what came back."""
        chance = random.randrange(100)
        topic = self._topics.find(header.topic)
        back = () if header.order else retry_topics(header.topic, header.group)
        if chance < RETRY_FIRST_PERCENT:
            yield from self._queues_of(back, chance)
        if header.queue_id >= 0:
            yield header.topic, header.queue_id
        elif topic is not None:
            yield from self._queues_of((header.topic,), chance)
        if chance >= RETRY_FIRST_PERCENT:
            yield from self._queues_of(back, chance)

    def _queues_of(self, names: Sequence[str], chance: int) -> Iterator[tuple[str, int]]:
        for name in names:
            topic = self._topics.find(name)
            number = 0 if topic is None else topic.read_queue_nums
            for queue_id in range(number):
                yield name, (queue_id + chance) % number

    def _take(self, pop: HeldPop, fetched: bool) -> Taken:
        """Give the group messages: a checkpoint each queue, which the log has before anybody sees them."""
        header = pop.header
        # Not for the records of other pops, which are all that is written while a group takes old messages.
        self._broker.dispatching.catch_up((header.topic, *retry_topics(header.topic, header.group)))
        revive = ORDER_QUEUE if header.order else next(self._numbers) % REVIVE_QUEUES
        taken = Taken(self._broker.clock.now_ms(), revive)
        for topic, queue_id in self.queues(header):
            self._take_queue(pop, taken, topic, queue_id, fetched)
        return taken

    def _take_queue(self, pop: HeldPop, taken: Taken, topic: str, queue_id: int, fetched: bool) -> None:
        header, popping, store = pop.header, self._popping, self._store
        group = header.group
        key = (topic, group, queue_id)
        if header.order and popping.order.is_blocked(topic, group, queue_id, header.attempt_id):
            return
        position = popping.positions.find(topic, group, queue_id, from_end=header.from_end)
        high = store.max_offset(topic, queue_id)
        if position >= high:
            if position > high:
                popping.positions.move(key, high)
            return
        room = header.count - taken.count
        if room <= 0:
            taken.rest += high - position
            return
        if not fetched and (places := self._cold.missing(topic, queue_id, position, room)):
            taken.places += places
            return
        result = self._broker.pulling.read(topic, queue_id, position, room, pop.subscription)
        if result.status in ("OFFSET_TOO_SMALL", "OFFSET_FOUND_NULL"):
            position = result.next_begin_offset
            popping.positions.move(key, position)
            result = self._broker.pulling.read(topic, queue_id, position, room, pop.subscription)
        if len(result):
            self._give(pop, taken, topic, queue_id, position, result)
        elif result.next_begin_offset > position:
            popping.positions.skip(key, result.next_begin_offset)
        taken.rest += max(result.max_offset - result.next_begin_offset, 0)

    def _give(
        self, pop: HeldPop, taken: Taken, topic: str, queue_id: int, position: int, result: GetResult
    ) -> None:
        header, popping = pop.header, self._popping
        group, count, after = header.group, len(result), result.next_begin_offset
        offsets: Sequence[int]
        if after - position == count:
            offsets = range(position, after)
        else:
            offsets = [message.queue_offset for message in result.messages]
        if header.order:
            popping.inflight.clear(topic, group, queue_id)
            taken.orders += popping.order.take(
                topic, group, queue_id, taken.time, header.invisible_ms, offsets, header.attempt_id
            )
        else:
            point = CheckPoint(
                bn=self._broker.config.broker_name,
                c=group,
                d=[offset - position for offset in offsets],
                it=header.invisible_ms,
                n=count,
                pt=taken.time,
                q=queue_id,
                so=position,
                t=topic,
            )
            taken.end = popping.write(popping.log.checkpoint(point, taken.revive, taken.time))
            popping.positions.take((topic, group, queue_id), after, taken.end)
        kind = topic_kind(topic)
        taken.starts.append(f"{kind} {queue_id} {position}")
        taken.offsets.append(f"{kind} {queue_id} {','.join(map(str, offsets))}")
        if topic == header.topic:
            taken.views += map(memoryview, result.raw)
        else:
            handle = f"{position} {taken.time} {header.invisible_ms} {taken.revive} {kind} "
            handle += f"{self._broker.config.broker_name} {queue_id} "
            taken.views += (
                shown(message, header.topic, handle + str(message.queue_offset))
                for message in result.messages
            )
        taken.count += count
        taken.size += result.buffer_size
        popping.inflight.add(topic, group, queue_id, count)
        self._broker.stats.count_get(topic, group, count, result.buffer_size)
        self._broker.pull_offsets[topic, group, queue_id] = after

    # -- answering ----------------------------------------------------------------------------------------

    def again(self, pop: HeldPop) -> bool:
        """Try a pop that waits; whether it got something, and is answered."""
        return self._try(pop, fetched=False)

    def _try(self, pop: HeldPop, *, fetched: bool) -> bool:
        if pop.connection.closed:
            return True
        try:
            taken = self._take(pop, fetched)
        except PenstockError as error:
            self._fail(pop, error)
            return True
        if taken.count:
            self._answer(pop, taken)
            return True
        if taken.places:
            self._broker.spawn(self._fetch(pop, taken.places))
            return True
        return False

    async def _fetch(self, pop: HeldPop, places: list[Place]) -> None:
        """Old messages come from the disk first, beside the loop; then the pop goes its way."""
        await self._broker.pulling.fetch(places)
        if not self._try(pop, fetched=True) and not self._hold(pop):
            self.expire(pop)

    def _serve(self, pop: HeldPop) -> Command | None:
        if self._try(pop, fetched=False) or self._hold(pop):
            return None
        full = len(self._popping.holding) >= self._broker.config.max_held_pulls
        return self._nothing(pop, ResponseCode.POLLING_FULL if full else ResponseCode.POLLING_TIMEOUT)

    def _hold(self, pop: HeldPop) -> bool:
        broker, header = self._broker, pop.header
        if broker.draining or len(self._popping.holding) >= broker.config.max_held_pulls:
            return False
        length = header.born_ms + header.poll_ms - EARLY_MS - broker.clock.now_ms()
        if header.poll_ms <= 0 or length <= 0:
            return False
        # Whatever a client says of its clock, it waits no longer than it said it would.
        self._popping.holding.hold(pop, min(length, header.poll_ms, MAX_HOLD_MS))
        return True

    def expire(self, pop: HeldPop) -> None:
        """Answer a pop whose time is over, with what there is now."""
        if not self._try(pop, fetched=False):
            pop.connection.reply(pop.request, self._nothing(pop, ResponseCode.POLLING_TIMEOUT))

    def _nothing(self, pop: HeldPop, code: int) -> Command:
        taken = Taken(self._broker.clock.now_ms(), next(self._numbers) % REVIVE_QUEUES)
        return pop.request.answer(code, self._fields(pop, taken), remark=NO_MESSAGE)

    @staticmethod
    def _fields(pop: HeldPop, taken: Taken) -> dict[str, str]:
        fields = {
            "popTime": str(taken.time),
            "invisibleTime": str(pop.header.invisible_ms),
            "reviveQid": str(ORDER_QUEUE if pop.header.order else taken.revive),
            "restNum": str(taken.rest),
            "startOffsetInfo": ";".join(taken.starts),
            "msgOffsetInfo": ";".join(taken.offsets),
        }
        if pop.header.order:
            fields["orderCountInfo"] = ";".join(taken.orders)
        return fields

    def _answer(self, pop: HeldPop, taken: Taken) -> None:
        request, connection = pop.request, pop.connection
        answer = request.answer(0, self._fields(pop, taken), remark="FOUND")
        views: Sequence[memoryview | bytes] = taken.views
        if taken.size <= JOIN_BYTES:
            views = (b"".join(views),)
        if not self._sync or taken.end < 0:
            connection.reply_parts(request, answer, views)
            return

        def done(error: OSError | None) -> None:
            # Late is not lost: the checkpoint is in the log, its offset is committed when the disk has it.
            if error is None or isinstance(error, TimeoutError):
                connection.reply_parts(request, answer, views)
            else:
                self._fail(pop, error)

        self._broker.acks.add(taken.end, done)

    def _fail(self, pop: HeldPop, error: Exception) -> None:
        if isinstance(error, RequestRefused):
            answer = pop.request.answer(error.code, {**NOTHING, **error.fields}, remark=error.remark)
        else:
            answer = pop.request.answer(ResponseCode.SYSTEM_ERROR, dict(NOTHING), remark=str(error))
        pop.connection.reply(pop.request, answer)


def illegal_queue(connection: Connection, topic: TopicConfig, queue_id: int) -> str:
    """The remark on a queue that a topic does not have."""
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic.name}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{connection.peer_text}]"
    )
