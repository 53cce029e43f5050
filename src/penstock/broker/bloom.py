"""The bloom filter behind RocketMQ's filter bitmaps: which bits stand for a group (format section 9.10)."""

from __future__ import annotations

import math
import struct

_MASK = (1 << 64) - 1
_ONE, _OTHER = 0x87C37B91114253D5, 0x4CF5AD432745937F


class BloomFilter:
    """``bit_count`` bits for so many texts, ``hash_count`` of them a text, for so many percent of errors."""

    def __init__(self, texts: int, error_percent: int) -> None:
        rate = error_percent / 100.0
        self.hash_count = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(texts * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        self.bit_count = (bits + 7) // 8 * 8

    def positions(self, text: str) -> tuple[int, ...]:
        """The bits of a text; two of them may be the same."""
        value = murmur3_first_half(text.encode())
        low, high = value & 0xFFFFFFFF, value >> 32
        found = []
        for number in range(1, self.hash_count + 1):
            combined = (low + number * high) & 0xFFFFFFFF
            if combined & 0x80000000:
                combined ^= 0xFFFFFFFF
            found.append(combined % self.bit_count)
        return tuple(found)


def murmur3_first_half(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0."""
    one = other = 0
    whole = len(data) // 16 * 16
    for first, second in struct.iter_unpack("<QQ", data[:whole]):
        one ^= _mixed_one(first)
        one = (_rotated(one, 27) + other) * 5 + 0x52DCE729 & _MASK
        other ^= _mixed_other(second)
        other = (_rotated(other, 31) + one) * 5 + 0x38495AB5 & _MASK
    tail = data[whole:].ljust(16, b"\0")
    first, second = struct.unpack("<QQ", tail)
    one ^= _mixed_one(first) ^ len(data)
    other ^= _mixed_other(second) ^ len(data)
    one = one + other & _MASK
    other = other + one & _MASK
    return _finished(one) + _finished(other) & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _mixed_one(value: int) -> int:
    return _rotated(value * _ONE & _MASK, 31) * _OTHER & _MASK


def _mixed_other(value: int) -> int:
    return _rotated(value * _OTHER & _MASK, 33) * _ONE & _MASK


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
