"""The tree of commands."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import typer

_MODULES = {
    "topic": "penstock.cli.topics:app",
    "group": "penstock.cli.groups:app",
    "message": "penstock.cli.messages:app",
    "broker": "penstock.cli.brokers:app",
    "account": "penstock.cli.accounts:app",
    "store": "penstock.cli.storing:app",
    "config": "penstock.cli.configuration:app",
    "spark": "penstock.cli.sparking:app",
    "bench": "penstock.bench.command:app",
    "up": "penstock.cli.up:up",
    "send": "penstock.cli.sending:send",
    "tail": "penstock.cli.tailing:tail",
    "sql": "penstock.cli.querying:sql",
    "namesrv": "penstock.cli.namesrv:namesrv",
}
"""Where each command is: a group of commands, or a function."""


def tree(arguments: Sequence[str] = ()) -> typer.Typer:
    """The commands. Where the arguments begin with one, the modules of the others are not even imported: a
    broker should be there at once.
    """
    wanted = arguments[:1] if arguments and arguments[0] in _MODULES else _MODULES
    app = typer.Typer(
        help="A durable message log that keeps Apache RocketMQ's bytes.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(penstock)
    for name in wanted:
        module, _, member = _MODULES[name].partition(":")
        found = getattr(import_module(module), member)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        import penstock

        print(f"penstock {penstock.__version__}")
        raise typer.Exit


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
