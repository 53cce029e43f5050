"""The tree of commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from penstock.bench.command import app as bench_app
from penstock.cli.accounts import app as account_app
from penstock.cli.brokers import app as broker_app
from penstock.cli.configuration import app as config_app
from penstock.cli.groups import app as group_app
from penstock.cli.messages import app as message_app
from penstock.cli.namesrv import namesrv
from penstock.cli.querying import sql
from penstock.cli.sending import send
from penstock.cli.sparking import app as spark_app
from penstock.cli.storing import app as store_app
from penstock.cli.tailing import tail
from penstock.cli.topics import app as topic_app
from penstock.cli.up import up

app = typer.Typer(
    help="A durable message log that keeps Apache RocketMQ's bytes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(topic_app, name="topic")
app.add_typer(group_app, name="group")
app.add_typer(message_app, name="message")
app.add_typer(broker_app, name="broker")
app.add_typer(account_app, name="account")
app.add_typer(store_app, name="store")
app.add_typer(config_app, name="config")
app.add_typer(spark_app, name="spark")
app.add_typer(bench_app, name="bench")
app.command("up")(up)
app.command("send")(send)
app.command("tail")(tail)
app.command("sql")(sql)
app.command("namesrv")(namesrv)


def _show_version(wanted: bool) -> None:
    if wanted:
        import penstock

        print(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def penstock(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option(help="How much is logged to stderr.")
    ] = "warning",
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Lines for people, or an object a line for programs.")
    ] = "text",
    access_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Account at the broker. Also $PENSTOCK_ACCESS_KEY.")
    ] = None,
    secret_key: Annotated[
        str | None,
        typer.Option(metavar="SECRET", help="Its secret; others see command lines: $PENSTOCK_SECRET_KEY."),
    ] = None,
    credentials: Annotated[
        Path | None, typer.Option(help="A file with both. Also $PENSTOCK_CREDENTIALS.")
    ] = None,
    tls: Annotated[
        bool | None, typer.Option("--tls/--no-tls", help="Speak TLS to brokers. Also $PENSTOCK_TLS.")
    ] = None,
    tls_trust: Annotated[
        Path | None, typer.Option(help="Certificates to trust, else the system's. Also $PENSTOCK_TLS_TRUST.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Our own certificate. Also $PENSTOCK_TLS_CERT.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="And its key. Also $PENSTOCK_TLS_KEY.")] = None,
    tls_verify: Annotated[
        bool | None, typer.Option("--tls-verify/--tls-no-verify", help="Look whom we talk to (the default).")
    ] = None,
) -> None:
    """A durable message log that keeps Apache RocketMQ's bytes."""
    from penstock.cli.identity import remember
    from penstock.cli.logs import set_up_logs

    set_up_logs(log_level, log_format)
    remember(
        access_key=access_key,
        secret_key=secret_key,
        credentials=credentials,
        tls=tls,
        tls_trust=tls_trust,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_verify=tls_verify,
    )
