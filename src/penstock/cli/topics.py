"""``penstock topic``: the topics of a running broker, Penstock's or RocketMQ's."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.network import Json, NameServer, Yes

app = typer.Typer(help="Topics of running brokers: list, show, create, delete.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
_PERMISSIONS = {"r": 4, "w": 2, "rw": 6}


@app.callback()
def topic() -> None:
    """Topics of running brokers: list, show, create, delete."""


@app.command("list")
def list_topics(
    namesrv: NameServer = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also those of the system, retries and dead letters.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Every topic, one a line."""
    from penstock.cli.network import run
    from penstock.cli.output import safe, write_json
    from penstock.client.admin import Admin

    async def ask() -> list[str]:
        async with Admin(namesrv) as admin:
            names = await admin.topics()
            if everything:
                return names
            brokers = await admin.brokers()
            own = {name for broker in brokers for name in (broker.cluster, broker.broker_name)}
            return [name for name in names if not _is_of_the_system(name, own)]

    found = run(ask())
    if as_json:
        write_json({"topics": found})
        return
    for name in found:
        print(safe(name))


def _is_of_the_system(name: str, own: set[str]) -> bool:
    from penstock.message.topic import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX, is_system_topic

    return (
        is_system_topic(name)
        or name.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX))
        or name in own
        or name.endswith("_REPLY_TOPIC")
    )


@app.command("show")
def show(topic: Topic, namesrv: NameServer = None, as_json: Json = False) -> None:
    """The queues of a topic with their offsets, and the groups that read it with their lag."""
    from penstock.cli.network import run, show_table
    from penstock.cli.output import time_text, write_json
    from penstock.client.admin import Admin, QueueState

    async def ask() -> tuple[list[QueueState], dict[str, int]]:
        async with Admin(namesrv) as admin:
            states = await admin.topic_state(topic)
            lags = {}
            for group in await admin.topic_groups(topic):
                lags[group] = sum(each.lag for each in await admin.progress(group, topic))
            return states, lags

    states, lags = run(ask())
    if as_json:
        write_json(
            {
                "topic": topic,
                "queues": [
                    {
                        "broker": state.queue.broker_name,
                        "queue_id": state.queue.queue_id,
                        "min_offset": state.min_offset,
                        "max_offset": state.max_offset,
                        "last_update": state.last_update,
                    }
                    for state in states
                ],
                "groups": [{"group": group, "lag": lag} for group, lag in lags.items()],
            }
        )
        return
    show_table(
        topic,
        ["broker", "queue", "min", "max", "messages", "last message"],
        [
            [
                state.queue.broker_name,
                state.queue.queue_id,
                state.min_offset,
                state.max_offset,
                state.max_offset - state.min_offset,
                time_text(state.last_update) if state.last_update else "-",
            ]
            for state in states
        ],
    )
    if lags:
        show_table("read by", ["group", "lag"], [[group, lag] for group, lag in lags.items()])


@app.command("create")
def create(
    topic: Topic,
    namesrv: NameServer = None,
    queues: Annotated[int, typer.Option(min=1, max=65536, help="Queues on each broker.")] = 8,
    perm: Annotated[str, typer.Option(help="rw, r or w.")] = "rw",
    as_json: Json = False,
) -> None:
    """Make a topic on every broker, or change the one that is there."""
    from penstock.cli.network import run
    from penstock.cli.output import write_json
    from penstock.client.admin import Admin

    if perm not in _PERMISSIONS:
        raise typer.BadParameter(f"{perm!r} is neither rw, r nor w", param_hint="--perm")

    async def do() -> list[str]:
        async with Admin(namesrv) as admin:
            await admin.create_topic(topic, queues=queues, perm=_PERMISSIONS[perm])
            return sorted(await admin.masters())

    brokers = run(do())
    if as_json:
        write_json({"topic": topic, "queues": queues, "perm": perm, "brokers": brokers})
    else:
        print(f"{topic}: {queues} queues on {', '.join(brokers)}")


@app.command("delete")
def delete(topic: Topic, namesrv: NameServer = None, yes: Yes = False, as_json: Json = False) -> None:
    """Remove a topic and its messages from every broker."""
    from penstock.cli.network import make_sure, run
    from penstock.cli.output import write_json
    from penstock.client.admin import Admin

    make_sure(f"Remove topic {topic} and its messages?", yes=yes, as_json=as_json)

    async def do() -> None:
        async with Admin(namesrv) as admin:
            await admin.delete_topic(topic)

    run(do())
    if as_json:
        write_json({"topic": topic, "deleted": True})
    else:
        print(f"{topic} is gone")
