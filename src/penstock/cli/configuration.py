"""``penstock config``: which settings are in force, and where each comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Settings and where they come from.", no_args_is_help=True)


@app.callback()
def config() -> None:
    """Settings and where they come from."""


@app.command("show")
def show(
    file: Annotated[
        Path | None, typer.Option("--file", "-c", help="A TOML file, or a broker.conf of RocketMQ's.")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", help="A store whose own sizes win, as they do when it is opened."),
    ] = None,
    changed: Annotated[bool, typer.Option(help="Only what is not a default.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list of objects.")] = False,
) -> None:
    """Every setting with its value and its origin."""
    import dataclasses

    from penstock.cli.output import print_table, write_json
    from penstock.config import load_config
    from penstock.config.schema import group_of

    settings, origins = load_config(file)
    if store is not None:
        from penstock.files.disk import DiskStorage
        from penstock.store.sizes import detect, require_store

        storage = DiskStorage()
        require_store(storage, str(store))
        found = detect(storage, str(store), settings)
        for field in dataclasses.fields(found):
            if getattr(found, field.name) != getattr(settings, field.name):
                origins[field.name] = f"files of {store}"
        settings = found
    rows = [
        {
            "name": field.name,
            "value": getattr(settings, field.name),
            "origin": origins[field.name],
            "group": group_of(field.name),
        }
        for field in dataclasses.fields(settings)
        if not changed or origins[field.name] != "default"
    ]
    if as_json:
        write_json(rows)
        return
    print_table("settings", ["name", "value", "origin"], [[r["name"], r["value"], r["origin"]] for r in rows])
