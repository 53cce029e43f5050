"""Bytes in, bytes out: the formats of a store's files, plain and readable.

This is the oracle of the compiled functions in ``_native``, which tests hold equal to these. Nothing here
keeps a file open or a position; every length found in bytes is checked against the buffer before it is
believed.
"""

from penstock.format.malformed import Malformed
from penstock.format.record import RecordFields, check_record, decode_record, encode_blank, encode_record
from penstock.format.walk import WalkResult, walk

__all__ = [
    "Malformed",
    "RecordFields",
    "WalkResult",
    "check_record",
    "decode_record",
    "encode_blank",
    "encode_record",
    "walk",
]
