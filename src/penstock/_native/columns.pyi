from collections.abc import Iterable
from typing import Any

from penstock._native.reading import GetResult

COLUMNS: tuple[str, ...]
SPARK_COLUMNS: tuple[str, ...]
MAX_BATCH_BYTES: int

class Batch:
    @property
    def num_rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def column_names(self) -> tuple[str, ...]: ...
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

def decode_result(result: GetResult, columns: Iterable[str] | None = None) -> Batch: ...
def decode_log(
    buffer: Any,
    start: int,
    end: int,
    base_offset: int,
    *,
    columns: Iterable[str] | None = None,
    max_rows: int = 65536,
    max_bytes: int = ...,
    check_crc: bool = True,
    check_offset: bool = True,
    check_property_crc: bool = False,
    check_torn: bool = False,
) -> tuple[Batch, int, str]: ...
