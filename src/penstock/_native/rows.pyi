from collections.abc import Iterable
from typing import Any

from penstock._native.columns import Batch
from penstock._native.selection import Selection

class Decoder:
    def __init__(
        self,
        columns: Iterable[str],
        *,
        selection: Selection | None = None,
        max_rows: int = 16384,
        max_bytes: int = ...,
        unwrap: bool = True,
    ) -> None: ...
    @property
    def records(self) -> int: ...
    def __len__(self) -> int: ...
    def feed(self, buffer: Any, start: int, end: int, base_offset: int) -> int: ...
    def feed_units(
        self,
        buffer: Any,
        base_offset: int,
        units: Any,
        first: int,
        last: int,
        unit_size: int,
        topic: str,
        queue_id: int,
        queue_offset: int,
        start: int,
        end: int,
        check_crc: bool = True,
    ) -> tuple[int, str]: ...
    def take(self) -> tuple[Batch, list[tuple[int, int]]]: ...

def unit_spans(
    units: Any, unit_size: int, gap: int, limit: int, segment: int
) -> list[tuple[int, int, int, int]]: ...
