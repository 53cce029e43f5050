"""Who a client is and how it speaks, where the program does not say: from the environment or a file.

``PENSTOCK_ACCESS_KEY`` and ``PENSTOCK_SECRET_KEY``, or ``PENSTOCK_CREDENTIALS``, a JSON file with
``accessKey`` and ``secretKey``. ``PENSTOCK_TLS=true`` speaks TLS; ``PENSTOCK_TLS_TRUST``, ``…_CERT``,
``…_KEY`` and ``…_KEY_PASSWORD`` name files and a password, ``PENSTOCK_TLS_VERIFY=false`` trusts everybody.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.config.tls import ClientTlsSettings
from penstock.errors import ConfigError
from penstock.remoting.signing import Credentials

_MAX_FILE_SIZE = 1 << 16
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0", "")


def credentials_of_environment(env: Mapping[str, str] | None = None) -> Credentials | None:
    """None when it names no account. Raises ConfigError, which shows no secret."""
    env = os.environ if env is None else env
    name, secret = env.get("PENSTOCK_ACCESS_KEY", ""), env.get("PENSTOCK_SECRET_KEY", "")
    if name and secret:
        return Credentials(name, secret, env.get("PENSTOCK_SECURITY_TOKEN", ""))
    if name or secret:
        raise ConfigError(
            "an access key and a secret key come together",
            key="PENSTOCK_ACCESS_KEY",
            hint="set PENSTOCK_ACCESS_KEY and PENSTOCK_SECRET_KEY, or PENSTOCK_CREDENTIALS",
        )
    file = env.get("PENSTOCK_CREDENTIALS", "")
    return read_credentials(file) if file else None


def read_credentials(path: str) -> Credentials:
    """The account that a file names. Raises ConfigError."""
    try:
        with Path(path).open("rb") as stream:
            found = msgspec.json.decode(stream.read(_MAX_FILE_SIZE), type=dict[str, str])
        return Credentials(found["accessKey"], found["secretKey"], found.get("securityToken", ""))
    except OSError as error:
        why = error.strerror or str(error)
    except (msgspec.MsgspecError, KeyError):
        why = "it is not understood"
    raise ConfigError(
        f"can't read the credentials: {why}",
        file=path,
        source=path,
        hint='a file with {"accessKey": "…", "secretKey": "…"}',
    )


def tls_of_environment(env: Mapping[str, str] | None = None) -> ClientTlsSettings | None:
    """None when it does not ask for TLS. Raises ConfigError."""
    env = os.environ if env is None else env
    if not _flag(env, "PENSTOCK_TLS", "false"):
        return None
    return ClientTlsSettings(
        trust_path=env.get("PENSTOCK_TLS_TRUST", ""),
        cert_path=env.get("PENSTOCK_TLS_CERT", ""),
        key_path=env.get("PENSTOCK_TLS_KEY", ""),
        key_password=env.get("PENSTOCK_TLS_KEY_PASSWORD", ""),
        verify=_flag(env, "PENSTOCK_TLS_VERIFY", "true"),
    )


def _flag(env: Mapping[str, str], name: str, otherwise: str) -> bool:
    text = env.get(name, otherwise).strip().lower()
    if text not in _TRUE + _FALSE:
        raise ConfigError(f"{name} is {text!r}: must be true or false", key=name)
    return text in _TRUE
