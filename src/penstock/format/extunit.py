"""Consume queue extension: units of variable length and their addresses (store format, section 9.10)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from penstock.format.malformed import Buffer, Malformed

EXT_UNIT_HEAD = 20
EXT_UNIT_MAX_SIZE = 32767
END_BLANK_DATA_LENGTH = 4
MAX_REAL_OFFSET = 0x7FFFFFFF7FFFFFFF
NOT_AN_ADDRESS = 1
"""What a put that could not store its unit answers."""

_LONG_MIN = -(1 << 63)
_MAX_ADDRESS = -(1 << 31) - 1
_HEAD = struct.Struct(">hqqh")
_SHORT = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class ExtUnit:
    """Tags code, store time and filter bitmap of one message."""

    tags_code: int
    store_timestamp: int
    bitmap: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of the encoded unit."""
        return EXT_UNIT_HEAD + len(self.bitmap)


def is_ext_address(value: int) -> bool:
    """Whether a queue unit's tags code is an address: hashes of tags never lie so low."""
    return value <= _MAX_ADDRESS


def decorate(offset: int) -> int:
    """The address of a byte offset in the extension queue."""
    return offset + _LONG_MIN


def undecorate(address: int) -> int:
    """The byte offset behind an address; a value that is no address is given back as it is."""
    return address - _LONG_MIN if is_ext_address(address) else address


def encode_ext_unit(unit: ExtUnit) -> bytes:
    """The bytes of a unit; ValueError when its size does not fit the two bytes that tell it."""
    if unit.size > EXT_UNIT_MAX_SIZE:
        raise ValueError(f"an extension unit has at most {EXT_UNIT_MAX_SIZE} bytes, not {unit.size}")
    return _HEAD.pack(unit.size, unit.tags_code, unit.store_timestamp, len(unit.bitmap)) + unit.bitmap


def decode_ext_unit(buffer: Buffer, position: int = 0) -> ExtUnit | None:
    """The unit at ``position``.

    None at the end of a file's units; Malformed when its lengths are impossible.
    """
    if position < 0 or position + _SHORT.size > len(buffer):
        raise Malformed(f"no extension unit at position {position} of {len(buffer)} bytes")
    (size,) = _SHORT.unpack_from(buffer, position)
    if size <= 0:
        return None
    if size < EXT_UNIT_HEAD or position + size > len(buffer):
        raise Malformed(f"extension unit at {position}: size {size} is impossible")
    _, tags, store_timestamp, bitmap_length = _HEAD.unpack_from(buffer, position)
    if bitmap_length < 0 or EXT_UNIT_HEAD + bitmap_length != size:
        raise Malformed(
            f"extension unit at {position}: bitmap length {bitmap_length} does not fit size {size}"
        )
    bitmap = bytes(buffer[position + EXT_UNIT_HEAD : position + size])
    return ExtUnit(tags, store_timestamp, bitmap)


class ExtOracle:
    """The files of one extension queue, in memory: how units are placed and where files end."""

    def __init__(self, file_size: int) -> None:
        self.file_size = file_size
        self.files: list[bytearray] = []
        self._wrote = 0

    def put(self, unit: ExtUnit) -> int:
        """The address the unit got, or ``NOT_AN_ADDRESS`` when it cannot be stored."""
        if unit.size > min(EXT_UNIT_MAX_SIZE, self.file_size - END_BLANK_DATA_LENGTH):
            return NOT_AN_ADDRESS
        if not self.files:
            self.files.append(bytearray(self.file_size))
        if unit.size > self.file_size - self._wrote - END_BLANK_DATA_LENGTH:
            _SHORT.pack_into(self.files[-1], self._wrote, -1)
            self.files.append(bytearray(self.file_size))
            self._wrote = 0
        offset = (len(self.files) - 1) * self.file_size + self._wrote
        if offset + unit.size > MAX_REAL_OFFSET:
            return NOT_AN_ADDRESS
        self.files[-1][self._wrote : self._wrote + unit.size] = encode_ext_unit(unit)
        self._wrote += unit.size
        return decorate(offset)

    def get(self, address: int) -> ExtUnit | None:
        """The unit at an address, or None when there is none."""
        number, position = divmod(undecorate(address), self.file_size)
        if not is_ext_address(address) or number >= len(self.files):
            return None
        return decode_ext_unit(self.files[number], position)
