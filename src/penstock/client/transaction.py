"""Messages that count only if something else happened too (protocol section 8)."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import TYPE_CHECKING

from penstock.client.received import ReceivedMessage, decode_messages
from penstock.client.sendresult import SendResult
from penstock.errors import PenstockError
from penstock.message import Message, decode_message_id
from penstock.message.sysflag import TRANSACTION_COMMIT_TYPE, TRANSACTION_NOT_TYPE, TRANSACTION_ROLLBACK_TYPE
from penstock.remoting import Command, Connection, RequestCode

if TYPE_CHECKING:
    from penstock.client.producer import Producer

log = logging.getLogger("penstock.client")


class TransactionState(IntEnum):
    """How a transaction ended. UNKNOWN lets the broker ask again later."""

    COMMIT = TRANSACTION_COMMIT_TYPE
    ROLLBACK = TRANSACTION_ROLLBACK_TYPE
    UNKNOWN = TRANSACTION_NOT_TYPE


CheckListener = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]
"""Told a message whose end the broker does not know; says how it ended. May be async."""


class Transaction:
    """A half message: stored, and seen by nobody yet. ``state`` is what the end of the block tells."""

    def __init__(self, producer: Producer, message: Message, result: SendResult) -> None:
        self.message = message
        self.result = result
        self.state = TransactionState.COMMIT
        self._producer = producer

    def roll_back(self) -> None:
        """Take the message back when the block ends."""
        self.state = TransactionState.ROLLBACK

    def leave_open(self) -> None:
        """Decide nothing when the block ends: the broker will ask."""
        self.state = TransactionState.UNKNOWN

    async def end(self, state: TransactionState) -> None:
        """Tell the broker. Raises what a send raises; then the broker will ask later."""
        self.state = state
        if state is TransactionState.UNKNOWN:
            return
        instance = self._producer.instance
        _, offset = decode_message_id(self.result.offset_message_id)
        fields = {
            "producerGroup": self._producer.group,
            "tranStateTableOffset": str(self.result.queue_offset),
            "commitLogOffset": str(offset),
            "commitOrRollback": str(int(state)),
            "fromTransactionCheck": "false",
            "msgId": self.result.message_id,
            "transactionId": self.result.transaction_id or self.result.message_id,
            "topic": self.message.topic,
            "bname": self.result.queue.broker_name,
        }
        address = instance.broker_address(self.result.queue.broker_name)
        await instance.call(
            address, RequestCode.END_TRANSACTION, fields, timeout=self._producer.settings.send_timeout
        )

    async def end_quietly(self, state: TransactionState) -> None:
        """As ``end``; a failure is logged."""
        try:
            await self.end(state)
        except PenstockError as error:
            log.warning("transaction %s: %s; the broker will ask", self.result.message_id, error)


class TransactionChecks:
    """Answers the broker's question how a transaction ended."""

    def __init__(self, producer: Producer, listener: CheckListener | None) -> None:
        self._producer = producer
        self._listener = listener

    def handle(self, connection: Connection, request: Command) -> None:
        """Request 39: one-way; the answer is a request of our own."""
        if self._listener is None:
            log.warning(
                "%s asks how a transaction ended, but this producer has no check", connection.peer_text
            )
            return
        body, fields = bytes(request.body), request.fields
        self._producer.spawn(self._answer(connection, body, fields))

    async def _answer(self, connection: Connection, body: bytes, fields: dict[str, str]) -> None:
        assert self._listener is not None
        try:
            message = decode_messages(body, fields.get("bname", connection.peer_text))[0]
            found = self._listener(message)
            state = TransactionState(await found if inspect.isawaitable(found) else found)
        except Exception:
            log.exception("checking transaction %s failed; the broker will ask again", fields.get("msgId"))
            state = TransactionState.UNKNOWN
        answer = {
            "producerGroup": self._producer.group,
            "tranStateTableOffset": fields.get("tranStateTableOffset", "0"),
            "commitLogOffset": fields.get("commitLogOffset", "0"),
            "commitOrRollback": str(int(state)),
            "fromTransactionCheck": "true",
            "msgId": fields.get("msgId", ""),
            "transactionId": fields.get("transactionId", ""),
            "topic": fields.get("topic", ""),
            "bname": fields.get("bname", ""),
        }
        kept = {name: value for name, value in answer.items() if value}
        connection.send(Command.request(RequestCode.END_TRANSACTION, kept, oneway=True))
