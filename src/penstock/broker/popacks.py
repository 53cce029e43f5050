"""Acks of popped messages, one by one or many at once, and changes of their invisible time (protocol 3.9)."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.broker.bodies import body_object
from penstock.broker.header import flag, long_number, number, word
from penstock.broker.names import FAQ
from penstock.broker.pop import illegal_queue
from penstock.broker.popcheckpoint import MOST, ORDER_QUEUE, REVIVE_QUEUES, CheckPoint
from penstock.broker.popheader import Handle, read_handle
from penstock.broker.poporder import NO_SUCH_MESSAGE
from penstock.broker.popretry import retry_topics
from penstock.broker.putanswer import failure, flush_failure
from penstock.broker.topics import TopicConfig
from penstock.errors import PenstockError, RequestRefused
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.popping import Popping

LINGER_SECONDS = 0.002
MANY = 8
"""With so many acks at once the next ones are waited for."""
MAX_BITS = 1 << 16
"""Of one batch ack: further from where the pop began no message of it can be."""
NO_REMARK = "not set any response code"
"""What RocketMQ says in answers that it says nothing in."""

MAX_DIGITS = 18
"""So many always fit 64 bits."""

Waiting = tuple[Connection, list[Command]]


class _Acks:
    """Acks of one checkpoint that wait for the end of the loop's pass: they share a record."""

    __slots__ = (
        "connection",
        "group",
        "handle",
        "high",
        "low",
        "offsets",
        "queue_id",
        "requests",
        "topic",
        "waiting",
    )

    def __init__(self, topic: str, group: str, queue_id: int, handle: Handle, low: int, high: int) -> None:
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self.handle = handle
        self.low = low
        """What the queue held when the first of them came: it is not asked again for each."""
        self.high = high
        self.offsets: list[int] = []
        self.waiting: list[Waiting] = []
        """Who is to be answered: nearly always one, whoever popped them."""
        self.connection: Connection | None = None
        self.requests: list[Command] = []

    def add(self, connection: Connection, request: Command, offset: int) -> None:
        """One more of them."""
        self.offsets.append(offset)
        if connection is not self.connection:
            self.connection, self.requests = connection, []
            self.waiting.append((connection, self.requests))
        self.requests.append(request)


