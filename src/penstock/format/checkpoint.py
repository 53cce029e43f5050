"""The checkpoint file (store format, section 11.1)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.format.malformed import Buffer, Malformed

CHECKPOINT_SIZE = 4096

_FIELDS = struct.Struct(">6q")


class Checkpoint(NamedTuple):
    """What was known to be on disk when it was written: lower bounds, never "the last message"."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """From where recovery by time starts: three seconds before the older of log and queues."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - 3000)

    @property
    def min_timestamp_index(self) -> int:
        """The same with the index taken into account."""
        return min(self.min_timestamp, self.index_msg_timestamp)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The whole file of 4096 bytes."""
    return _FIELDS.pack(*checkpoint).ljust(CHECKPOINT_SIZE, b"\0")


def decode_checkpoint(data: Buffer) -> Checkpoint:
    """The fields of a checkpoint file; those an older release did not know read as 0.

    Malformed when cut short.
    """
    if len(data) < _FIELDS.size:
        raise Malformed(f"a checkpoint has at least {_FIELDS.size} bytes, not {len(data)}")
    return Checkpoint(*_FIELDS.unpack_from(data, 0))
