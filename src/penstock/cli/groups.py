"""``penstock group``: consumer groups of a running broker, Penstock's or RocketMQ's."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.network import Json, NameServer, Yes

app = typer.Typer(
    help="Consumer groups of running brokers: list, show, create, delete, reset.", no_args_is_help=True
)

Group = Annotated[str, typer.Argument(help="Name of the group.")]


@app.callback()
def group() -> None:
    """Consumer groups of running brokers: list, show, create, delete, reset."""


@app.command("list")
def list_groups(
    namesrv: NameServer = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also those of the system.")] = False,
    as_json: Json = False,
) -> None:
    """Every group with its lag and how many clients are connected."""
    from penstock.cli.network import run, show_table
    from penstock.cli.output import write_json
    from penstock.client.admin import SYSTEM_GROUPS, Admin

    async def ask() -> list[dict[str, Any]]:
        rows = []
        async with Admin(namesrv) as admin:
            for name, settings in (await admin.groups()).items():
                if name in SYSTEM_GROUPS and not everything:
                    continue
                progress = await admin.progress(name)
                members = await admin.members(name)
                rows.append(
                    {
                        "group": name,
                        "clients": len(members.clients) if members else 0,
                        "lag": sum(each.lag for each in progress),
                        "retry_max_times": settings.get("retryMaxTimes", 16),
                        "consume_enable": settings.get("consumeEnable", True),
                    }
                )
        return rows

    rows = run(ask())
    if as_json:
        write_json({"groups": rows})
        return
    show_table(
        "groups",
        ["group", "clients", "lag", "retries"],
        [[row["group"], row["clients"], row["lag"], row["retry_max_times"]] for row in rows],
    )


@app.command("show")
def show(
    group: Group,
    namesrv: NameServer = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    as_json: Json = False,
) -> None:
    """How far a group is in each queue, and who of it is connected."""
    from penstock.cli.network import run, show_table
    from penstock.cli.output import time_text, write_json
    from penstock.client.admin import Admin, GroupMembers, QueueProgress

    async def ask() -> tuple[list[QueueProgress], GroupMembers | None]:
        async with Admin(namesrv) as admin:
            return await admin.progress(group, topic), await admin.members(group)

    progress, members = run(ask())
    if as_json:
        write_json(
            {
                "group": group,
                "lag": sum(each.lag for each in progress),
                "queues": [
                    {
                        "topic": each.queue.topic,
                        "broker": each.queue.broker_name,
                        "queue_id": each.queue.queue_id,
                        "broker_offset": each.broker_offset,
                        "consumer_offset": each.consumer_offset,
                        "lag": each.lag,
                        "last_timestamp": each.last_timestamp,
                    }
                    for each in progress
                ],
                "clients": members.clients if members else [],
                "message_model": members.message_model if members else None,
                "subscriptions": members.subscriptions if members else {},
            }
        )
        return
    show_table(
        group,
        ["topic", "broker", "queue", "end", "consumed", "lag", "last consumed"],
        [
            [
                each.queue.topic,
                each.queue.broker_name,
                each.queue.queue_id,
                each.broker_offset,
                each.consumer_offset,
                each.lag,
                time_text(each.last_timestamp) if each.last_timestamp else "-",
            ]
            for each in progress
        ],
    )
    if members is None:
        print("nobody is connected")
        return
    show_table(
        f"{members.message_model.lower()}, subscribed to "
        + ", ".join(f"{name} ({wanted})" for name, wanted in members.subscriptions.items()),
        ["client", "address", "language"],
        [[client["client_id"], client["address"], client["language"]] for client in members.clients],
    )


@app.command("create")
def create(
    group: Group,
    namesrv: NameServer = None,
    retries: Annotated[int, typer.Option(min=0, help="Tries after the first, then dead letters.")] = 16,
    broadcast: Annotated[bool, typer.Option(help="Allow members to broadcast.")] = True,
    enabled: Annotated[bool, typer.Option(help="Allow it to read at all.")] = True,
    as_json: Json = False,
) -> None:
    """Make a group on every broker, or change the one that is there."""
    from penstock.cli.network import run
    from penstock.cli.output import write_json
    from penstock.client.admin import Admin

    async def do() -> list[str]:
        async with Admin(namesrv) as admin:
            await admin.create_group(
                group, retryMaxTimes=retries, consumeBroadcastEnable=broadcast, consumeEnable=enabled
            )
            return sorted(await admin.masters())

    brokers = run(do())
    if as_json:
        write_json({"group": group, "retry_max_times": retries, "brokers": brokers})
    else:
        print(f"{group}: {retries} retries, on {', '.join(brokers)}")


@app.command("delete")
def delete(
    group: Group,
    namesrv: NameServer = None,
    keep_offsets: Annotated[bool, typer.Option(help="Remember how far it was.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Remove a group with its retry and dead-letter topics from every broker."""
    from penstock.cli.network import make_sure, run
    from penstock.cli.output import write_json
    from penstock.client.admin import Admin

    make_sure(f"Remove group {group} and its dead letters?", yes=yes, as_json=as_json)

    async def do() -> None:
        async with Admin(namesrv) as admin:
            await admin.delete_group(group, keep_offsets=keep_offsets)

    run(do())
    if as_json:
        write_json({"group": group, "deleted": True})
    else:
        print(f"{group} is gone")


@app.command("reset")
def reset(
    group: Group,
    topic: Annotated[str, typer.Argument(help="Topic to go to another place in.")],
    to: Annotated[str, typer.Option("--to", help="earliest, latest or a time (UTC).")] = "",
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue; with --offset.")] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="Offset to go to, in --queue.")] = None,
    broker: Annotated[str | None, typer.Option(help="Broker of the queue, if there are several.")] = None,
    namesrv: NameServer = None,
    as_json: Json = False,
) -> None:
    """Move a group to another place of a topic. Connected members follow."""
    from penstock.cli.network import moment_ms, run, show_table
    from penstock.cli.output import write_json
    from penstock.client.admin import EARLIEST, LATEST, Admin
    from penstock.client.queue import MessageQueue
    from penstock.errors import UsageError

    if (offset is None) == (not to) or (offset is not None and queue is None):
        raise UsageError("say where: --to earliest|latest|TIME, or --queue N --offset M")
    time_ms = {"earliest": EARLIEST, "latest": LATEST, "": 0}.get(to)
    if time_ms is None:
        time_ms = moment_ms(to, "--to")

    async def do() -> dict[MessageQueue, int]:
        async with Admin(namesrv) as admin:
            place = None
            if queue is not None:
                names = sorted((await admin.instance.route(topic)).addresses)
                if broker is None and len(names) > 1:
                    raise UsageError(f"{topic} is on several brokers", hint=f"--broker {'|'.join(names)}")
                place = MessageQueue(topic, broker or names[0], queue)
            return await admin.reset_offset(group, topic, time_ms=time_ms, queue=place, offset=offset)

    offsets = run(do())
    if as_json:
        write_json(
            {
                "group": group,
                "topic": topic,
                "queues": [
                    {"broker": place.broker_name, "queue_id": place.queue_id, "offset": value}
                    for place, value in offsets.items()
                ],
            }
        )
        return
    show_table(
        f"{group} goes on at",
        ["topic", "broker", "queue", "offset"],
        [[place.topic, place.broker_name, place.queue_id, value] for place, value in offsets.items()],
    )