class PopAcks:
    """Takes acks. An answer says that the ack is in the log, with sync flush on disk."""

    def __init__(self, broker: Broker, popping: Popping) -> None:
        self._broker = broker
        self._popping = popping
        self._store = broker.store
        self._topics = broker.topics
        self._loop = asyncio.get_running_loop()
        self._pending: dict[tuple[str, str, str, str], _Acks] = {}
        self._many = False

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change,
        }

    # -- one by one ---------------------------------------------------------------------------------------

    def ack(self, connection: Connection, request: Command) -> Command | None:
        fields = request.fields
        try:
            topic, group, queue = fields["topic"], fields["consumerGroup"], fields["queueId"]
            extra, text = fields["extraInfo"], fields["offset"]
        except KeyError:
            for name in ("topic", "consumerGroup", "queueId", "extraInfo", "offset"):
                word(fields, name)
            raise
        offset = (
            int(text)
            if len(text) <= MAX_DIGITS and text.isascii() and text.isdigit()
            else long_number(fields, "offset")
        )
        # Messages of one checkpoint differ in the last word of their handles.
        key = (topic, group, queue, extra.rpartition(" ")[0])
        acks = self._pending.get(key)
        if acks is None:
            queue_id = number(fields, "queueId")
            config = self._check_queue(connection, topic, queue_id)
            low, high = self._check_offset(topic, queue_id, offset)
            handle = read_handle(extra)
            if handle.order:
                self._ack_in_order(config, group, queue_id, offset, handle.pop_time)
                return request.answer(0)
            if not self._is_ours(handle):
                return request.answer(0)
            acks = _Acks(topic, group, queue_id, handle, low, high)
            if not self._pending:
                # A consumer acks what it popped together one by one, and quickly: under load it pays to wait
                # a moment for the rest, for a record costs more than an ack.
                if self._many:
                    self._loop.call_later(LINGER_SECONDS, self.flush)
                else:
                    self._loop.call_soon(self.flush)
            self._pending[key] = acks
        elif not acks.low <= offset <= acks.high:
            acks.low, acks.high = self._check_offset(topic, acks.queue_id, offset)
        acks.add(connection, request, offset)
        return None

    def _check_queue(self, connection: Connection, name: str, queue_id: int) -> TopicConfig:
        topic = self._topics.find(name)
        if topic is None:
            remark = f"topic[{name}] not exist, apply first please! {FAQ}"
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not 0 <= queue_id < topic.read_queue_nums:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, illegal_queue(connection, topic, queue_id))
        return topic

    def _check_offset(self, topic: str, queue_id: int, offset: int) -> tuple[int, int]:
        """The bounds of a queue that has this offset. Raises RequestRefused when it has not."""
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if not low <= offset <= high:
            remark = f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}"
            raise RequestRefused(ResponseCode.NO_MESSAGE, remark)
        return low, high

    def _is_ours(self, handle: Handle) -> bool:
        """Whether an ack can mean one of our checkpoints: another broker's name, or a time that no pop has
        yet, makes it void, and RocketMQ answers such an ack with success.
        """
        longest = self._store.config.timer_max_delay_sec * 1000
        return (
            handle.broker_name == self._broker.config.broker_name
            and handle.invisible_ms <= longest
            and handle.due_ms <= self._broker.clock.now_ms() + longest
        )

    def flush(self) -> None:
        """Write the acks of this pass of the loop, a record for each checkpoint, and answer them."""
        pending, self._pending = self._pending, {}
        self._many = sum(len(acks.offsets) for acks in pending.values()) >= MANY
        if not pending:
            return
        now = self._broker.clock.now_ms()
        written: list[Waiting] = []
        end = -1
        for acks in pending.values():
            try:
                end = self._write(acks.topic, acks.group, acks.queue_id, acks.handle, acks.offsets, now)
            except PenstockError as error:
                code, remark = _reason(error)
                _refuse(acks.waiting, code, remark)
            else:
                written += acks.waiting
        if not written:
            return

        def done(error: OSError | None) -> None:
            if error is not None:
                _refuse(written, *flush_failure(error))
                return
            for connection, requests in written:
                connection.reply_plain(requests)

        self._broker.when_durable(end, done)

    def _write(
        self, topic: str, group: str, queue_id: int, handle: Handle, offsets: list[int], now: int
    ) -> int:
        popping = self._popping
        message = popping.log.ack(
            topic,
            group,
            queue_id,
            handle.start,
            handle.pop_time,
            handle.due_ms,
            list(dict.fromkeys(offsets)),
            handle.revive_queue,
            now,
        )
        end = popping.write(message)
        popping.inflight.done(topic, group, queue_id, handle.pop_time, len(offsets))
        return end

    # -- in order -----------------------------------------------------------------------------------------

    def _ack_in_order(
        self, topic: TopicConfig, group: str, queue_id: int, offset: int, pop_time: int
    ) -> None:
        broker, popping, name = self._broker, self._popping, topic.name
        committed = broker.consumer_offsets.query(group, name, queue_id)
        if offset < committed:
            return
        after = popping.order.ack(name, group, queue_id, offset, pop_time)
        if after == NO_SUCH_MESSAGE:
            remark = (
                f"offset is illegal, key:{name}@{queue_id}, old:{committed}, commit:{offset}, next:{after}"
            )
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        if after >= 0:
            if broker.resets.get(group, name, queue_id) is None:
                broker.commit_offset(group, name, queue_id, after)
            popping.inflight.done(name, group, queue_id, pop_time, 1)
            if not popping.order.is_blocked(name, group, queue_id, None):
                popping.holding.wake((name, group))

    # -- many at once -------------------------------------------------------------------------------------

    def batch_ack(self, connection: Connection, request: Command) -> Command | None:
        batches = body_object(request).get("acks") if request.body else None
        if not batches:
            return request.answer(ResponseCode.NO_MESSAGE)
        if not isinstance(batches, list):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "acks is no list")
        # All of them are looked at before one of them has an effect.
        wanted = [each for batch in batches if (each := self._read_batch(connection, batch)) is not None]
        now, end = self._broker.clock.now_ms(), -1
        for topic, group, queue_id, handle, offsets in wanted:
            if handle.order:
                for offset in offsets:
                    self._ack_in_order(topic, group, queue_id, offset, handle.pop_time)
            elif self._is_ours(handle):
                end = self._write(topic.name, group, queue_id, handle, offsets, now)
        return self._answer_when_durable(connection, request, request.answer(0), end)

    def _read_batch(
        self, connection: Connection, batch: Any
    ) -> tuple[TopicConfig, str, int, Handle, list[int]] | None:
        """Acks of one checkpoint, or None when none of them is of a message that there is."""
        if not isinstance(batch, dict):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "an entry of acks is no object")
        numbers = {name: str(batch.get(name, 0)) for name in ("so", "q", "rq", "pt", "it")}
        group, topic = str(batch.get("c") or ""), str(batch.get("t") or "")
        if batch.get("r") in ("1", "2"):
            topic = retry_topics(topic, group)[int(batch["r"]) - 1]
        queue_id, revive = number(numbers, "q"), number(numbers, "rq")
        start, due = long_number(numbers, "so"), long_number(numbers, "pt")
        config = self._topics.find(topic)
        if config is None or not group:
            return None
        if not 0 <= queue_id < config.read_queue_nums:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, illegal_queue(connection, config, queue_id))
        if (revive != ORDER_QUEUE and not 0 <= revive < REVIVE_QUEUES) or start < 0 or due < 0:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "an entry of acks names no checkpoint")
        name = self._broker.config.broker_name
        handle = Handle(start, due, long_number(numbers, "it"), revive, name, queue_id)
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        offsets = [start + bit for bit in _bits(batch.get("b")) if low <= start + bit <= high]
        if len(offsets) > MOST:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"more than {MOST} acks of one checkpoint")
        return (config, group, queue_id, handle, offsets) if offsets else None

    # -- more or less time --------------------------------------------------------------------------------

    def change(self, connection: Connection, request: Command) -> Command | None:
        """Another invisible time: a checkpoint of its own for the message, and an ack in the old one."""
        fields, popping, store = request.fields, self._popping, self._store
        topic, group = word(fields, "topic"), word(fields, "consumerGroup")
        queue_id = number(fields, "queueId")
        zero = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
        try:
            config = self._check_queue(connection, topic, queue_id)
            offset, invisible = long_number(fields, "offset"), long_number(fields, "invisibleTime")
            if not store.min_offset(topic, queue_id) <= offset < store.max_offset(topic, queue_id):
                raise RequestRefused(ResponseCode.NO_MESSAGE, NO_REMARK)
            handle = read_handle(word(fields, "extraInfo"))
            longest = store.config.timer_max_delay_sec * 1000
            if not 0 <= invisible <= longest:
                remark = f"invisibleTime[{invisible}] is illegal, it must be between 0 and {longest}"
                raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
            # A checkpoint is known by its queue, its first offset and its time: the new one has another time.
            now, ours = self._broker.clock.now_ms(), self._is_ours(handle)
            now = max(now, handle.pop_time + 1) if ours else now
            if handle.order:
                return self._change_in_order(request, config, group, queue_id, offset, invisible, handle)
            point = CheckPoint(
                bn=self._broker.config.broker_name,
                c=group,
                d=[0],
                it=invisible,
                n=1,
                pt=now,
                q=queue_id,
                so=offset,
                t=topic,
                sp=flag(fields, "suspend"),
            )
            # First the new one: a kill in between gives the message twice, never not at all.
            end = popping.write(popping.log.checkpoint(point, handle.revive_queue, now))
            if ours:
                end = self._write(topic, group, queue_id, handle, [offset], now)
            popping.inflight.add(topic, group, queue_id, 1)
        except RequestRefused as refused:
            refused.fields.update(zero)
            raise
        answer = {"popTime": str(now), "invisibleTime": str(invisible), "reviveQid": str(handle.revive_queue)}
        return self._answer_when_durable(
            connection, request, request.answer(0, answer, remark=NO_REMARK), end
        )

    def _change_in_order(
        self,
        request: Command,
        topic: TopicConfig,
        group: str,
        queue_id: int,
        offset: int,
        invisible: int,
        handle: Handle,
    ) -> Command:
        answer = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
        if offset >= self._broker.consumer_offsets.query(group, topic.name, queue_id):
            due = self._broker.clock.now_ms() + invisible
            self._popping.order.postpone(topic.name, group, queue_id, offset, handle.pop_time, due)
            answer = {
                "popTime": str(handle.pop_time),
                "invisibleTime": str(due - handle.pop_time),
                "reviveQid": str(ORDER_QUEUE),
            }
        return request.answer(0, answer, remark=NO_REMARK)

    def _answer_when_durable(
        self, connection: Connection, request: Command, answer: Command, end: int
    ) -> Command | None:
        if end < 0:
            return answer

        def done(error: OSError | None) -> None:
            if error is not None:
                answer.code, answer.remark = flush_failure(error)
            connection.reply(request, answer)

        self._broker.when_durable(end, done)
        return None


def _reason(error: PenstockError) -> tuple[int, str | None]:
    return (error.code, error.remark) if isinstance(error, RequestRefused) else failure(error)


def _refuse(waiting: list[Waiting], code: int, remark: str | None) -> None:
    for connection, requests in waiting:
        for request in requests:
            connection.reply(request, request.answer(code, remark=remark))


def _bits(text: Any) -> Iterator[int]:
    """The set bits of a bit set, as Java writes one in base64."""
    if not isinstance(text, str) or len(text) > MAX_BITS // 6:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the bits of an ack are missing or too many")
    try:
        bits = int.from_bytes(base64.b64decode(text, validate=True), "little")
    except (binascii.Error, ValueError):
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the bits of an ack are no base64") from None
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
