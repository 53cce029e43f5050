"""A record that fills a place in the log and is seen by nobody.

Damage inside the log has to become something that both Penstock and RocketMQ step over. A record of
transaction type ROLLBACK has neither a queue unit nor an index entry.
"""

from __future__ import annotations

import struct
import zlib

TOPIC = b"PENSTOCK_FILLER"
OVERHEAD = 91 + len(TOPIC)
MAGIC_V1 = 0xDAA320A7
ROLLBACK = 0xC


def filler_record(offset: int, size: int) -> bytes | None:
    """A whole record of exactly ``size`` bytes for a place in the log; None when that is too short for
    one.
    """
    topic = TOPIC[: max(0, size - 91)]
    body = bytes(size - 91 - len(topic)) if size >= 91 + 1 else b""
    if not topic:
        return None
    crc = zlib.crc32(body) & 0x7FFFFFFF if body else 0
    head = struct.pack(
        ">IIIiiqqiq8sq8siqi",
        size,
        MAGIC_V1,
        crc,
        0,
        0,
        0,
        offset,
        ROLLBACK,
        0,
        bytes(8),
        0,
        bytes(8),
        0,
        0,
        len(body),
    )
    return head + body + bytes([len(topic)]) + topic + bytes(2)
