"""Accounts for tests, and a client that signs as one of them, or not at all, or wrongly."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from penstock.remoting import Command, RemotingClient
from penstock.remoting.signing import Credentials, signer
from penstock.testing.broker import RunningBroker

ADMIN = Credentials("root-account", "root-secret-1")
ALICE = Credentials("alice", "alice-secret-1")
MALLORY = Credentials("mallory", "mallory-secret-1")
SECONDS = 20.0


def entry(who: Credentials, **more: Any) -> dict[str, Any]:
    return {"name": who.access_key, "secret": who.secret_key, **more}


DEFAULT = [
    entry(ADMIN, admin=True),
    entry(ALICE, topics={"Theirs": "PUB|SUB"}, groups={"theirs": "SUB"}),
    entry(MALLORY, topics={"Mine": "PUB|SUB", "Denied": "DENY"}, groups={"mine": "SUB"}),
]


def write_accounts(path: Path, accounts: list[dict[str, Any]] | None = None) -> str:
    path.write_text(json.dumps({"accounts": DEFAULT if accounts is None else accounts}))
    path.chmod(0o600)
    return str(path)


def guarded(folder: Path, accounts: list[dict[str, Any]] | None = None, **settings: Any) -> RunningBroker:
    """A broker that knows these accounts; not started yet."""
    file = write_accounts(folder / "accounts.json", accounts)
    return RunningBroker(folder / "store", acl_enable=True, accounts_file=file, **settings)


def ask(
    address: str,
    who: Credentials | None,
    code: int,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
    **changes: Any,
) -> Command:
    """One request on a connection of its own; ``changes`` are made after it was signed."""

    async def run() -> Command:
        client = RemotingClient()
        request = Command.request(code, dict(fields or {}), body)
        if who is not None:
            signer(who)(request)
        for name, value in changes.items():
            if name == "fields_after":
                request.fields.update(value)
            elif name == "body_after":
                request.body = value
            else:
                setattr(request, name, value)
        try:
            return await client.call(address, request, SECONDS)
        finally:
            await client.close()

    return asyncio.run(run())
