"""Questions around pops: is there something, how many wait, and a look without taking (protocol 3.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.header import number, word
from penstock.broker.pop import EARLY_MS, NO_MESSAGE, NOTHING
from penstock.broker.popacks import NO_REMARK
from penstock.broker.popcheckpoint import MOST
from penstock.broker.popheader import PopHeader, notification_header
from penstock.broker.popholding import HeldPop
from penstock.broker.pulling import MAX_HOLD_MS
from penstock.broker.subscription import Subscription
from penstock.broker.topics import PERM_READ
from penstock.errors import RequestRefused
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.popping import Popping


class PopNotify:
    """Answers them. Nothing here moves a group."""

    def __init__(self, broker: Broker, popping: Popping) -> None:
        self._broker = broker
        self._popping = popping
        self._store = broker.store

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.NOTIFICATION: self.notification,
            RequestCode.POLLING_INFO: self.polling_info,
            RequestCode.PEEK_MESSAGE: self.peek,
        }

    # -- is there something -------------------------------------------------------------------------------

    def notification(self, connection: Connection, request: Command) -> Command | None:
        header = notification_header(request.fields)
        self._check(connection, header, {"hasMsg": "false", "pollingFull": "false"})
        now = self._broker.clock.now_ms()
        if header.born_ms <= 0:
            header.born_ms = now
        if self._has_message(header):
            return self._answer(request, has=True)
        holding = self._popping.holding
        full = len(holding) >= self._broker.config.max_held_pulls
        length = min(header.born_ms + header.poll_ms - EARLY_MS - now, header.poll_ms, MAX_HOLD_MS)
        if full or length <= 0 or self._broker.draining:
            return self._answer(request, has=False, full=full)
        request.body = b""
        wanted = Subscription(header.topic)
        holding.hold(HeldPop(connection, request, header, wanted, notification=True), length)
        return None

    def _check(self, connection: Connection, header: PopHeader, nothing: dict[str, str]) -> None:
        """Whether the group may look there. A refusal has the fields that Java wants in every answer."""
        config = self._broker.config
        try:
            if not config.broker_permission & PERM_READ:
                remark = f"the broker[{config.advertised_host}] peeking message is forbidden"
                raise RequestRefused(ResponseCode.NO_PERMISSION, remark)
            self._popping.pops.check_place(connection, header)
        except RequestRefused as refused:
            refused.fields.update(nothing)
            raise

    def _has_message(self, header: PopHeader) -> bool:
        self._broker.dispatching.catch_up()
        popping = self._popping
        for topic, queue_id in popping.pops.queues(header):
            if header.order and popping.order.is_blocked(topic, header.group, queue_id, header.attempt_id):
                continue
            begin = popping.positions.find(topic, header.group, queue_id, from_end=False, keep=False)
            if begin < self._store.max_offset(topic, queue_id):
                return True
        return False

    @staticmethod
    def _answer(request: Command, *, has: bool, full: bool = False) -> Command:
        fields = {"hasMsg": "true" if has else "false", "pollingFull": "true" if full else "false"}
        return request.answer(0, fields, remark=NO_REMARK)

    def again(self, held: HeldPop) -> bool:
        """Look once more for one that waits; whether it is answered."""
        if held.connection.closed:
            return True
        if not self._has_message(held.header):
            return False
        held.connection.reply(held.request, self._answer(held.request, has=True))
        return True

    def expire(self, held: HeldPop) -> None:
        """Its time is over."""
        if not self.again(held):
            held.connection.reply(held.request, self._answer(held.request, has=False))

    # -- how many wait ------------------------------------------------------------------------------------

    def polling_info(self, connection: Connection, request: Command) -> Command:
        fields = request.fields
        header = _place(fields, 1)
        self._check(connection, header, {"pollingNum": "0"})
        count = self._popping.holding.count(header.topic, header.group, header.queue_id)
        return request.answer(0, {"pollingNum": str(count)}, remark=NO_REMARK)

    # -- a look -------------------------------------------------------------------------------------------

    def peek(self, connection: Connection, request: Command) -> Command | None:
        """Messages that a pop would get next; nobody is given them."""
        header = _place(request.fields, number(request.fields, "maxMsgNums"))
        self._check(connection, header, NOTHING)
        self._broker.dispatching.catch_up()
        count, rest = min(header.count, MOST), 0
        views: list[memoryview] = []
        for topic, queue_id in self._popping.pops.queues(header):
            begin = self._popping.positions.find(topic, header.group, queue_id, from_end=False, keep=False)
            rest += max(self._store.max_offset(topic, queue_id) - begin, 0)
            # What the disk would have to give first is counted, not shown.
            if len(views) < count and not self._store.cold_reads.missing(topic, queue_id, begin, count):
                found = self._store.get(topic, queue_id, begin, count - len(views))
                views += map(memoryview, found.raw)
        if not views:
            return request.answer(ResponseCode.PULL_NOT_FOUND, dict(NOTHING), remark=NO_MESSAGE)
        answer = request.answer(0, {**NOTHING, "restNum": str(rest)}, remark="FOUND")
        connection.reply_parts(request, answer, views)
        return None


def _place(fields: dict[str, str], count: int) -> PopHeader:
    return PopHeader(
        word(fields, "consumerGroup"),
        word(fields, "topic"),
        number(fields, "queueId"),
        count,
        *(0, 0, 0),
        from_end=False,
        order=False,
        attempt_id=None,
        expression=None,
        expression_type=None,
    )
