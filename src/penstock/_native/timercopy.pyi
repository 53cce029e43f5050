from array import array
from collections.abc import Set
from typing import Any

def copy_due(
    records: list[Any],
    times: array[int],
    held: bytes,
    now: int,
    roll: bool,
    deleted: Set[bytes],
    max_body: int,
    max_record: int,
    most_bytes: int,
) -> tuple[bytearray, array[int], array[int], list[tuple[str, int]]]: ...
