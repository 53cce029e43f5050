"""``penstock.position``: how far queues and index are on disk, by log position.

RocketMQ keeps times for that, and for the index nothing between two full files. This small file of ours lies
beside
its files; RocketMQ ignores it. It is replaced atomically and carries a checksum: absent, torn or foreign
means unknown, and then recovery falls back on what RocketMQ's own files say.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import PurePath

from penstock.files.storage import Storage

NAME = "penstock.position"
_MAGIC = b"PNSTPOS3"
_body = struct.Struct(">8sqqqqiqqqq17sqq")


@dataclass(frozen=True, slots=True)
class IndexPosition:
    """Entries before ``count`` of ``file`` are synced; they cover the log before ``log_offset``.

    ``entries`` is the number of all entries, those of earlier files included: a file that was lost makes it
    differ.
    """

    file: str
    count: int
    begin_timestamp: int
    end_timestamp: int
    log_offset: int
    entries: int = 0


@dataclass(frozen=True, slots=True)
class Position:
    """What was on disk when it was written. ``clean_end`` is the end of the log at a clean close, else -1.

    ``units`` is the sum of all queues' maximum offsets: a queue that lost units or files since makes it
    differ.
    """

    log_min: int
    flushed: int
    queues: int
    clean_end: int
    index: IndexPosition
    last_record: int = -1
    units: int = 0

    def encode(self) -> bytes:
        index = self.index
        body = _body.pack(
            _MAGIC,
            self.log_min,
            self.flushed,
            self.queues,
            self.clean_end,
            index.count,
            index.begin_timestamp,
            index.end_timestamp,
            index.log_offset,
            index.entries,
            index.file.encode(),
            self.last_record,
            self.units,
        )
        return body + struct.pack(">I", zlib.crc32(body))


def decode(data: bytes) -> Position | None:
    """The position, or None when the bytes are not a whole one."""
    if len(data) != _body.size + 4:
        return None
    (crc,) = struct.unpack_from(">I", data, _body.size)
    if zlib.crc32(data[:-4]) != crc:
        return None
    magic, log_min, flushed, queues, clean_end, *index, name, last_record, units = _body.unpack_from(data)
    if magic != _MAGIC:
        return None
    place = IndexPosition(name.rstrip(b"\0").decode("ascii", "replace"), *index)
    return Position(log_min, flushed, queues, clean_end, place, last_record, units)


def load(storage: Storage, root: str) -> Position | None:
    try:
        return decode(storage.read_file(str(PurePath(root) / NAME)))
    except OSError:
        return None


def save(storage: Storage, root: str, position: Position) -> None:
    storage.write_atomic(str(PurePath(root) / NAME), position.encode())


def forget(storage: Storage, root: str) -> None:
    try:
        storage.unlink(str(PurePath(root) / NAME))
    except FileNotFoundError:
        pass
