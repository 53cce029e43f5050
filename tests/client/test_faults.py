"""Brokers that refuse, fall silent, lie or go away: a typed error in time, never a hang."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client.fakebroker import FakeBroker
from penstock import Message
from penstock.client import ClientSettings, Consumer, MessageQueue, Producer, TransactionState
from penstock.client.errors import BrokerError, ClientClosed, MessageIllegal, SystemBusy
from penstock.client.received import ReceivedMessage
from penstock.errors import ConnectionLost, RemotingError, RemotingTimeout
from penstock.format.record import encode_record
from penstock.remoting import Command, Connection

STORED = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "0"}
QUICK = ClientSettings(send_timeout=2.0, call_timeout=2.0, close_timeout=0.2)


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def test_a_busy_broker_is_tried_again_and_then_reported() -> None:
    asked: list[str] = []

    def busy(connection: Connection, request: Command) -> Command:
        asked.append(request.fields["i"])
        return request.answer(2, remark="[OVERLOAD]system busy, start flow control for a while")

    async def work() -> None:
        async with (
            FakeBroker({310: busy}) as broker,
            Producer(namesrv=broker.address, settings=QUICK) as producer,
        ):
            with pytest.raises(SystemBusy, match="OVERLOAD"):
                await producer.send(Message("T", b"x"))
        assert len(asked) == 3
        assert len(set(asked)) == 1  # the same unique key each time

    run(work())


def test_a_passing_refusal_is_not_seen() -> None:
    answers = [2, 14, 0]

    def recovering(connection: Connection, request: Command) -> Command:
        return request.answer(answers.pop(0), dict(STORED))

    async def work() -> None:
        async with (
            FakeBroker({310: recovering}) as broker,
            Producer(namesrv=broker.address, settings=QUICK) as producer,
        ):
            assert (await producer.send(Message("T", b"x"))).ok

    run(work())


def test_a_refusal_that_stays_is_reported_at_once() -> None:
    asked: list[int] = []

    def illegal(connection: Connection, request: Command) -> Command:
        asked.append(1)
        return request.answer(13, remark="the message is illegal")

    async def work() -> None:
        async with (
            FakeBroker({310: illegal}) as broker,
            Producer(namesrv=broker.address, settings=QUICK) as producer,
        ):
            with pytest.raises(MessageIllegal):
                await producer.send(Message("T", b"x"))
        assert len(asked) == 1

    run(work())


def test_a_silent_broker_ends_in_a_timeout() -> None:
    async def work() -> None:
        async with (
            FakeBroker({310: lambda connection, request: None}) as broker,
            Producer(namesrv=broker.address, settings=QUICK) as producer,
        ):
            await producer.queues("T")
            sends = [producer.send(Message("T", b"x"), timeout=wait) for wait in (0.3, 0.05, 0.2)]
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert [type(result) for result in results] == [RemotingTimeout] * 3

    run(work())


def test_answers_that_lack_their_fields_are_errors() -> None:
    async def work() -> None:
        async with (
            FakeBroker({310: lambda connection, request: request.answer(0, {"msgId": "x"})}) as broker,
            Producer(namesrv=broker.address, settings=QUICK) as producer,
        ):
            with pytest.raises(RemotingError, match="queueOffset"):
                await producer.send(Message("T", b"x"))

    run(work())


def test_a_connection_that_breaks_under_a_send_is_made_anew() -> None:
    broken: list[Connection] = []

    def breaking(connection: Connection, request: Command) -> Command | None:
        if not broken:
            broken.append(connection)
            connection.abort("for the test")
            return None
        return request.answer(0, dict(STORED))

    async def work() -> None:
        async with (
            FakeBroker({310: breaking}) as broker,
            Producer(namesrv=broker.address, settings=QUICK) as producer,
        ):
            assert (await producer.send(Message("T", b"x"))).ok
            assert len(broken) == 1

    run(work())


def test_closing_fails_what_is_under_way() -> None:
    async def work() -> None:
        async with FakeBroker({310: lambda connection, request: None}) as broker:
            producer = Producer(namesrv=broker.address, settings=QUICK)
            await producer.start()
            await producer.queues("T")
            sending = asyncio.create_task(producer.send(Message("T", b"x"), timeout=20))
            await asyncio.sleep(0)
            await producer.close()
            with pytest.raises((ClientClosed, ConnectionLost)):
                await sending

    run(work())


def test_a_broker_that_asks_how_a_transaction_ended_is_told() -> None:
    told: asyncio.Queue[Command] = asyncio.Queue()
    record = encode_record(
        "T",
        b"half",
        b"UNIQ_KEY\x01U1\x02PGROUP\x01shop\x02",
        queue_id=0,
        queue_offset=8,
        physical_offset=1500,
        born_timestamp=1,
        store_timestamp=2,
    )
    seen: list[ReceivedMessage] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        seen.append(message)
        return TransactionState.COMMIT

    async def work() -> None:
        fake = FakeBroker({37: lambda connection, request: told.put_nowait(request)})
        async with (
            fake as broker,
            Producer("shop", namesrv=broker.address, settings=QUICK, check=check) as producer,
        ):
            await producer.queues("T")
            await producer.instance.connection(broker.address)
            asking = Command.request(
                39,
                {
                    "tranStateTableOffset": "8",
                    "commitLogOffset": "1500",
                    "msgId": "U1",
                    "transactionId": "U1",
                },
                record,
                oneway=True,
            )
            broker.connections[-1].send(asking)
            answer = await told.get()
        assert (seen[0].topic, seen[0].body, seen[0].message_id) == ("T", b"half", "U1")
        assert answer.is_oneway
        assert answer.fields["commitOrRollback"] == "8"
        assert answer.fields["fromTransactionCheck"] == "true"
        assert (answer.fields["tranStateTableOffset"], answer.fields["commitLogOffset"]) == ("8", "1500")
        assert answer.fields["producerGroup"] == "shop"

    run(work())


def test_a_consumer_survives_pulls_that_are_refused_or_nonsense() -> None:
    pulls: list[int] = []
    offsets = {"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1", "suggestWhichBrokerId": "0"}
    record = encode_record(
        "T",
        b"at last",
        b"UNIQ_KEY\x01U1\x02",
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        born_timestamp=1,
        store_timestamp=2,
    )

    def pull(connection: Connection, request: Command) -> Command | None:
        if request.fields["topic"] != "T":
            return None
        pulls.append(1)
        if len(pulls) == 1:
            return request.answer(24, remark="the consumer's group info not exist")
        if len(pulls) == 2:
            return request.answer(0, dict(offsets), b"\x00\x00\x00\x10nonsense")
        if len(pulls) == 3:
            return request.answer(0, {})
        if len(pulls) == 4:
            return request.answer(0, dict(offsets), record)
        return None

    def members(connection: Connection, request: Command) -> Command:
        return request.answer(body=b'{"consumerIdList":["%s"]}' % consumer.instance.client_id.encode())

    handlers = {
        11: pull,
        38: members,
        14: lambda connection, request: request.answer(0, {"offset": "0"}),
        15: lambda connection, request: request.answer(),
    }
    consumer: Consumer

    async def work() -> None:
        nonlocal consumer
        async with FakeBroker(handlers) as broker:
            settings = ClientSettings(pull_retry=0.01, call_timeout=2.0, close_timeout=0.5)
            consumer = Consumer("g", "T", namesrv=broker.address, settings=settings)
            async with consumer:
                async for message in consumer:
                    async with message:
                        assert message.body == b"at last"
                    break

    run(work())


def test_a_queue_is_read_on_when_its_new_place_could_not_be_kept() -> None:
    pulled: list[int] = []
    at_seven = asyncio.Event()

    def pull(connection: Connection, request: Command) -> None:
        pulled.append(int(request.fields["queueOffset"]))
        if pulled[-1] == 7:
            at_seven.set()

    def members(connection: Connection, request: Command) -> Command:
        return request.answer(body=b'{"consumerIdList":["%s"]}' % consumer.instance.client_id.encode())

    handlers = {
        11: pull,
        38: members,
        14: lambda connection, request: request.answer(0, {"offset": "0"}),
        15: lambda connection, request: request.answer(1, remark="not now"),
    }
    consumer: Consumer

    async def work() -> None:
        nonlocal consumer
        async with FakeBroker(handlers) as broker:
            consumer = Consumer("g", "T", namesrv=broker.address, settings=QUICK)
            async with consumer:
                queue = (await consumer.wait_assigned())[0]
                with pytest.raises(BrokerError, match="not now"):
                    await consumer.seek(MessageQueue("T", queue.broker_name, 0), 7)
                await at_seven.wait()

    run(work())
