from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from penstock._native.filtering import Program
from penstock._native.mapping import Mapping
from penstock._native.queue import Queue
from penstock._native.stored import Slab, StoredMessage

FOUND: str
NO_MATCHED_MESSAGE: str
MESSAGE_WAS_REMOVING: str

class LogView:
    def __init__(self, mappings: list[Mapping], file_size: int) -> None: ...
    @property
    def first(self) -> int: ...
    @property
    def file_size(self) -> int: ...
    @property
    def end(self) -> int: ...
    def slab_at(self, offset: int, size: int) -> tuple[Slab, int] | None: ...
    def read(self, offset: int, size: int) -> memoryview | None: ...
    def message(self, offset: int, size: int = -1) -> StoredMessage | None: ...
    def store_timestamp(self, offset: int, size: int) -> int: ...

class RawRecord:
    @property
    def size(self) -> int: ...
    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class GetResult:
    def __init__(
        self,
        status: str = ...,
        next_begin_offset: int = 0,
        min_offset: int = 0,
        max_offset: int = 0,
    ) -> None: ...
    @property
    def status(self) -> str: ...
    @property
    def next_begin_offset(self) -> int: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    @property
    def buffer_size(self) -> int: ...
    @property
    def message_count(self) -> int: ...
    @property
    def suggest_slave(self) -> bool: ...
    @property
    def messages(self) -> list[StoredMessage]: ...
    @property
    def raw(self) -> list[RawRecord]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[StoredMessage]: ...
    @overload
    def __getitem__(self, key: int) -> StoredMessage: ...
    @overload
    def __getitem__(self, key: slice) -> list[StoredMessage]: ...
    def to_arrow(self, columns: Sequence[str] | None = None) -> Any: ...

class UnitReader:
    filter_bytes: int
    memory_limit: int
    memory_bytes: int
    memory_count: int
    disk_bytes: int
    disk_count: int
    log_file_size: int
    def get(
        self,
        queue: Queue,
        units: Slab | None,
        log: LogView,
        offset: int,
        max_messages: int,
        max_bytes: int,
        program: Program | None = None,
    ) -> GetResult | None: ...
    def read(
        self,
        units: Slab,
        begin: int,
        end: int,
        unit_size: int,
        log: LogView | None,
        fetch: Callable[[int, int], tuple[Slab, int] | None] | None,
        first_offset: int,
        offset: int,
        min_offset: int,
        max_offset: int,
        max_messages: int,
        max_bytes: int,
        max_physical: int,
        codes: list[int] | None,
        resolve: Callable[[int], int | None] | None,
        program: Program | None = None,
        admit: Callable[[int, int], bool] | None = None,
    ) -> GetResult: ...

def matching(
    log: LogView, offsets: list[int], topic: bytes, key: bytes, by_tags: bool = False
) -> list[StoredMessage]: ...
