"""Pulls: from the request to the records (protocol section 5)."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from penstock._native.wireout import pull_answer
from penstock.broker.consumers import BROADCASTING
from penstock.broker.groups import GroupConfig
from penstock.broker.holding import HeldPull
from penstock.broker.names import FAQ
from penstock.broker.pullheader import PullHeader, pull_header
from penstock.broker.subscription import TAG, Subscription, no_filters, subscription
from penstock.broker.topics import PERM_READ, TopicConfig
from penstock.errors import InvalidFilter, RequestRefused
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode
from penstock.store.coldread import SHORT_SCAN, Place
from penstock.store.getting import MAX_BULK

if TYPE_CHECKING:
    from penstock._native.reading import GetResult
    from penstock.broker.broker import Broker

COMMIT_OFFSET, SUSPEND, SUBSCRIPTION = 1, 2, 4

NOT_FOUND, RETRY, MOVED = (
    int(ResponseCode.PULL_NOT_FOUND),
    int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    int(ResponseCode.PULL_OFFSET_MOVED),
)
_CODES = {
    "FOUND": 0,
    "MESSAGE_WAS_REMOVING": RETRY,
    "NO_MATCHED_MESSAGE": RETRY,
    "NO_MATCHED_LOGIC_QUEUE": NOT_FOUND,
    "NO_MESSAGE_IN_QUEUE": NOT_FOUND,
    "OFFSET_FOUND_NULL": NOT_FOUND,
    "OFFSET_OVERFLOW_ONE": NOT_FOUND,
    "OFFSET_OVERFLOW_BADLY": MOVED,
    "OFFSET_TOO_SMALL": MOVED,
}
BULK = "bulk"
"""A field of our own: the client takes as many messages as the bytes of an answer hold. RocketMQ has none."""
JOIN_BYTES = 65_536
"""Up to so many bytes one copy costs less than handing out the pieces."""
PARSE_FAILED = "parse the consumer's subscription failed"
NO_FILTER_DATA = "The broker's consumer filter data is not exist!Your expression may be wrong!"
MAX_HOLD_MS = 3_600_000
MAX_TAGS = 64
"""So many tags the store compares; a pull with more is given everything, its client looks at the tags."""


class Pulling:
    """Gives messages to consumers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.store
        self._topics = broker.topics
        self._cold = broker.store.cold_reads
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="penstock-reader")
        self._subscriptions: dict[tuple[str, str | None, str | None], Subscription] = {}

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.lite_pull}

    def lite_pull(self, connection: Connection, request: Command) -> Command | None:
        config = self._broker.config
        if not config.lite_pull_message_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.advertised_host}] for lite pull consumer is forbidden",
                {"forbiddenType": "1"},
            )
        return self.pull(connection, request)

    def pull(self, connection: Connection, request: Command) -> Command | None:
        return self._pull(connection, request, pull_header(request.fields), may_hold=True)

    def close(self) -> None:
        """End the threads that read old messages."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    async def fetch(self, places: list[Place]) -> None:
        """Have the disk give what a read would wait for, beside the loop."""
        await asyncio.get_running_loop().run_in_executor(self._readers, self._cold.fetch, places)

    async def _fetch_and_pull(
        self,
        connection: Connection,
        request: Command,
        header: PullHeader,
        places: list[Place],
        may_hold: bool,
    ) -> None:
        """Old messages come from the disk first, beside the loop; then the pull goes its way."""
        await self.fetch(places)
        if BULK in request.fields:
            self._cold.fetched(places)
        self._answer(connection, request, header, may_hold=may_hold, fetched=True)

    def _pull(
        self,
        connection: Connection,
        request: Command,
        header: PullHeader,
        *,
        may_hold: bool,
        fetched: bool = False,
    ) -> Command | None:
        broker = self._broker
        group_name, topic_name, queue_id, offset = header.group, header.topic, header.queue_id, header.offset
        group, topic = self._check(connection, group_name, topic_name, queue_id)
        wanted = self._wanted(header, group)
        broker.dispatching.catch_up()
        reset = broker.resets.take(group_name, topic_name, queue_id) if broker.resets else None
        if reset is not None:
            return self._moved(request, topic, group, queue_id, reset)
        count, bulk = header.count if wanted.is_tag else max(header.count, SHORT_SCAN), 0
        places: list[Place] = []
        if BULK in request.fields and wanted.is_tag and wanted.codes is None:
            bulk, places = self._cold.missing_bulk(topic_name, queue_id, offset, min(count, MAX_BULK))
        if not bulk and not fetched:
            places = self._cold.missing(topic_name, queue_id, offset, count)
        if places and not fetched:
            broker.spawn(self._fetch_and_pull(connection, request, header, places, may_hold))
            return None
        if bulk:
            result = self._store.get_bulk(topic_name, queue_id, offset, bulk)
        else:
            result = self.read(topic_name, queue_id, offset, header.count, wanted, group_name)
        status = result.status
        code = _CODES[status]
        if code == NOT_FOUND and offset != 0 and status == "NO_MESSAGE_IN_QUEUE":
            code = MOVED
        if may_hold:
            broker.pull_offsets[topic_name, group_name, queue_id] = result.next_begin_offset
            if header.sys_flag & COMMIT_OFFSET:
                broker.commit_offset(group_name, topic_name, queue_id, header.commit_offset)
            if (
                code == NOT_FOUND
                and header.sys_flag & SUSPEND
                and self._hold(connection, request, header, wanted)
            ):
                return None
        size = 0
        if code == 0:
            size = result.buffer_size
            broker.stats.count_get(topic_name, group_name, result.message_count, size)
        head = pull_answer(
            request.opaque,
            request.binary,
            code,
            status,
            result.next_begin_offset,
            result.min_offset,
            result.max_offset,
            0,
            topic.sys_flag,
            group.group_sys_flag,
            size,
        )
        if size > JOIN_BYTES and not bulk:
            connection.reply_raw(request, [head, *(memoryview(record) for record in result.raw)])
        else:
            connection.reply_raw(request, (b"".join((head, *result.raw)) if size else head,))
        return None

    # -- checks -------------------------------------------------------------------------------------------

    def _check(
        self, connection: Connection, group_name: str, topic_name: str, queue_id: int
    ) -> tuple[GroupConfig, TopicConfig]:
        """Section 5.2, up to the subscription."""
        broker = self._broker
        if not broker.config.broker_permission & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{broker.config.advertised_host}] pulling message is forbidden",
                {"forbiddenType": "1"},
            )
        group = broker.groups.get(group_name)
        if group is None:
            remark = f"subscription group [{group_name}] does not exist, {FAQ}"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {group_name}",
                {"forbiddenType": "2"},
            )
        topic = self._topics.find(topic_name)
        if topic is None:
            remark = f"topic[{topic_name}] not exist, apply first please! {FAQ}"
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic_name}] pulling message is forbidden",
                {"forbiddenType": "3"},
            )
        if not 0 <= queue_id < topic.read_queue_nums:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{connection.peer_text}]",
            )
        return group, topic

    def _wanted(self, header: PullHeader, group: GroupConfig) -> Subscription:
        """What the pull is to be filtered by: its own words, or what the group registered."""
        topic = header.topic
        if header.sys_flag & SUBSCRIPTION:
            return self.brought(topic, header.subscription, header.expression_type)
        consumers = self._broker.consumers.find(group.name)
        if consumers is None:
            remark = f"the consumer's group info not exist{FAQ}"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if not group.consume_broadcast_enable and consumers.message_model == BROADCASTING:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group.name}] can not consume by broadcast way",
                {"forbiddenType": "4"},
            )
        if not self._broker.groups.may_read(group.name, topic):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group.name}] is forbidden for topic[{topic}]",
                {"forbiddenType": "5"},
            )
        registered = consumers.subscriptions.get(topic)
        if registered is None:
            remark = f"the consumer's subscription not exist{FAQ}"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        # An older version than the pull's is served all the same: RocketMQ answers 25 there, and a client
        # whose heartbeat was skipped then gets nothing for up to 30 seconds (protocol 5.2).
        if not registered.is_tag:
            self._check_filter(registered, ResponseCode.FILTER_DATA_NOT_EXIST, NO_FILTER_DATA)
            self._broker.filters.register(group.name, registered)
        return registered

    def brought(self, topic: str, expression: str | None, expression_type: str | None) -> Subscription:
        """What a request itself says that it wants. Raises RequestRefused for a filter that is none."""
        words = (topic, expression, expression_type)
        known = self._subscriptions.get(words)
        if known is None:
            # A filter may take half a megabyte; tags are a few words.
            if len(self._subscriptions) >= (10_000 if expression_type in (None, "", TAG) else 200):
                self._subscriptions.clear()
            known = self._subscriptions[words] = subscription(*words)
        if not known.is_tag:
            self._check_filter(known, ResponseCode.SUBSCRIPTION_PARSE_FAILED, PARSE_FAILED)
        return known

    def _check_filter(self, wanted: Subscription, code: int, remark: str) -> None:
        """Refuse an expression that is no filter, and every one when filters are switched off."""
        try:
            _ = wanted.filter
        except InvalidFilter as error:
            raise RequestRefused(code, f"{remark} {error}") from None
        if not self._broker.config.enable_property_filter:
            raise no_filters(wanted.expression_type)

    # -- reading ------------------------------------------------------------------------------------------

    def read(
        self, topic: str, queue_id: int, offset: int, count: int, wanted: Subscription, group: str = ""
    ) -> GetResult:
        """Messages from a place on that a consumer may want, by a subscription that was checked."""
        if not wanted.is_tag:
            admit = None
            if self._store.config.enable_consume_queue_ext:
                data = self._broker.filters.find(topic, group)
                if data is not None and data.subscription is wanted:
                    admit = partial(self._broker.filters.may_match, data)
            short = not self._cold.young(topic, queue_id, offset)
            program = wanted.filter.program
            return self._store.get_filtered(topic, queue_id, offset, count, program, admit, short=short)
        codes = wanted.codes
        if codes is None or len(codes) > MAX_TAGS:
            return self._store.get(topic, queue_id, offset, count)
        return self._store.get_tagged(topic, queue_id, offset, count, codes)

    def _moved(
        self, request: Command, topic: TopicConfig, group: GroupConfig, queue_id: int, offset: int
    ) -> Command:
        """An administrator moved the group: it is told so, once."""
        fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(offset),
            "minOffset": str(self._store.min_offset(topic.name, queue_id)),
            "maxOffset": str(self._store.max_offset(topic.name, queue_id)),
            "topicSysFlag": str(topic.sys_flag),
            "groupSysFlag": str(group.group_sys_flag),
        }
        return request.answer(ResponseCode.PULL_OFFSET_MOVED, fields, remark="OFFSET_RESET")

    # -- holding ------------------------------------------------------------------------------------------

    def _hold(
        self, connection: Connection, request: Command, header: PullHeader, wanted: Subscription
    ) -> bool:
        broker = self._broker
        config = broker.config
        if broker.draining or len(broker.holding) >= config.max_held_pulls:
            return False
        length = header.suspend_ms if config.long_polling_enable else config.short_polling_time_ms
        if length <= 0:
            return False
        length = min(length, MAX_HOLD_MS)
        deadline = broker.now() + length / 1000
        request.body = b""
        broker.holding.hold(HeldPull(connection, request, header, wanted, deadline), length)
        return True

    def run_again(self, pull: HeldPull) -> None:
        """Answer a pull that was held, with whatever there is now."""
        self._answer(pull.connection, pull.request, pull.header, may_hold=False, fetched=False)

    def _answer(
        self,
        connection: Connection,
        request: Command,
        header: PullHeader,
        *,
        may_hold: bool,
        fetched: bool,
    ) -> None:
        if connection.closed:
            return
        try:
            answer = self._pull(connection, request, header, may_hold=may_hold, fetched=fetched)
        except RequestRefused as refused:
            answer = request.answer(refused.code, refused.fields, remark=refused.remark)
        except Exception as error:  # nobody above would answer it
            answer = request.answer(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
        if answer is not None:
            connection.reply(request, answer)
