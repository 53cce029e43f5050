"""One unit of a batch consume queue (store format, section 3.5)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.format.malformed import Buffer, Malformed

BATCH_UNIT_SIZE = 46

_UNIT = struct.Struct(">qiqqqhii")


class BatchUnit(NamedTuple):
    """Where a record lies, and which queue offsets its messages have."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    batch_size: int
    compacted_offset: int = -1

    @property
    def is_valid(self) -> bool:
        """Whether this can be a unit; unwritten bytes are not."""
        return self.physical_offset >= 0 and self.size > 0 and self.base_offset >= 0 and self.batch_size > 0

    @property
    def next_offset(self) -> int:
        """The queue offset behind the last message of the record."""
        return self.base_offset + self.batch_size


def encode_batch_unit(unit: BatchUnit) -> bytes:
    """The 46 bytes of a unit."""
    return _UNIT.pack(*unit, 0)


def decode_batch_unit(buffer: Buffer, position: int = 0) -> BatchUnit:
    """The unit at ``position``; Malformed when the buffer ends inside it."""
    if position < 0 or position + BATCH_UNIT_SIZE > len(buffer):
        raise Malformed(f"no batch queue unit at position {position} of {len(buffer)} bytes")
    return BatchUnit(*_UNIT.unpack_from(buffer, position)[:7])
