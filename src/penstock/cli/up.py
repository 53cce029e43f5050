"""``penstock up``: a broker and its name server in one process."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from penstock.broker import Broker
    from penstock.config import BrokerConfig

log = logging.getLogger(__name__)

_DURABILITY = {
    "sync": "an acknowledged message is on disk (flush: sync)",
    "async": "an acknowledged message is in memory and on disk within {seconds:g} s or so (flush: async)",
}


def up(
    store: Annotated[
        Path | None, typer.Option("--store", help="Store directory; made if it is not there.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; 127.0.0.1 unless told otherwise.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port of the broker; 0 takes a free one.", min=0, max=65535)
    ] = None,
    namesrv: Annotated[
        str | None,
        typer.Option(help="Register with these name servers (host:port;host:port), run none of our own."),
    ] = None,
    namesrv_port: Annotated[
        int | None, typer.Option(help="Port of our own name server; 0 takes a free one.", min=0, max=65535)
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(help="Port of a web page with health and metrics; 0 takes a free one.", max=65535),
    ] = None,
    flush: Annotated[
        Literal["sync", "async"] | None, typer.Option(help="Wait for the disk (sync, the default) or not.")
    ] = None,
    advertise: Annotated[
        str | None, typer.Option(help="The address that clients are told, when it is not the one above.")
    ] = None,
    accounts: Annotated[
        Path | None, typer.Option(help="Serve only the accounts of this file (penstock account).")
    ] = None,
    tls_mode: Annotated[
        Literal["disabled", "permissive", "enforcing"] | None,
        typer.Option(help="TLS on the same ports: never, too (the default, with a certificate), or only."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate of the broker, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="And its key.")] = None,
    tls_client_trust: Annotated[
        Path | None, typer.Option(help="Clients must show a certificate that one of these has signed.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="Settings: TOML, or a broker.conf of RocketMQ's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one object instead of text.")] = False,
) -> None:
    """Run a broker until it is told to stop (Ctrl+C, SIGTERM)."""
    import gc

    from penstock.broker import Broker
    from penstock.cli.output import write_json
    from penstock.config import load_broker_config
    from penstock.remoting.loop import run, until_stopped

    flags: dict[str, Any] = {
        "store_path": None if store is None else str(store),
        "listen_host": host,
        "listen_port": port,
        "namesrv_addr": namesrv,
        "namesrv_embedded": False if namesrv else None,
        "namesrv_port": namesrv_port,
        "http_port": http_port,
        "flush_disk_type": flush,
        "broker_ip": advertise,
        "accounts_file": None if accounts is None else str(accounts),
        "acl_enable": None if accounts is None else True,
        "tls_server_mode": tls_mode,
        "tls_server_cert_path": None if tls_cert is None else str(tls_cert),
        "tls_server_key_path": None if tls_key is None else str(tls_key),
        "tls_server_trust_cert_path": None if tls_client_trust is None else str(tls_client_trust),
        "tls_server_need_client_auth": None if tls_client_trust is None else "require",
    }
    settings, origins = load_broker_config(config, flags=flags)
    settings = within_descriptors(
        settings,
        files_given=origins["max_open_files"] != "default",
        connections_given=origins["max_connections"] != "default",
    )

    async def serve() -> None:
        async with Broker(settings) as broker:
            if as_json:
                write_json(facts(broker))
            else:
                print(banner(broker), flush=True)
            # What there is now stays: the collector need not look at it again and again while messages wait.
            gc.collect()
            gc.freeze()
            await until_stopped()
            if not as_json:
                print("stopping: answering what is owed, then flushing", flush=True)

    run(serve())


MOST_OPEN_FILES = 16_384
FEW_CONNECTIONS = 1000
_OTHER_DESCRIPTORS = 1024


def within_descriptors(
    settings: BrokerConfig, *, files_given: bool, connections_given: bool = False
) -> BrokerConfig:
    """As many open queue files and connections as the system lets this process have, files first.

    Opening a queue file for each unit costs more than the rest of a send, and a log file that cannot be
    opened stops the broker: connections get what is left.
    """
    from penstock.files.filecache import raise_descriptor_limit

    files = settings.store.max_open_files if files_given else MOST_OPEN_FILES
    wanted = settings.max_connections + files + _OTHER_DESCRIPTORS
    limit = raise_descriptor_limit(wanted)
    if limit < 0:  # no limit at all
        limit = wanted
    if not files_given:
        least = min(settings.store.max_open_files, limit // 4)
        files = max(least, min(files, (limit - _OTHER_DESCRIPTORS) // 2))
    connections = min(settings.max_connections, max(limit - files - _OTHER_DESCRIPTORS, limit // 4))
    if connections < settings.max_connections:
        # Nobody who starts with the defaults needs to hear of it, unless there are few.
        log.log(
            logging.WARNING if connections_given or connections < FEW_CONNECTIONS else logging.INFO,
            "at most %d connections instead of %d, and %d queue files open at a time: this process may have"
            " %d descriptors (ulimit -n)",
            connections,
            settings.max_connections,
            files,
            limit,
        )
    return settings.replace(store=settings.store.replace(max_open_files=files), max_connections=connections)


def facts(broker: Broker) -> dict[str, Any]:
    """What a program wants to know of a broker that has just started."""
    return {
        "address": broker.address,
        "namesrv": broker.namesrv_address,
        "store": str(broker.store.path),
        "flush": broker.store.config.flush_disk_type,
        "broker": broker.config.broker_name,
        "cluster": broker.config.cluster_name,
        "topics": len(broker.topics),
        "http": broker.http_address,
    }


def banner(broker: Broker) -> str:
    """The same for people: where it is, what it promises, what to type next."""
    config = broker.store.config
    durability = _DURABILITY[config.flush_disk_type].format(
        seconds=config.flush_commit_log_thorough_interval_ms / 1000
    )
    name_server = broker.namesrv_address
    lines = [
        f"penstock broker {broker.config.broker_name} (cluster {broker.config.cluster_name})",
        f"  broker       {broker.address}",
        f"  name server  {name_server}" + ("" if broker.name_server is not None else " (not ours)"),
        f"  store        {broker.store.path}",
        f"  durability   {durability}",
        *([f"  health       {broker.http_address}"] if broker.http_address else []),
        "",
        "  paste next, in another terminal:",
        f"    penstock send greetings hello --namesrv {name_server}",
        f"    penstock tail greetings --namesrv {name_server}",
        "  RocketMQ's clients: namesrvAddr = " + name_server,
        "  Ctrl+C stops it",
    ]
    lines[5:5] = _doors(broker)
    return "\n".join(lines)


def _doors(broker: Broker) -> list[str]:
    """Who is let in, and what others on the way can read."""
    config = broker.config
    found = []
    if config.asks_for_accounts:
        found.append(f"  accounts     those of {config.accounts_file}")
    elif config.listen_host not in ("127.0.0.1", "::1"):
        found.append("  anybody who reaches this address may read and write: there are no accounts")
    if config.tls_server_cert_path and config.tls_server_mode != "disabled":
        found.append(f"  TLS          {config.tls_server_mode}")
    return found
