"""``penstock broker``: the running brokers, Penstock's or RocketMQ's."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.network import Json, NameServer

app = typer.Typer(help="Running brokers: list, show.", no_args_is_help=True)


@app.callback()
def broker() -> None:
    """Running brokers: list, show."""


@app.command("list")
def list_brokers(namesrv: NameServer = None, as_json: Json = False) -> None:
    """Every broker the name server knows, with its rates."""
    from penstock.cli.network import run, show_table
    from penstock.cli.output import write_json
    from penstock.client.admin import Admin
    from penstock.errors import PenstockError

    async def ask() -> list[dict[str, Any]]:
        rows = []
        async with Admin(namesrv) as admin:
            for known in await admin.brokers():
                for number, address in sorted(known.broker_addrs.items()):
                    row: dict[str, Any] = {
                        "cluster": known.cluster,
                        "broker": known.broker_name,
                        "id": number,
                        "address": address,
                    }
                    try:
                        said = await admin.runtime(address)
                        row["version"] = said.get("brokerVersionDesc", "")
                        row["put_tps"] = _first(said.get("putTps"))
                        row["get_tps"] = _first(said.get("getTransferredTps"))
                    except PenstockError as error:
                        row["error"] = str(error)
                    rows.append(row)
        return rows

    rows = run(ask())
    if as_json:
        write_json({"brokers": rows})
        return
    show_table(
        "brokers",
        ["cluster", "broker", "id", "address", "version", "in/s", "out/s"],
        [
            [
                *(row["cluster"], row["broker"], row["id"], row["address"]),
                *(row.get("version", row.get("error", "")), row.get("put_tps", ""), row.get("get_tps", "")),
            ]
            for row in rows
        ],
    )


def _first(text: str | None) -> float:
    """RocketMQ tells rates of three spans; the first is the shortest."""
    words = (text or "").split()
    try:
        return round(float(words[0]), 1) if words else 0.0
    except ValueError:
        return 0.0


@app.command("show")
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="BROKER", help="Name or address; may be left out if there is one.")
    ] = None,
    namesrv: NameServer = None,
    as_json: Json = False,
) -> None:
    """What a broker says of itself."""
    from penstock.cli.network import run
    from penstock.cli.output import print_facts, write_json
    from penstock.client.admin import Admin
    from penstock.errors import UsageError

    async def ask() -> tuple[str, dict[str, str]]:
        async with Admin(namesrv) as admin:
            address = name
            if address is None or ":" not in address:
                masters = await admin.masters()
                if address is None and len(masters) > 1:
                    raise UsageError("there are several brokers", hint=f"one of {', '.join(masters)}")
                if address is not None and address not in masters:
                    raise UsageError(f"there is no broker {address!r}", hint=f"one of {', '.join(masters)}")
                address = masters[address] if address is not None else next(iter(masters.values()))
            return address, await admin.runtime(address)

    address, facts = run(ask())
    if as_json:
        write_json({"address": address, **facts})
    else:
        print_facts(address, facts)
