"""``penstock namesrv``: a name server alone, for brokers of Penstock and of RocketMQ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer


def namesrv(
    host: Annotated[str, typer.Option(help="Address; 0.0.0.0 for every interface.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 9876,
    kv_file: Annotated[
        Path, typer.Option(help="Where the key-value configuration is kept; made with the first entry.")
    ] = Path("penstock-namesrv/kvConfig.json"),
    accounts: Annotated[
        Path | None, typer.Option(help="Serve only the accounts of this file (penstock account).")
    ] = None,
    tls_mode: Annotated[
        Literal["disabled", "permissive", "enforcing"], typer.Option(help="TLS: never, too, or only.")
    ] = "permissive",
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate, PEM; without one there is no TLS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="And its key.")] = None,
    tls_client_trust: Annotated[
        Path | None, typer.Option(help="Clients must show a certificate that one of these has signed.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one object instead of text.")] = False,
) -> None:
    """Run a name server until it is told to stop."""
    from concurrent.futures import ThreadPoolExecutor

    from penstock.broker.statefile import follow
    from penstock.config import RemotingSettings
    from penstock.config.security import SecuritySettings
    from penstock.config.tls import ServerTlsSettings
    from penstock.files.disk import DiskStorage
    from penstock.files.filecache import raise_descriptor_limit
    from penstock.namesrv import NameServerService
    from penstock.namesrv.permissions import permissions
    from penstock.remoting.loop import run, until_stopped
    from penstock.security.guard import Guard

    tls = ServerTlsSettings(
        mode=tls_mode,
        cert_path=str(tls_cert or ""),
        key_path=str(tls_key or ""),
        client_auth="none" if tls_client_trust is None else "require",
        trust_path=str(tls_client_trust or ""),
    )
    guard = Guard(SecuritySettings(tls=tls, accounts_file=str(accounts or "")), permissions())
    raise_descriptor_limit(RemotingSettings().max_connections + 1024)

    async def serve() -> None:
        service = NameServerService(guard=guard)
        guard.start()
        writer = ThreadPoolExecutor(1, thread_name_prefix="penstock-state")
        file = follow(service.name_server.kv, DiskStorage(), str(kv_file), writer)
        address = await service.start(host, port)
        if as_json:
            print(json.dumps({"address": address}), flush=True)
        else:
            print(f"name server on {address}; Ctrl+C stops it", flush=True)
            print(f"  brokers: penstock up --namesrv {address}   or namesrvAddr={address}", flush=True)
        try:
            await until_stopped()
        finally:
            await service.stop()
            await guard.stop()
            await file.close()
            writer.shutdown()

    run(serve())
