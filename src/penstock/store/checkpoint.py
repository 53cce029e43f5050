"""``checkpoint``: RocketMQ's own record of how far things are (format section 11.1). Ours to write, never
to trust.
"""

from __future__ import annotations

import struct
from pathlib import PurePath

from penstock.files.storage import Storage

SIZE = 4096
_fields = struct.Struct(">qqqqqq")


class StoreCheckpoint:
    """Values in memory; ``flush`` writes them. They are lower bounds: recovery uses log positions."""

    def __init__(self, storage: Storage, root: str) -> None:
        self.path = str(PurePath(root) / "checkpoint")
        self._storage = storage
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0
        self.master_flushed_offset = 0
        self.confirm_phy_offset = 0
        self.logics_physical_offset = 0
        self._written = b""

    def load(self) -> None:
        """Read the file; missing, short or with negative values it counts as zeros."""
        try:
            data = self._storage.read_file(self.path)[: _fields.size]
        except FileNotFoundError:
            return
        values = _fields.unpack(data.ljust(_fields.size, b"\0"))
        (
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
            self.logics_physical_offset,
        ) = (max(0, value) for value in values)

    def encode(self) -> bytes:
        return _fields.pack(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
            self.logics_physical_offset,
        ).ljust(SIZE, b"\0")

    def flush(self) -> None:
        """Replace the file if a value changed."""
        data = self.encode()
        if data != self._written:
            self._storage.write_atomic(self.path, data)
            self._written = data

    @property
    def min_timestamp(self) -> int:
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - 3000)

    @property
    def min_timestamp_index(self) -> int:
        return min(self.min_timestamp, self.index_msg_timestamp)
