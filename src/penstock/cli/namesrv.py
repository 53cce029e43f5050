"""``penstock namesrv``: a name server alone, for brokers of Penstock and of RocketMQ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def namesrv(
    host: Annotated[str, typer.Option(help="Address; 0.0.0.0 for every interface.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 9876,
    kv_file: Annotated[
        Path, typer.Option(help="Where the key-value configuration is kept; made with the first entry.")
    ] = Path("penstock-namesrv/kvConfig.json"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one object instead of text.")] = False,
) -> None:
    """Run a name server until it is told to stop."""
    from concurrent.futures import ThreadPoolExecutor

    from penstock.broker.statefile import follow
    from penstock.config import RemotingSettings
    from penstock.files.disk import DiskStorage
    from penstock.files.filecache import raise_descriptor_limit
    from penstock.namesrv import NameServerService
    from penstock.remoting.loop import run, until_stopped

    raise_descriptor_limit(RemotingSettings().max_connections + 1024)

    async def serve() -> None:
        service = NameServerService()
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
            await file.close()
            writer.shutdown()

    run(serve())
