"""What a port asks of those who connect to it, for a broker and for a name server alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.config.tls import ServerTlsSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """``accounts_file`` empty: nobody is asked who they are. ``authorize``: rights count too."""

    tls: ServerTlsSettings = field(default_factory=ServerTlsSettings)
    accounts_file: str = ""
    authorize: bool = True
    cluster: str = "DefaultCluster"
    connection_requests_per_second: int = 0
    account_requests_per_second: int = 0
