"""How a client behaves: deadlines, periods and bounds. Defaults are those of RocketMQ's Java client."""

from __future__ import annotations

import os
from dataclasses import dataclass

from penstock.config.tls import ClientTlsSettings
from penstock.errors import UsageError
from penstock.remoting.signing import Credentials

DEFAULT_NAMESRV = "127.0.0.1:9876"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Times are seconds, sizes bytes. Every wait of a client ends by one of these."""

    # -- who we are, and whom we trust --------------------------------------------------------------------
    # None: what the environment says (``penstock.client.identity``), else unsigned and without TLS.
    credentials: Credentials | None = None
    tls: ClientTlsSettings | None = None

    # -- talking ------------------------------------------------------------------------------------------
    call_timeout: float = 3.0
    heartbeat_interval: float = 30.0
    route_interval: float = 30.0
    # A topic that no name server knows yet is asked for this often, not only every route_interval.
    missing_route_interval: float = 1.0
    # How long a close may take to hand back offsets, locks and registrations.
    close_timeout: float = 5.0

    # -- sending ------------------------------------------------------------------------------------------
    send_timeout: float = 3.0
    send_retries: int = 2
    compress_from: int = 4096
    compress_level: int = 5
    max_message_size: int = 4 << 20
    default_queues: int = 4
    # A send waits for room when so much is on its way unanswered.
    max_in_flight: int = 65_536
    max_in_flight_bytes: int = 32 << 20
    # A broker that failed is left out of the choice for so long, while there are others.
    avoid_broker: float = 5.0

    # -- reading ------------------------------------------------------------------------------------------
    pull_batch: int = 32
    pull_suspend: float = 15.0
    pull_timeout: float = 30.0
    pull_retry: float = 1.0
    # What one queue may hold of messages that nobody has settled yet, before its pulls pause.
    queue_max_messages: int = 1000
    queue_max_bytes: int = 100 << 20
    rebalance_interval: float = 20.0
    rebalance_retry: float = 1.0
    commit_interval: float = 5.0
    lock_interval: float = 20.0
    lock_lifetime: float = 30.0
    # An orderly consumer waits so long before it tries a failed message again.
    suspend_queue: float = 1.0
    # A message that is not settled for so long is sent back to be tried by somebody else.
    consume_timeout: float = 900.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if name in ("credentials", "tls"):
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                raise UsageError(f"{name} must be a number of at least 0, not {value!r}")


def name_servers(given: str | list[str] | tuple[str, ...] | None) -> tuple[str, ...]:
    """Addresses of name servers: as given, else ``NAMESRV_ADDR``, else this machine's."""
    found = given or os.environ.get("NAMESRV_ADDR") or DEFAULT_NAMESRV
    if isinstance(found, str):
        found = found.replace(",", ";").split(";")
    addresses = tuple(address.strip() for address in found if address.strip())
    if not addresses:
        raise UsageError("no name server was given", hint=f"such as {DEFAULT_NAMESRV}")
    return addresses
