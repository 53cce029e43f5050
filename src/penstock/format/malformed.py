"""What this package raises: bytes that are not what they should be, and values that no bytes can hold."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview


class Malformed(ValueError):
    """Bytes that cannot be decoded. Callers who know the file turn it into an error with file and offset."""
