"""Signatures of requests, as RocketMQ's clients of 4.x and 5.x make them (protocol 9.1).

A signature covers the values of all header fields in the order of their names, and the body. It covers
neither the request code nor the names of the fields nor a time: who reads it off the wire can use it again.
Only TLS keeps it from being read.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.remoting.command import Command

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_SIGNED_SINCE = 399
"""Clients up to this version leave the mark of a query by unique key out of what they sign."""
_Body = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Credentials:
    """An account's name and secret, for a client."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)


def signer(credentials: Credentials) -> Callable[[Command], None]:
    """What adds the account and the signature to a request."""
    secret = credentials.secret_key.encode()

    def sign(command: Command) -> None:
        fields = command.fields
        fields[ACCESS_KEY] = credentials.access_key
        if credentials.security_token:
            fields[SECURITY_TOKEN] = credentials.security_token
        fields[SIGNATURE] = signature(secret, fields, command.body)

    return sign


def signature(secret: bytes, fields: Mapping[str, str], body: _Body, *without: str) -> str:
    """The signature of a request; ``without``: fields that do not count beside the signature itself."""
    left_out = (SIGNATURE, *without)
    values = "".join([fields[name] for name in sorted(fields) if name not in left_out]).encode()
    digest = hmac.digest(secret, values + body if body else values, "sha1")
    return base64.b64encode(digest).decode()


def is_signed_by(secret: bytes, request: Command) -> bool:
    """Whether the request carries the signature of this secret. Takes as long whatever is wrong."""
    fields = request.fields
    given = fields.get(SIGNATURE, "").encode()
    without = []
    if request.version <= _SIGNED_SINCE and _UNIQUE_KEY_QUERY in fields:
        without.append(_UNIQUE_KEY_QUERY)
    fits = hmac.compare_digest(signature(secret, fields, request.body, *without).encode(), given)
    if not fits and SECURITY_TOKEN in fields:
        # Go's client leaves its token out.
        other = signature(secret, fields, request.body, SECURITY_TOKEN, *without)
        fits = hmac.compare_digest(other.encode(), given)
    return fits
