"""Java's ``String.hashCode`` and the index hash made from it (store format, sections 10.2 and 19)."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """The signed 32-bit hash over UTF-16 code units."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def key_hash(key: str) -> int:
    """The non-negative hash that index entries keep.

    Java's ``abs`` leaves the smallest number negative; the index uses 0 for it.
    """
    value = abs(java_hash(key))
    return 0 if value > 0x7FFFFFFF else value
