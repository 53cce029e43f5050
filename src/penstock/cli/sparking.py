"""``penstock spark``: the heavy work on a store, as Spark jobs on this machine or on a cluster."""

from __future__ import annotations

import typer

app = typer.Typer(
    help="Heavy work on a store as Spark jobs, on this machine or on a cluster.", no_args_is_help=True
)


@app.callback()
def spark() -> None:
    """Heavy work on a store as Spark jobs, on this machine or on a cluster."""
