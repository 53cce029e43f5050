"""The extension of a consume queue: tags code, time and filter bitmap per message (format section 9.10)."""

from __future__ import annotations

import struct
from pathlib import PurePath
from typing import Protocol

from penstock._native.units import first_nonzero
from penstock.errors import CorruptFile, StoreReadOnly
from penstock.files.mappedfile import MappedFile, file_name
from penstock.files.mappedfilequeue import MappedFileQueue
from penstock.files.storage import Storage
from penstock.format.extunit import (
    END_BLANK_DATA_LENGTH,
    EXT_UNIT_HEAD,
    EXT_UNIT_MAX_SIZE,
    MAX_REAL_OFFSET,
    NOT_AN_ADDRESS,
    ExtUnit,
    decode_ext_unit,
    decorate,
    encode_ext_unit,
    is_ext_address,
    undecorate,
)
from penstock.format.malformed import Malformed

_END_MARKER = b"\xff\xff"
_WINDOW = 65536
_UNIT = 20
_PIECE = _UNIT * 800
_size = struct.Struct(">h")
_lengths = struct.Struct(">h16xh")
_tags = struct.Struct(">q")


class ConsumeQueueExt:
    """Units of variable length in files of one size. An address stays valid until its unit is cut or expires.

    One thread writes. Files are sparse and written by position, so a full disk is an error of the put and not
    a signal; a read-only opening maps nothing and reads each unit from its file.
    """

    def __init__(self, storage: Storage, folder: str, file_size: int, *, writable: bool = True) -> None:
        self.storage = storage
        self.folder = folder
        self.file_size = file_size
        self.writable = writable
        self._queue = MappedFileQueue(storage, folder, file_size, writable=writable, reserve=False)

    # -- loading and recovery ----------------------------------------------------------------------

    def load(self) -> None:
        """Take in the files of the folder. CorruptFile for one of a wrong size or name."""
        if self.writable:
            self._queue.shutdown()
            self._queue.load()
            return
        try:
            entries = [entry for entry in self.storage.listdir(self.folder) if not entry.is_dir]
        except FileNotFoundError:
            return
        for entry in entries[:-1]:  # the last may be in the making
            if entry.size != self.file_size:
                raise CorruptFile(
                    str(PurePath(self.folder) / entry.name),
                    found=f"{entry.size} bytes instead of {self.file_size}",
                    hint="open the store with the file size of its writer",
                )

    def recover(self) -> None:
        """Find the end of the units. Only the last file is walked: the others are full."""
        last = self._queue.last_file
        if last is None:
            return
        position, full = _end_of_units(last)
        if full:
            return
        behind = last.mapping.view(position, min(_WINDOW, self.file_size - position))
        dirty = first_nonzero(behind) >= 0
        behind.release()
        if dirty:
            self._queue.truncate_dirty_files(last.file_from_offset + position)
        else:
            last.wrote_position = last.committed_position = last.flushed_position = position

    @property
    def files(self) -> tuple[int, ...]:
        """First byte offsets of the files; none when opened read-only."""
        return tuple(file.file_from_offset for file in self._queue.files)

    @property
    def end_offset(self) -> int:
        """The byte offset at which the next unit goes, if it fits there."""
        return self._queue.max_wrote_position

    # -- writing -----------------------------------------------------------------------------------

    def put(self, tags_code: int, store_timestamp: int, bitmap: bytes | None = None) -> int:
        """Store a unit and return its address, or 1, which is no address, when a unit cannot be that large.

        OSError or StoreError when the disk refuses: nothing was stored, and it may be tried again.
        """
        if not self.writable:
            raise StoreReadOnly("the extension file is open for reading only", file=self.folder)
        unit = ExtUnit(tags_code, store_timestamp, bitmap or b"")
        if unit.size > min(EXT_UNIT_MAX_SIZE, self.file_size - END_BLANK_DATA_LENGTH):
            return NOT_AN_ADDRESS
        while True:
            file = self._queue.get_last_mapped_file()
            assert file is not None  # without an allocation service a file is made at once
            position = file.wrote_position
            if unit.size <= self.file_size - position - END_BLANK_DATA_LENGTH:
                break
            self._end(file)
        offset = file.file_from_offset + position
        if offset + unit.size > MAX_REAL_OFFSET:
            return NOT_AN_ADDRESS
        file.mapping.write(position, encode_ext_unit(unit))
        file.wrote_position = position + unit.size
        return decorate(offset)

    def _end(self, file: MappedFile) -> None:
        """No further unit goes into this file."""
        file.mapping.write(file.wrote_position, _END_MARKER)
        file.wrote_position = self.file_size

    def skip_past(self, address: int) -> None:
        """Never hand out an address up to this one: something refers to a unit there that is lost."""
        offset = undecorate(address)
        if not is_ext_address(address) or offset < self.end_offset:
            return
        last = self._queue.last_file
        if last is not None and not last.is_full:
            self._end(last)
        self._queue.try_create_mapped_file((offset // self.file_size + 1) * self.file_size)

    def flush(self) -> None:
        """Everything put so far is on disk. ``FlushFailed`` is final."""
        if self.writable:
            for file in self._queue.files:
                if file.flushed_position < file.wrote_position:
                    file.flush()

    # -- reading -----------------------------------------------------------------------------------

    def get(self, address: int) -> ExtUnit | None:
        """The unit at an address; None when there is none, or none any more."""
        if not is_ext_address(address):
            return None
        file_from = undecorate(address) // self.file_size * self.file_size
        position = undecorate(address) - file_from
        head = self._read(file_from, position, EXT_UNIT_HEAD)
        if len(head) < EXT_UNIT_HEAD:
            return None
        (size,) = _size.unpack_from(head)
        if size > EXT_UNIT_HEAD:
            head = self._read(file_from, position, size)
        try:
            return decode_ext_unit(head)
        except Malformed:
            return None

    def _read(self, file_from: int, position: int, count: int) -> bytes:
        if position + count > self.file_size:
            return b""
        if not self.writable:
            try:
                return self.storage.pread(str(PurePath(self.folder) / file_name(file_from)), position, count)
            except FileNotFoundError:
                return b""
        file = self._queue.find_mapped_file_by_offset(file_from)
        return (file.get_data(position, count) if file is not None else None) or b""

    # -- cutting and removing ----------------------------------------------------------------------

    def truncate_by_max_address(self, address: int) -> None:
        """Erase everything behind the unit at ``address``; nothing when there is no such unit."""
        unit = self.get(address)
        if unit is not None:
            self._cut(undecorate(address) + unit.size)

    def clear(self) -> None:
        """Erase all units: nothing refers to them."""
        if self._queue.files:
            self._cut(self._queue.min_offset)

    def _cut(self, offset: int) -> None:
        if offset < self.end_offset:
            self._queue.truncate_dirty_files(offset)

    def truncate_by_min_address(self, address: int) -> None:
        """Remove files that end before ``address``; the last one stays."""
        if not is_ext_address(address):
            return
        while len(self._queue.files) > 1:
            first = self._queue.files[0]
            if first.end_offset >= undecorate(address):
                break
            first.shutdown()
            self._queue.retry_delete_first_file()

    def destroy(self) -> None:
        """Remove all files and the folder."""
        self._queue.destroy()

    def close(self) -> None:
        self._queue.shutdown()


def _end_of_units(file: MappedFile) -> tuple[int, bool]:
    """Where the units of a file end, and whether a mark says that no further one goes into it.

    A unit whose lengths cannot be is what a crash left of it: it ends the file too.
    """
    view, position, limit = file.slice(), 0, file.file_size - END_BLANK_DATA_LENGTH
    with view:
        while position + EXT_UNIT_HEAD <= limit:
            size, bitmap = _lengths.unpack_from(view, position)
            if size < EXT_UNIT_HEAD or bitmap != size - EXT_UNIT_HEAD or position + size > limit:
                break
            position += size
        return position, bytes(view[position : position + 2]) == _END_MARKER


class ReferringQueue(Protocol):
    """A queue of 20-byte units whose tags codes may be addresses."""

    file_size: int

    @property
    def files(self) -> tuple[int, ...]: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    def read(self, logic: int, count: int) -> bytes: ...


def align(queue: ReferringQueue, ext: ConsumeQueueExt) -> None:
    """Make an extension end where its queue does, after either of them was cut or recovered.

    Units that no queue unit refers to are erased. An address whose unit is lost is not given to another one:
    a message would be filtered by the tags of a stranger.
    """
    address = last_address(queue)
    if address is None:
        ext.clear()
    elif ext.get(address) is None:
        ext.skip_past(address)
    else:
        ext.truncate_by_max_address(address)


def trim(queue: ReferringQueue, ext: ConsumeQueueExt) -> None:
    """Remove extension files of messages before the queue's minimum."""
    if queue.min_offset < queue.max_offset:
        unit = queue.read(queue.min_offset * _UNIT, _UNIT)
        if len(unit) == _UNIT:
            ext.truncate_by_min_address(_tags.unpack_from(unit, 12)[0])


def last_address(queue: ReferringQueue) -> int | None:
    """The last address that a unit of the queue holds."""
    files, logic = queue.files, queue.max_offset * _UNIT
    while files and logic > files[0]:
        begin = max((logic - 1) // queue.file_size * queue.file_size, logic - _PIECE)
        data = queue.read(begin, logic - begin)
        for position in range(len(data) - _UNIT, -1, -_UNIT):
            tags: int = _tags.unpack_from(data, position + 12)[0]
            if is_ext_address(tags):
                return tags
        logic = begin
    return None
