"""The checksum of bodies and records: CRC-32 without its top bit (store format, section 2.5)."""

from __future__ import annotations

import zlib

from penstock.format.malformed import Buffer


def crc32(data: Buffer) -> int:
    """CRC-32 (the zlib polynomial) masked to a non-negative ``int``.

    0 for no bytes, and for some others too.
    """
    return zlib.crc32(data) & 0x7FFFFFFF
