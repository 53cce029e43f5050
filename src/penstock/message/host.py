"""Socket addresses as text and as the bytes a record keeps."""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv6Address

_PORT = struct.Struct(">i")


def parse_host(text: str) -> tuple[bytes, int]:
    """Address bytes (4 or 16) and port of ``1.2.3.4:5`` or ``[::1]:5``; ValueError for anything else.

    Names are not resolved: a record keeps numbers.
    """
    address, colon, port = text.rpartition(":")
    if not colon or not port.removeprefix("-").isascii() or not port.removeprefix("-").isdigit():
        raise ValueError(f"host {text!r} does not end in ':port'")
    family = socket.AF_INET
    if address.startswith("[") and address.endswith("]"):
        family = socket.AF_INET6
        address = address[1:-1]
    try:
        return socket.inet_pton(family, address), int(port)
    except (OSError, ValueError):
        raise ValueError(f"host {text!r} is neither '1.2.3.4:port' nor '[v6 address]:port'") from None


def format_host(address: bytes, port: int) -> str:
    """The text form of an address: ``1.2.3.4:5`` or ``[::1]:5``."""
    if len(address) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, address)}:{port}"
    # Not inet_ntop: how it writes addresses that carry an IPv4 one depends on the C library.
    return f"[{IPv6Address(address)}]:{port}"


def pack_host(text: str) -> bytes:
    """The 8 or 20 bytes of a record's host field."""
    address, port = parse_host(text)
    return address + _PORT.pack(port)


def unpack_host(field: bytes) -> str:
    """Text form of a record's host field of 8 or 20 bytes.

    Any port a four-byte number can hold is shown as it is.
    """
    return format_host(field[:-4], _PORT.unpack(field[-4:])[0])
