"""``penstock account``: the accounts of a broker, in their file. Secrets go in and are never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.network import Json, Yes, make_sure, show_table

app = typer.Typer(help="Accounts and their rights, in the file a broker reads.", no_args_is_help=True)

File = Annotated[
    Path,
    typer.Option("--file", "-f", envvar="PENSTOCK_ACCOUNTS_FILE", help="The file of accounts; JSON."),
]
Rights = Annotated[
    list[str] | None, typer.Option(metavar="NAME=ACTIONS", help="As orders=PUB|SUB, orders-*=SUB, x=DENY.")
]


@app.callback()
def account() -> None:
    """Accounts and their rights, in the file a broker reads."""


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="The account: what clients call the access key.")],
    file: File,
    topic: Rights = None,
    group: Rights = None,
    admin: Annotated[bool, typer.Option("--admin", help="May do everything.")] = False,
    disabled: Annotated[bool, typer.Option("--disabled", help="Known, and let in nowhere.")] = False,
    source: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="ADDRESS", help="Only from there: 10.0.0.0/8, 10.1.*.*, 10.1.2.3."),
    ] = None,
    credentials: Annotated[
        Path | None,
        typer.Option(help="Make a secret and write it there, for the client's --credentials."),
    ] = None,
    secret_stdin: Annotated[bool, typer.Option("--secret-stdin", help="Read the secret from stdin.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Change one that exists; its secret stays if none is given.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Add an account, or change one. A running broker takes the file within a second or two."""
    from penstock.cli.output import write_json
    from penstock.errors import UsageError
    from penstock.security.accountfile import AccountEntry, read_entries, write_entries

    content = read_entries(file)
    known = next((each for each in content.accounts if each.name == name), None)
    if known is not None and not replace:
        raise UsageError(f"there is an account {name!r} already", hint="--replace changes it")
    kept = known.secret if known is not None and not secret_stdin and credentials is None else None
    secret = kept or _new_secret(secret_stdin, credentials)
    entry = AccountEntry(
        name,
        secret,
        admin=admin,
        enabled=not disabled,
        topics=_rights(topic, "--topic"),
        groups=_rights(group, "--group"),
        sources=source or [],
    )
    content.accounts = [each for each in content.accounts if each.name != name] + [entry]
    write_entries(file, content)
    if credentials is not None:
        _write_credentials(credentials, name, secret)
    done = {"account": name, "file": str(file), "changed": known is not None}
    if as_json:
        write_json(done)
    else:
        print(f"{'changed' if known is not None else 'added'} {name} in {file}")


@app.command("list")
def show(file: File, as_json: Json = False) -> None:
    """Every account with its rights, without its secret."""
    from penstock.cli.output import write_json
    from penstock.security.accountfile import load_accounts
    from penstock.security.actions import action_names

    rows = [
        {
            "name": each.name,
            "admin": each.admin,
            "enabled": each.enabled,
            "topics": {name: "|".join(action_names(a)) or "Deny" for name, a in each.topics.given.items()},
            "groups": {name: "|".join(action_names(a)) or "Deny" for name, a in each.groups.given.items()},
            "from": each.sources.texts,
        }
        for each in load_accounts(file)
    ]
    if as_json:
        write_json(rows)
        return
    columns = ["name", "admin", "enabled", "topics", "groups", "from"]
    show_table("accounts", columns, [[_cell(row[column]) for column in columns] for row in rows])


@app.command("remove")
def remove(
    name: Annotated[str, typer.Argument(help="The account.")],
    file: File,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Remove an account. A running broker refuses it within a second or two."""
    from penstock.cli.output import write_json
    from penstock.errors import UsageError
    from penstock.security.accountfile import read_entries, write_entries

    content = read_entries(file)
    left = [each for each in content.accounts if each.name != name]
    if len(left) == len(content.accounts):
        raise UsageError(f"there is no account {name!r} in {file}")
    make_sure(f"Remove the account {name}?", yes=yes, as_json=as_json)
    content.accounts = left
    write_entries(file, content)
    if as_json:
        write_json({"account": name, "file": str(file), "removed": True})
    else:
        print(f"removed {name} from {file}")


def _new_secret(from_stdin: bool, credentials: Path | None) -> str:
    import secrets
    import sys

    from penstock.errors import UsageError

    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if credentials is not None:
        return secrets.token_urlsafe(24)
    if not sys.stdin.isatty():
        raise UsageError("no secret was given", hint="--credentials FILE makes one, --secret-stdin reads one")
    typed: str = typer.prompt("Secret", hide_input=True, confirmation_prompt=True)
    return typed


def _write_credentials(path: Path, name: str, secret: str) -> None:
    import json
    import os

    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(path, flags, 0o600), "w") as stream:
        os.fchmod(stream.fileno(), 0o600)
        stream.write(json.dumps({"accessKey": name, "secretKey": secret}) + "\n")


def _rights(given: list[str] | None, option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given or ():
        name, sign, actions = text.rpartition("=")
        if not sign or not name:
            raise typer.BadParameter(f"{text!r} is not NAME=ACTIONS", param_hint=option)
        found[name] = actions
    return found


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={actions}" for name, actions in value.items())
    if isinstance(value, list):
        return " ".join(map(str, value))
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
