"""Transactions: the verdict on a half message, and asking its producer for one (protocol section 8)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.header import flag, long_number, number, word
from penstock.errors import PenstockError, RequestRefused
from penstock.format.record import encode_record
from penstock.message.ids import message_id_of
from penstock.message.properties import PROPERTY_UNIQUE_KEY
from penstock.message.topic import TRANS_HALF_TOPIC
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode
from penstock.store.rewrite import property_map, real_place
from penstock.store.transaction import EndOutcome, EndTransaction, TransactionService, Verdict
from penstock.store.transactioncheck import CheckRequest, TransactionCheckService
from penstock.store.transactionops import TransactionOps

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_CODES = {"ILLEGAL_OPERATION": 604, "SYSTEM_ERROR": ResponseCode.SYSTEM_ERROR}


class Transactions:
    """Ends transactions. Its threads start with the first half message, or when an earlier run left some."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._service: TransactionService | None = None
        self._check: TransactionCheckService | None = None
        if broker.store.max_offset(TRANS_HALF_TOPIC, 0) > 0:
            self.need()

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.END_TRANSACTION: self.end}

    def need(self) -> TransactionService:
        """The service, running."""
        if self._service is None:
            store = self._broker.store
            ops = TransactionOps(store)
            self._service = TransactionService(store, ops)
            self._check = TransactionCheckService(store, store.consumer_offsets, ops, self._ask_soon)
            ops.start()
            self._check.start()
        return self._service

    def begun(self, topic: str) -> None:
        """A half message of this topic was stored: one more transaction is open (``transactionMetrics``)."""
        self.need().ops.metrics.add(topic, 1)

    @property
    def check(self) -> TransactionCheckService | None:
        """Who looks for half messages that stay open; None while there never was one."""
        return self._check

    def stop(self) -> None:
        """End the threads and keep which transactions are over. Waits for the disk: never on the loop."""
        if self._check is not None:
            self._check.stop()
        if self._service is not None:
            self._service.ops.stop()

    # -- verdicts -----------------------------------------------------------------------------------------

    def end(self, connection: Connection, request: Command) -> Command | None:
        fields = request.fields
        verdict = EndTransaction(
            commit_log_offset=long_number(fields, "commitLogOffset"),
            half_queue_offset=long_number(fields, "tranStateTableOffset"),
            producer_group=word(fields, "producerGroup"),
            action=number(fields, "commitOrRollback"),
            from_check=flag(fields, "fromTransactionCheck"),
        )
        judged = self.need().judge(verdict)
        if isinstance(judged, Verdict):
            return self._carry_out(connection, request, judged)
        if judged.code == "IGNORED":
            connection.forget(request)
            return None
        return self._refused(request, judged)

    def _refused(self, request: Command, outcome: EndOutcome) -> Command:
        return request.answer(_CODES.get(outcome.code, ResponseCode.SYSTEM_ERROR), remark=outcome.remark)

    def _carry_out(self, connection: Connection, request: Command, verdict: Verdict) -> Command | None:
        ops = self.need().ops
        half = verdict.half
        place = real_place(half)
        topic = place[0] if place is not None else None
        if verdict.message is None:
            ops.mark(half.queue_offset, half.queue_id, write=False, topic=topic)
            return request.answer(0)
        broker = self._broker
        try:
            result = broker.store.append(verdict.message)
        except PenstockError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if not result.ok:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, result.status)
        broker.dispatching.appended((result.topic or "", result.queue_id))
        broker.stats.count_put(verdict.message.topic, 1, result.size)

        def done(error: OSError | None) -> None:
            # Only a message that is on disk ends the transaction: else the producer is asked again.
            if error is None or isinstance(error, TimeoutError):
                ops.mark(half.queue_offset, half.queue_id, write=False, topic=topic)
                connection.reply(request, request.answer(0))
            else:
                connection.reply(request, request.answer(ResponseCode.SYSTEM_ERROR, remark=str(error)))

        broker.when_durable(result.end_offset, done)
        return None

    # -- questions ----------------------------------------------------------------------------------------

    def _ask_soon(self, check: CheckRequest) -> None:
        """Called on the checking thread."""
        self._loop.call_soon_threadsafe(self._ask, check)

    def _ask(self, check: CheckRequest) -> None:
        broker = self._broker
        connection = broker.producers.one_of(check.producer_group)
        if connection is None:
            return  # asked again next time
        place = real_place(check.half)
        topic, queue_id = place if place is not None else (check.half.topic, check.half.queue_id)
        properties = property_map(check.message)
        key = properties.get(PROPERTY_UNIQUE_KEY, "")
        half = check.half
        record = encode_record(
            topic=topic,
            body=half.body,
            queue_id=queue_id,
            flag=half.flag,
            queue_offset=check.queue_offset,
            physical_offset=check.physical_offset,
            sys_flag=half.sys_flag,
            born_timestamp=half.born_timestamp,
            born_host=half.born_host,
            store_timestamp=half.store_timestamp,
            store_host=half.store_host,
            reconsume_times=half.reconsume_times,
            prepared_transaction_offset=0,
            properties=check.message.raw_properties or b"",
        )
        fields = {
            "bname": broker.config.broker_name,
            "commitLogOffset": str(check.physical_offset),
            "msgId": key,
            "offsetMsgId": message_id_of(half.store_host, check.physical_offset),
            "topic": TRANS_HALF_TOPIC,
            "tranStateTableOffset": str(check.queue_offset),
            "transactionId": key,
        }
        connection.send(Command.request(RequestCode.CHECK_TRANSACTION_STATE, fields, record, oneway=True))
