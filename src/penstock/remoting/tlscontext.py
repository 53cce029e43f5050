"""Certificates and keys as OpenSSL takes them, loaded anew when their files change."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from penstock.config.tls import ClientTlsSettings, ServerTlsSettings
from penstock.errors import ConfigError

log = logging.getLogger("penstock.remoting")

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


class ServerTls:
    """The TLS side of a port. ``context`` is None where no certificate was given."""

    def __init__(self, settings: ServerTlsSettings) -> None:
        self.settings = settings
        self.context: ssl.SSLContext | None = None
        self._seen: tuple[object, ...] = ()
        if settings.cert_path and settings.mode != "disabled":
            self._seen = self._look()
            self.context = _server_context(settings)

    def reload(self) -> bool:
        """Take files that changed; true when they were taken. Broken ones are reported, the old ones stay."""
        if self.context is None or (seen := self._look()) == self._seen:
            return False
        self._seen = seen
        try:
            self.context = _server_context(self.settings)
        except ConfigError as error:
            log.error("the certificate in use stays: %s", error)
            return False
        log.warning("took the certificate in %s", self.settings.cert_path)
        return True

    def _look(self) -> tuple[object, ...]:
        settings = self.settings
        return tuple(_stamp(path) for path in (settings.cert_path, settings.key_path, settings.trust_path))


def _stamp(path: str) -> object:
    if not path:
        return None
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _server_context(settings: ServerTlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    _load_own(context, settings.cert_path, settings.key_path, settings.key_password)
    if settings.trust_path and settings.client_auth != "none":
        _load_trusted(context, settings.trust_path)
        context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    return context


def client_context(settings: ClientTlsSettings) -> ssl.SSLContext:
    """Raises ConfigError for files that are missing or wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif settings.trust_path:
        _load_trusted(context, settings.trust_path)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if settings.cert_path:
        _load_own(context, settings.cert_path, settings.key_path, settings.key_password)
    return context


def _load_own(context: ssl.SSLContext, cert: str, key: str, password: str) -> None:
    # Always a password: without one OpenSSL would ask at the terminal for that of an encrypted key.
    try:
        context.load_cert_chain(cert, key or None, password=password or "")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"can't use the certificate and its key: {_why(error)}",
            file=cert,
            source=cert,
            hint=f"two PEM files that belong together: {cert} and {key}",
        ) from None


def _load_trusted(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"can't use the trusted certificates: {_why(error)}", file=path, source=path
        ) from None


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error)
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
