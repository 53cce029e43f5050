"""The body of a batch: messages one after another (protocol 4.6)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
HEAD_SIZE = _HEAD.size


class BadBatch(ValueError):
    """Bytes that are no batch."""


def batch_items(body: bytes | memoryview) -> Iterator[tuple[int, memoryview, bytes]]:
    """Flag, body and property string of each message. Raises BadBatch where the bytes end or lie."""
    view = memoryview(body)
    at, end = 0, len(view)
    while at < end:
        if end - at < HEAD_SIZE + 2:
            raise BadBatch(f"{end - at} bytes are left, too few for a message")
        size, _, _, flag, length = _HEAD.unpack_from(view, at)
        start = at + HEAD_SIZE
        if length < 0 or start + length + 2 > end:
            raise BadBatch(f"a body of {length} bytes with {end - start} left")
        (properties_length,) = _SHORT.unpack_from(view, start + length)
        stop = start + length + 2 + properties_length
        if properties_length < 0 or stop > end or stop - at != size:
            raise BadBatch(f"a message of {size} bytes whose parts take {stop - at}")
        yield flag, view[start : start + length], bytes(view[start + length + 2 : stop])
        at = stop
