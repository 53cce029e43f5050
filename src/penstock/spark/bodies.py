"""Compressed bodies become plain ones, a batch at a time and within its bounds."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import StoreError
from penstock.message.sysflag import COMPRESSION_TYPES

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST = 256 << 20
"""No body is longer, whatever a few compressed bytes claim."""


def decompress(data: bytes, codec: int) -> bytes:
    """The plain body. Raises ValueError when the bytes are not what the flag says."""
    import pyarrow as pa

    kind = COMPRESSION_TYPES.get(codec)
    if kind is None:
        raise ValueError(f"compression type {codec} is not defined")
    try:
        if kind == "zlib":
            stream = zlib.decompressobj()
            plain = stream.decompress(data, LARGEST)
            if not stream.eof:
                raise ValueError("the compressed body is cut or too long")
            return plain
        with pa.CompressedInputStream(pa.BufferReader(data), kind) as reader:
            plain = bytes(reader.read(LARGEST + 1))
    except (zlib.error, OSError, pa.ArrowException) as error:
        raise ValueError(f"no {kind} data: {error}") from None
    if len(plain) > LARGEST:
        raise ValueError(f"longer than {LARGEST} bytes")
    return plain


def plain_bodies(
    batch: pa.RecordBatch, compressed: Sequence[tuple[int, int]], max_bytes: int, *, strict: bool
) -> Iterator[pa.RecordBatch]:
    """The rows with their bodies decompressed, in as many batches as ``max_bytes`` of bodies take.

    A body that is not what its flag says stays as it is, or with ``strict`` is an error.
    """
    import pyarrow as pa

    place = batch.schema.get_field_index("body")
    codecs = dict(compressed)
    bodies: list[Any] = []
    begin = size = 0
    column = batch.column(place)
    for row in range(batch.num_rows):
        body = column[row].as_py()
        if row in codecs:
            try:
                body = decompress(body, codecs[row])
            except ValueError as error:
                if strict:
                    raise _undecodable(batch, row, str(error)) from None
        if bodies and size + len(body) > max_bytes:
            yield _with_bodies(batch.slice(begin, len(bodies)), place, pa.array(bodies, pa.binary()))
            begin, bodies, size = row, [], 0
        bodies.append(body)
        size += len(body)
    if bodies:
        yield _with_bodies(batch.slice(begin, len(bodies)), place, pa.array(bodies, pa.binary()))


def _with_bodies(batch: pa.RecordBatch, place: int, bodies: pa.Array) -> pa.RecordBatch:
    return batch.set_column(place, batch.schema.field(place), bodies)


def _undecodable(batch: pa.RecordBatch, row: int, reason: str) -> StoreError:
    where = {
        name: batch.column(name)[row].as_py()
        for name in ("topic", "queueId", "queueOffset", "physicalOffset")
        if name in batch.schema.names
    }
    return StoreError(
        f"the body of a message cannot be decompressed: {reason}; {where or f'row {row} of a batch'}",
        hint="decompress=false reads bodies as they are stored, badRecords=skip those that fail",
    )
