"""What the commands that talk to brokers share: where the name server is, and one loop for the work."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import typer

T = TypeVar("T")

NameServer = Annotated[
    str | None,
    typer.Option(
        "--namesrv",
        metavar="HOST:PORT",
        help="Name server; several with ';'. Else $NAMESRV_ADDR, else 127.0.0.1:9876.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="For programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do the work of a command."""
    from penstock.remoting.loop import run as run_on_loop

    return run_on_loop(work)


def moment_ms(text: str, name: str) -> int:
    """Milliseconds of "2026-11-15 13:00", with or without a zone (UTC), or of a plain number of them."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time; as in 2026-11-15T13:00 or milliseconds", param_hint=name
        ) from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def make_sure(question: str, *, yes: bool, as_json: bool) -> None:
    """Ask before something is removed; without a terminal only --yes goes on."""
    import sys

    if yes:
        return
    if as_json or not sys.stdin.isatty():
        from penstock.errors import UsageError

        raise UsageError(f"{question} Not without being asked", hint="--yes says so")
    typer.confirm(question, abort=True)


def show_table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """A table on a terminal; else plain columns, tabs between, for other tools."""
    import sys

    from penstock.cli.output import print_table, safe

    if sys.stdout.isatty():
        print_table(title, columns, rows)
        return
    print("\t".join(columns))
    for row in rows:
        print("\t".join(safe(str(cell)) for cell in row))
