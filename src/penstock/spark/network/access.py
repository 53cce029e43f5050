"""How brokers are reached: what tasks and drivers are told. Pickles; never changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.client import Credentials
from penstock.client.settings import ClientSettings, name_servers
from penstock.config.tls import ClientTlsSettings
from penstock.errors import UsageError
from penstock.spark.options import BROKERS

READING_GROUP = "TOOLS_CONSUMER"
"""A group that every broker has from its start; reading moves none of its offsets."""


@dataclass(frozen=True)
class Access:
    """Name servers, patience in seconds, an account, TLS. What is not said comes from the environment of the
    process that asks, as for any client.
    """

    namesrv: str
    group: str = READING_GROUP
    request_timeout: float = 10.0
    """What one request may take."""
    retry_timeout: float = 120.0
    """How long requests are repeated that a broker does not answer: it may be starting again."""
    credentials: Credentials | None = field(default=None, repr=False)
    tls: ClientTlsSettings | None = None

    def __str__(self) -> str:
        return f"{BROKERS}{';'.join(name_servers(self.namesrv))}"

    @property
    def settings(self) -> ClientSettings:
        """For the client."""
        return ClientSettings(call_timeout=self.request_timeout, credentials=self.credentials, tls=self.tls)


def make_access(namesrv: str, group: str, given: Mapping[str, Any]) -> Access:
    """The access that options (``BROKER_KINDS``) describe."""
    keys = (given.get("accessKey"), given.get("secretKey"))
    if any(keys) and not all(keys):
        raise UsageError("accessKey and secretKey come together", hint="give both, or none of them")
    account = None
    if all(keys):
        account = Credentials(str(keys[0]), str(keys[1]), given.get("securityToken") or "")
    tls = None
    if given.get("tls"):
        tls = ClientTlsSettings(
            trust_path=given.get("tlsTrust") or "",
            cert_path=given.get("tlsCert") or "",
            key_path=given.get("tlsKey") or "",
            key_password=given.get("tlsKeyPassword") or "",
            verify=given.get("tlsVerify", True),
        )
    return Access(
        namesrv,
        group,
        request_timeout=given.get("requestTimeout", Access.request_timeout),
        retry_timeout=given.get("retryTimeout", Access.retry_timeout),
        credentials=account,
        tls=tls,
    )
