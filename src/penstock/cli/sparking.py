"""``penstock spark``: the heavy work on a store, as Spark jobs on this machine or on a cluster."""

from __future__ import annotations

import typer

from penstock.cli.spark_compact import compact
from penstock.cli.spark_export import export
from penstock.cli.spark_import import import_messages
from penstock.cli.spark_rebuild import rebuild
from penstock.cli.spark_replay import replay
from penstock.cli.spark_stats import stats
from penstock.cli.spark_trace import trace
from penstock.cli.spark_verify import verify

app = typer.Typer(
    help="Heavy work on a store as Spark jobs, on this machine or on a cluster.", no_args_is_help=True
)


@app.callback()
def spark() -> None:
    """Heavy work on a store as Spark jobs, on this machine or on a cluster."""


app.command("verify")(verify)
app.command("rebuild")(rebuild)
app.command("export")(export)
app.command("import")(import_messages)
app.command("replay")(replay)
app.command("compact")(compact)
app.command("stats")(stats)
app.command("trace")(trace)
