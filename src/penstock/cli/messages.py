"""``penstock message``: single messages of a running broker, Penstock's or RocketMQ's."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.network import Json, NameServer

if TYPE_CHECKING:
    from penstock.client.admin import Admin
    from penstock.client.received import ReceivedMessage

app = typer.Typer(help="Messages of running brokers: show, find, peek, resend.", no_args_is_help=True)

MessageId = Annotated[
    str, typer.Argument(metavar="ID", help="Offset message id; or with --topic a unique key.")
]
OfTopic = Annotated[str | None, typer.Option("--topic", help="Topic of a unique key.")]


@app.callback()
def message() -> None:
    """Messages of running brokers: show, find, peek, resend."""


async def _one(admin: Admin, message_id: str, topic: str | None) -> ReceivedMessage:
    from penstock.client.lookup import by_key, by_offset_id
    from penstock.errors import UsageError

    if topic is None:
        return await by_offset_id(admin, message_id)
    found = await by_key(admin, topic, message_id, unique=True)
    if not found:
        raise UsageError(f"no message of {topic} has the unique key {message_id}")
    return found[0]


@app.command("show")
def show(
    message_id: MessageId, topic: OfTopic = None, namesrv: NameServer = None, as_json: Json = False
) -> None:
    """Everything about one message, its body included."""
    from penstock.cli.network import run
    from penstock.cli.output import message_object, preview, print_facts, time_text, write_json
    from penstock.client.admin import Admin

    async def ask() -> ReceivedMessage:
        async with Admin(namesrv) as admin:
            return await _one(admin, message_id, topic)

    found = run(ask())
    if as_json:
        write_json(message_object(found))
        return
    print_facts(
        found.message_id,
        {
            "topic": found.topic,
            "queue": f"{found.queue_id} at {found.broker_name}, offset {found.queue_offset}",
            "place": f"{found.offset_message_id} ({found.physical_offset})",
            "stored": f"{time_text(found.store_timestamp)} at {found.store_host}",
            "born": f"{time_text(found.born_timestamp)} at {found.born_host}",
            "tries": found.reconsume_times,
            **{f"property {name}": value for name, value in sorted(found.properties.items())},
            "body": f"{len(found.body)} bytes: {preview(found.body)}",
        },
    )


@app.command("find")
def find(
    topic: Annotated[str, typer.Argument(help="Topic.")],
    key: Annotated[str, typer.Argument(help="Key of the messages.")],
    namesrv: NameServer = None,
    most: Annotated[int, typer.Option("--max", min=1, help="At most so many.")] = 64,
    as_json: Json = False,
) -> None:
    """Messages by key."""
    from penstock.cli.network import run
    from penstock.cli.output import write_message
    from penstock.client.admin import Admin
    from penstock.client.lookup import by_key

    async def ask() -> list[ReceivedMessage]:
        async with Admin(namesrv) as admin:
            return await by_key(admin, topic, key, most=most)

    for found in run(ask()):
        write_message(found, as_json=as_json)


@app.command("peek")
def peek(
    topic: Annotated[str, typer.Argument(help="Topic.")],
    namesrv: NameServer = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue.")] = None,
    start: Annotated[
        str, typer.Option("--from", help="earliest, latest (the last ones), a time, or an offset in --queue.")
    ] = "latest",
    count: Annotated[int, typer.Option(min=1, help="So many of each queue.")] = 10,
    tags: Annotated[str, typer.Option(help="Only these tags, as in 'a || b'.")] = "*",
    as_json: Json = False,
) -> None:
    """Look at messages of a topic. No group moves."""
    from penstock.cli.network import moment_ms, run
    from penstock.cli.output import write_message
    from penstock.client.admin import Admin
    from penstock.client.lookup import peek as look

    async def ask() -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        async with Admin(namesrv) as admin:
            route = await admin.instance.route(topic)
            for place in [each for each in route.subscribe_queues if queue in (None, each.queue_id)]:
                if start == "earliest":
                    offset = await admin.places.min_offset(place)
                elif start == "latest":
                    first = await admin.places.min_offset(place)
                    offset = max(await admin.places.max_offset(place) - count, first)
                elif queue is not None and start.isascii() and start.isdigit():
                    offset = int(start)
                else:
                    offset = await admin.places.offset_by_time(place, moment_ms(start, "--from"))
                found += (await look(admin, place, offset, most=count, tags=tags))[0]
        return sorted(found, key=lambda each: (each.store_timestamp, each.physical_offset))

    for found in run(ask()):
        write_message(found, as_json=as_json)
    sys.stdout.flush()


@app.command("resend")
def resend(
    message_id: MessageId,
    topic: OfTopic = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Topic to send it to; else the one it was first sent to.")
    ] = None,
    namesrv: NameServer = None,
    as_json: Json = False,
) -> None:
    """Send a message once more, as a new one: a dead letter, say, back to its topic."""
    from penstock.cli.network import run
    from penstock.cli.output import write_json
    from penstock.client import Producer, SendResult
    from penstock.client.admin import Admin
    from penstock.message import Message
    from penstock.message.properties import PROPERTY_RETRY_TOPIC

    async def do() -> SendResult:
        async with Admin(namesrv) as admin:
            found = await _one(admin, message_id, topic)
        target = to or found.properties.get(PROPERTY_RETRY_TOPIC) or found.topic
        kept = {name: value for name, value in found.properties.items() if name not in _SYSTEM_PROPERTIES}
        async with Producer("PENSTOCK_RESEND", namesrv=namesrv) as producer:
            return await producer.send(Message(target, found.body, properties=kept or None, flag=found.flag))

    sent = run(do())
    if as_json:
        write_json(
            {
                "status": sent.status,
                "topic": sent.queue.topic,
                "queue_id": sent.queue.queue_id,
                "queue_offset": sent.queue_offset,
                "message_id": sent.message_id,
                "offset_message_id": sent.offset_message_id,
            }
        )
    else:
        print(f"{sent.message_id}  {sent.queue.topic}-{sent.queue.queue_id}@{sent.queue_offset}")


# What brokers and clients add of themselves: a new message gets its own.
_SYSTEM_PROPERTIES = frozenset(
    {
        *("UNIQ_KEY", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP"),
        *("MIN_OFFSET", "MAX_OFFSET", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME", "MAX_RECONSUME_TIMES"),
        *("MSG_REGION", "TRACE_ON", "CLUSTER", "__transactionId__", "TRANSACTION_CHECK_TIMES"),
        *("TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"),
        *("TIMER_DELIVER_MS", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "CONSUME_START_TIME"),
    }
)
