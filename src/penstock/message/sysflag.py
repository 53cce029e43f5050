"""The bits of a record's SYSFLAG (store format, section 2.4)."""

from __future__ import annotations

COMPRESSED_FLAG = 0x1
MULTI_TAGS_FLAG = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_NOT_TYPE = 0x0
TRANSACTION_PREPARED_TYPE = 0x4
TRANSACTION_COMMIT_TYPE = 0x8
TRANSACTION_ROLLBACK_TYPE = 0xC
BORNHOST_V6_FLAG = 0x10
STOREHOSTADDRESS_V6_FLAG = 0x20
NEED_UNWRAP_FLAG = 0x40
INNER_BATCH_FLAG = 0x80
COMPRESSION_TYPE_MASK = 0x700
COMPRESSION_TYPE_SHIFT = 8

# Value 0 is what clients wrote before the type had bits of its own, and means zlib like 3.
COMPRESSION_TYPES = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}


def transaction_type(sys_flag: int) -> int:
    """One of the four ``TRANSACTION_*_TYPE`` values."""
    return sys_flag & TRANSACTION_MASK


def with_transaction_type(sys_flag: int, kind: int) -> int:
    """The flag with its transaction bits replaced."""
    return (sys_flag & ~TRANSACTION_MASK) | kind


def has_queue_unit(sys_flag: int) -> bool:
    """Whether a record with this flag appears in a consume queue: prepared and rolled back ones do not."""
    return transaction_type(sys_flag) in (TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE)


def has_index_entry(sys_flag: int) -> bool:
    """Whether a record with this flag can be found by key: only rolled back ones cannot."""
    return transaction_type(sys_flag) != TRANSACTION_ROLLBACK_TYPE


def born_host_length(sys_flag: int) -> int:
    """Bytes of BORNHOST: address and a four-byte port."""
    return 20 if sys_flag & BORNHOST_V6_FLAG else 8


def store_host_length(sys_flag: int) -> int:
    """Bytes of STOREHOSTADDRESS: address and a four-byte port."""
    return 20 if sys_flag & STOREHOSTADDRESS_V6_FLAG else 8


def compression_type(sys_flag: int) -> str | None:
    """Name of the body's compression, or None when the body is plain.

    ValueError for a type nobody defined.
    """
    if not sys_flag & COMPRESSED_FLAG:
        return None
    value = (sys_flag & COMPRESSION_TYPE_MASK) >> COMPRESSION_TYPE_SHIFT
    try:
        return COMPRESSION_TYPES[value]
    except KeyError:
        raise ValueError(f"compression type {value} in sys flag {sys_flag:#x} is not defined") from None
