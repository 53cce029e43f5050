"""How TLS is spoken, on either side. Files are PEM."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.errors import ConfigError

MODES = ("disabled", "permissive", "enforcing")
CLIENT_AUTH = ("none", "optional", "require")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTlsSettings:
    """What a port does with connections that begin with a TLS handshake, and with those that do not.

    ``disabled`` closes the first kind, ``enforcing`` the second, ``permissive`` serves both. Without a
    certificate there is no TLS: permissive serves plain connections only, enforcing is refused.
    """

    mode: str = "permissive"
    cert_path: str = ""
    key_path: str = ""
    key_password: str = field(default="", repr=False)
    # Whether clients must show a certificate that one of these has signed.
    client_auth: str = "none"
    trust_path: str = ""

    def __post_init__(self) -> None:
        _one_of("tls_server_mode", self.mode, MODES)
        _one_of("tls_server_need_client_auth", self.client_auth, CLIENT_AUTH)
        if bool(self.cert_path) != bool(self.key_path):
            raise ConfigError("a certificate and its key come together", key="tls_server_cert_path")
        if self.mode == "enforcing" and not self.cert_path:
            raise ConfigError(
                "tls_server_mode = enforcing needs a certificate",
                key="tls_server_mode",
                hint="set tls_server_cert_path and tls_server_key_path",
            )
        if self.client_auth != "none" and not self.trust_path:
            raise ConfigError(
                "client certificates need somebody who vouches for them",
                key="tls_server_trust_path",
                hint="the file with the certificates of the authorities that sign your clients'",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTlsSettings:
    """How a client speaks TLS. ``verify``: the server must show a certificate for the name we call it by."""

    trust_path: str = ""
    cert_path: str = ""
    key_path: str = ""
    key_password: str = field(default="", repr=False)
    verify: bool = True


def _one_of(key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{key} = {value!r}: must be one of {', '.join(known)}", key=key)
