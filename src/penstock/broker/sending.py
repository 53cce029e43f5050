"""Sends: single messages, batches, half messages; from the request to the answer (protocol section 4)."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock._native.putresult import refusal as not_stored
from penstock._native.sendheader import finish_properties
from penstock._native.wireout import send_answer
from penstock.broker.batching import Batching, TooLarge
from penstock.broker.names import FAQ, topic_fault
from penstock.broker.properties import PropertyRules, parse_text
from penstock.broker.putanswer import LIGHT_QUEUES_FULL, failure, flush_failure, refusal
from penstock.broker.sendheader import LONG, SHORT, SendHeader, send_header
from penstock.broker.topics import MULTI_TAG, PERM_WRITE, TopicConfig
from penstock.errors import PenstockError, RequestRefused
from penstock.message import Message
from penstock.message.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_PREPARED,
)
from penstock.message.recall import RecallHandle
from penstock.message.sysflag import INNER_BATCH_FLAG, MULTI_TAGS_FLAG
from penstock.message.topic import FORBIDDEN_TOPICS, LMQ_PREFIX, RETRY_TOPIC_PREFIX, TIMER_TOPIC
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode
from penstock.remoting.command import decode
from penstock.store.innerput import light_names
from penstock.store.retry import dead_letter_topic, redirect_exhausted
from penstock.store.rewrite import parse_number
from penstock.store.transaction import prepare_half

if TYPE_CHECKING:
    from penstock._native.putresult import PutResult
    from penstock.broker.broker import Broker

_RECONSUME_SINCE = 121
"""Clients of this version (3.4.9) and later mean what they say in maxReconsumeTimes."""


_OUT = f"\x02{PROPERTY_TIMER_OUT_MS}\x01".encode()
LOOK_AHEAD = 8 << 20
ROOM_EACH = 34 << 10
"""More than a record can take beside its body."""
FILE_SECONDS = 5.0
"""So long a message waits for the next log file."""


class Sending:
    """Takes messages from producers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        config = broker.config
        self.rules = PropertyRules(config)
        self._store = broker.store
        self._topics = broker.topics
        self._trace = config.trace_on
        self._trace_on = "true" if config.trace_on else "false"
        self._region = config.region_id
        self.marks = {"MSG_REGION": self._region, "TRACE_ON": self._trace_on}
        self._sync = broker.store.config.flush_disk_type == "sync"
        self._light = broker.store.config.enable_lmq
        self._awaited_file = broker.store.awaited_file
        self._append = broker.store.append_plain
        self._room = 0
        self._batching = Batching(self, broker)
        # Topics that are being saved, and who waits for that, in the order they came.
        self._unsaved: dict[str, deque[tuple[Connection, Command, SendHeader]]] = {}
        self._parked: deque[tuple[Connection, Command, SendHeader, TopicConfig]] = deque()
        # Topics that nothing is special about, and how many queues each has: most messages go the short way.
        self._plain: dict[str, int] = {}
        broker.topics.on_change.append(lambda name, _: self._plain.pop(name, None))

    def settings_changed(self) -> None:
        """Look at every topic again before its messages go the short way."""
        self._plain.clear()

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send_long,
            RequestCode.SEND_MESSAGE_V2: self.send_short,
            RequestCode.SEND_BATCH_MESSAGE: self.send_batch,
        }

    def send_long(self, connection: Connection, request: Command) -> Command | None:
        return self._send(connection, request, send_header(request.fields, LONG))

    def send_short(self, connection: Connection, request: Command) -> Command | None:
        return self._send(connection, request, send_header(request.fields, SHORT))

    def send_batch(self, connection: Connection, request: Command) -> Command | None:
        header = send_header(request.fields, SHORT)
        header.batch = True
        return self._send(connection, request, header)

    # -- checks -------------------------------------------------------------------------------------------

    def _send(self, connection: Connection, request: Command, header: SendHeader) -> Command | None:
        queues = self._plain.get(header.topic, 0)
        short = -1 < header.queue_id < queues and bool(request.body) and not self._parked
        if short and header.batch:
            known = self._topics.find(header.topic)
            if known is not None and self._has_room(len(request.body)):
                return self._put_either(connection, request, header, known)
        elif short:
            finished = finish_properties(header.properties, self.rules.suffix)
            # What asks for more than being stored goes the long way, and so does what needs another log file.
            plain = finished is not None and not finished[2] and not header.sys_flag & INNER_BATCH_FLAG
            if finished is not None and plain and self._has_room(len(request.body)):
                try:
                    return self._put_plain(connection, request, header, finished)
                except PenstockError as error:
                    return self._failed(request, error)
        if not request.body:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the message has no body")
        name = header.topic
        topic = self._topics.find(name)
        if topic is None or name in FORBIDDEN_TOPICS or self._broker.closed_for_sends:
            try:
                self.check(connection, header)
            except RequestRefused as refused:
                refused.fields.update(self.marks)
                raise
            if topic is None:
                self._create(connection, request, header)
                return None
        if name in self._unsaved:
            self._wait_for_topic(connection, request, header)
            return None
        if topic.filter_type != MULTI_TAG and not name.startswith(RETRY_TOPIC_PREFIX):
            self._plain[name] = 0 if self._broker.closed_for_sends else topic.queue_nums
        return self._accept(connection, request, header, topic)

    def _has_room(self, size: int) -> bool:
        """Whether a message can be appended without waiting for another log file.

        Looked up once in a while: between two looks so much is used up that the file surely still has.
        """
        self._room -= size + ROOM_EACH
        if self._room > 0:
            return True
        if self._awaited_file(LOOK_AHEAD) is None:
            self._room = LOOK_AHEAD // 2  # the rest is for those who write beside the loop
            return True
        return self._awaited_file(size) is None

    def check(self, connection: Connection, header: SendHeader) -> None:
        """The checks of section 4.1 that do not need the topic. Raises RequestRefused."""
        config = self._broker.config
        name = header.topic
        if self._broker.clock.now_ms() < config.start_accept_send_request_ms:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {config.start_accept_send_request_ms}",
            )
        topic = self._topics.find(name)
        if not config.broker_permission & PERM_WRITE and topic is not None and topic.order:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.advertised_host}] sending message is forbidden",
            )
        fault = topic_fault(name)
        if fault is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
        if name in FORBIDDEN_TOPICS:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden."
            )

    def new_topic(self, header: SendHeader) -> TopicConfig | None:
        """Make the topic a producer wants, if it may be made."""
        made = self._topics.inherit(header.topic, header.default_topic, header.default_queue_nums)
        if made is None and header.topic.startswith(RETRY_TOPIC_PREFIX):
            made = self._topics.ensure(header.topic, 1)
        return made

    def _create(self, connection: Connection, request: Command, header: SendHeader) -> None:
        if self.new_topic(header) is None:
            raise self._no_topic(header)
        self._unsaved[header.topic] = deque()
        self._wait_for_topic(connection, request, header)
        self._broker.spawn(self._accept_when_saved(header.topic))

    def _no_topic(self, header: SendHeader) -> RequestRefused:
        remark = f"topic[{header.topic}] not exist, apply first please!{FAQ}"
        return RequestRefused(ResponseCode.TOPIC_NOT_EXIST, remark, self.marks)

    def _wait_for_topic(self, connection: Connection, request: Command, header: SendHeader) -> None:
        request.body = bytes(request.body)  # the network's buffer is used again meanwhile
        self._unsaved[header.topic].append((connection, request, header))

    async def _accept_when_saved(self, name: str) -> None:
        """Acked messages of a topic that a kill makes unknown are out of reach: the topic comes first."""
        refused: PenstockError | None = None
        try:
            if self._topics.file is not None:
                await self._topics.file.saved()
        except PenstockError as error:
            refused = error
        for connection, request, header in self._unsaved.pop(name):
            try:
                topic = self._topics.find(name)
                if refused is not None:
                    raise refused
                if topic is None:
                    raise self._no_topic(header)
                answer = self._accept(connection, request, header, topic)
            except PenstockError as error:
                answer = self._failed(request, error)
            if answer is not None:
                connection.reply(request, answer)

    # -- storing ------------------------------------------------------------------------------------------

    def _accept(
        self, connection: Connection, request: Command, header: SendHeader, topic: TopicConfig
    ) -> Command | None:
        queue_id = header.queue_id
        if queue_id >= topic.queue_nums:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, {topic} Producer: {connection.peer_text}",
                self.marks,
            )
        if queue_id < 0:
            header.queue_id = random.randrange(99_999_999) % max(topic.write_queue_nums, 1)
        if self._parked or self._store.awaited_file(len(request.body)) is not None:
            self._park(connection, request, header, topic)
            return None
        return self._put_either(connection, request, header, topic)

    def _put_either(
        self, connection: Connection, request: Command, header: SendHeader, topic: TopicConfig
    ) -> Command | None:
        try:
            if header.batch:
                return self._batching.put(connection, request, header, topic)
            return self._put(connection, request, header, topic)
        except PenstockError as error:
            return self._failed(request, error)

    def _put_plain(
        self,
        connection: Connection,
        request: Command,
        header: SendHeader,
        finished: tuple[bytes, str, bool, bool],
    ) -> Command | None:
        """A message that only wants to be stored, into a queue that exists: as ``_put``, in fewer steps."""
        raw, key, _, waits = finished
        broker = self._broker
        topic, queue_id = header.topic, header.queue_id
        message = Message(
            topic,
            request.body,
            None,
            None,
            queue_id,
            None,
            None,
            header.flag,
            header.sys_flag,
            header.born_timestamp,
            connection.context.get("born_host") or broker.born_host(connection),
            None,
            header.reconsume_times,
            0,
            0,
            waits,
            raw,
        )
        result = self._append(message)
        if not result.ok:
            return self.refused(request, result)
        broker.dispatching.appended((topic, queue_id))
        broker.stats.count_put(topic, 1, result.size)
        place, end = result.queue_offset, result.end_offset
        self.answer_stored(connection, request, result.message_id or "", queue_id, place, key, end, waits)
        return None

    def _put(
        self, connection: Connection, request: Command, header: SendHeader, topic: TopicConfig
    ) -> Command | None:
        raw, key, asks, waits = self.rules.finish(header.properties)
        sys_flag = header.sys_flag
        if topic.filter_type == MULTI_TAG:
            sys_flag |= MULTI_TAGS_FLAG
        message = Message(
            header.topic,
            request.body,
            queue_id=header.queue_id,
            flag=header.flag,
            sys_flag=sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=self._broker.born_host(connection),
            reconsume_times=header.reconsume_times,
            wait=waits,
            raw_properties=raw,
        )
        if header.topic.startswith(RETRY_TOPIC_PREFIX):
            message = self._retried(request, header, message)
        half = False
        if asks:
            half = self._is_half(header)
            if half:
                message = prepare_half(message, self._store)
            else:
                scheduled = self._store.schedules.hook(message)
                if isinstance(scheduled, str):
                    return self.refused(request, not_stored(scheduled, "no such delivery is possible"))
                message = scheduled
        lights = light_names(message) if asks and self._light else ()
        if lights:
            self._check_lights(lights)
        result = self._store.append(message, hooks=False)
        if not result.ok:
            return self.refused(request, result)
        if half:
            self._broker.transactions.begun(header.topic)
        fields = {
            "msgId": result.message_id or "",
            "queueId": str(header.queue_id),
            "queueOffset": str(result.queue_offset),
            "transactionId": key,
            "MSG_REGION": self._region,
            "TRACE_ON": self._trace_on,
        }
        if asks and message.topic == TIMER_TOPIC and not header.topic.startswith(RETRY_TOPIC_PREFIX):
            self._add_recall_handle(fields, header, message, key)
        self._broker.dispatching.appended((result.topic or "", result.queue_id))
        for name in lights:
            self._broker.dispatching.appended((name, 0), 0)  # who waits there is to be told, too
        self._broker.stats.count_put(header.topic, 1, result.size)
        return self.answer(connection, request, request.answer(0, fields), result.end_offset, waits)

    def _check_lights(self, names: Sequence[str]) -> None:
        """Whether a message may go to these light queues. Raises RequestRefused."""
        if not all(name.startswith(LMQ_PREFIX) for name in names):
            # Another topic's queue is not for whoever may send to this one.
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL, f"{PROPERTY_INNER_MULTI_DISPATCH} names what is no light queue"
            )
        config = self._store.config
        if config.enable_multi_dispatch and self._store.light_queues > config.max_lmq_consume_queue_num:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, LIGHT_QUEUES_FULL)

    def _retried(self, request: Command, header: SendHeader, message: Message) -> Message:
        """A consumer's own send to its retry topic: the message, or its way to the dead letters."""
        broker = self._broker
        name = header.topic[len(RETRY_TOPIC_PREFIX) :]
        group = broker.groups.get(name)
        if group is None:
            remark = f"subscription group not exist, {name} {FAQ}"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        most = group.retry_max_times
        if request.version >= _RECONSUME_SINCE and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        redirected = redirect_exhausted(
            message, name, max_reconsume_times=most, ordered=broker.locks.is_held(name)
        )
        if redirected.topic == dead_letter_topic(name):
            self._topics.ensure(redirected.topic, 1)
        return redirected

    def _is_half(self, header: SendHeader) -> bool:
        """Whether the message is the first half of a transaction."""
        if PROPERTY_TRANSACTION_PREPARED not in header.properties:
            return False
        properties = parse_text(header.properties)
        if properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() != "true":
            return False
        level = parse_number(properties.get(PROPERTY_DELAY_TIME_LEVEL)) or 0
        if header.reconsume_times > 0 and level > 0:
            return False
        config = self._broker.config
        if config.reject_transaction_message:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.advertised_host}] sending transaction message is forbidden",
            )
        self._broker.transactions.need()
        return True

    def _add_recall_handle(
        self, fields: dict[str, str], header: SendHeader, stored: Message, key: str
    ) -> None:
        """What a producer needs to take a timed message back."""
        # The hook wrote the time behind whatever the producer sent, and never twice.
        written = (stored.raw_properties or b"").rpartition(_OUT)[2].partition(b"\x02")[0]
        due = parse_number(written.decode(errors="replace"))
        if due is not None:
            handle = RecallHandle(header.topic, self._broker.config.broker_name, due + 1, key)
            fields["recallHandle"] = handle.encode()

    # -- answering ----------------------------------------------------------------------------------------

    def refused(self, request: Command, result: PutResult | TooLarge) -> Command:
        """The answer to a message that the store did not take."""
        self._broker.stats.put_failures += 1
        code, remark = refusal(self._store, result)
        return request.answer(code, dict(self.marks), remark=remark)

    def _failed(self, request: Command, error: PenstockError) -> Command:
        """The answer to a send that raised: refused, or the store could not."""
        if isinstance(error, RequestRefused):
            return request.answer(error.code, {**error.fields, **self.marks}, remark=error.remark)
        self._broker.stats.put_failures += 1
        code, remark = failure(error)
        return request.answer(code, dict(self.marks), remark=remark)

    def answer_stored(
        self,
        connection: Connection,
        request: Command,
        message_id: str,
        queue_id: int,
        queue_offset: int,
        key: str | None,
        end_offset: int,
        waits: bool,
    ) -> None:
        """Say that it is stored, now or when it is on disk. ``answer``, in fewer steps."""
        head = (request.opaque, request.binary, 0, None, self._region, self._trace)
        frame = send_answer(*head, message_id, queue_id, queue_offset, key)
        if self._sync and waits:
            self._broker.acks.add(end_offset, _Ack(self, connection, request, frame))
        else:
            connection.reply_frame(request, frame)

    def answer(
        self, connection: Connection, request: Command, answer: Command, end_offset: int, waits: bool
    ) -> Command | None:
        """The answer now, or when the message is on disk."""
        if not self._sync or not waits:
            return answer

        def done(error: OSError | None) -> None:
            if error is not None:
                answer.code, answer.remark = flush_failure(error)
            connection.reply(request, answer)

        self._broker.acks.add(end_offset, done)
        return None

    # -- no file to write to ------------------------------------------------------------------------------

    def _park(self, connection: Connection, request: Command, header: SendHeader, topic: TopicConfig) -> None:
        """The next log file is still being made: wait for it, in order, without holding up the loop."""
        request.body = bytes(request.body)
        self._parked.append((connection, request, header, topic))
        if len(self._parked) == 1:
            self._broker.spawn(self._unpark())

    async def _unpark(self) -> None:
        while self._parked:
            connection, request, header, topic = self._parked[0]
            awaited = self._store.awaited_file(len(request.body))
            if awaited is not None:
                # Only until it is there: whether it could be made, the put itself finds out.
                made = asyncio.wrap_future(awaited)
                made.add_done_callback(lambda future: future.cancelled() or future.exception())
                await asyncio.wait([made], timeout=FILE_SECONDS)
            self._parked.popleft()
            answer = self._put_either(connection, request, header, topic)
            if answer is not None:
                connection.reply(request, answer)


class _Ack:
    """The answer to a message that waits for the disk."""

    __slots__ = ("connection", "frame", "request", "sending")

    def __init__(self, sending: Sending, connection: Connection, request: Command, frame: bytes) -> None:
        self.sending = sending
        self.connection = connection
        self.request = request
        self.frame = frame

    def __call__(self, error: OSError | None) -> None:
        if error is None:
            self.connection.reply_raw(self.request, (self.frame,))
            return
        code, remark = flush_failure(error)
        if code == ResponseCode.FLUSH_DISK_TIMEOUT:
            # It is stored all the same: the answer is that of success, but for its code.
            answer = decode(self.frame)
            answer.code = code
        else:
            answer = self.request.answer(code, dict(self.sending.marks), remark=remark)
        self.connection.reply(self.request, answer)
