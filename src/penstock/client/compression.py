"""Bodies made smaller on the way, as the sys flag of a message says (protocol section 6)."""

from __future__ import annotations

import importlib
import zlib
from typing import Any

from penstock.errors import RemotingError
from penstock.message.sysflag import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK, compression_type

ZLIB_FLAGS = COMPRESSED_FLAG | 0x300
MAX_BODY = 1 << 28
"""Nothing inflates beyond this: a few bytes must not claim all memory."""


class CompressionUnavailable(RemotingError):
    """The body is compressed in a way whose package is not installed here."""


def compress(body: bytes | bytearray | memoryview, level: int) -> bytes:
    """zlib, as RocketMQ's client does; the flags to set are ``ZLIB_FLAGS``."""
    return zlib.compress(body, level)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body as it was sent. CompressionUnavailable, or RemotingError for bytes that are no such stream."""
    try:
        kind = compression_type(sys_flag)
        if kind is None:
            return body
        return {"zlib": _zlib, "lz4": _lz4, "zstd": _zstd}[kind](body)
    except CompressionUnavailable:
        raise
    except Exception as error:
        raise RemotingError(f"a compressed body that can't be read: {error}") from None


def without_compression(sys_flag: int) -> int:
    """The flag of a message whose body was inflated."""
    return sys_flag & ~(COMPRESSED_FLAG | COMPRESSION_TYPE_MASK)


def _zlib(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    found = stream.decompress(body, MAX_BODY)
    if not stream.eof:
        raise ValueError("the stream is cut, or larger than any message")
    return found


def _lz4(body: bytes) -> bytes:
    stream = _package("lz4.frame", "lz4").LZ4FrameDecompressor()
    found: bytes = stream.decompress(body, MAX_BODY)
    if not stream.eof:
        raise ValueError("the stream is cut, or larger than any message")
    return found


def _zstd(body: bytes) -> bytes:
    package = _package("zstandard", "zstandard")
    with package.ZstdDecompressor().stream_reader(body) as reader:
        found: bytes = reader.read(MAX_BODY)
        if reader.read(1):
            raise ValueError("larger than any message")
    return found


def _package(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise CompressionUnavailable(
            f"a body compressed with {module.partition('.')[0]}", hint=f"pip install {name}"
        ) from None
