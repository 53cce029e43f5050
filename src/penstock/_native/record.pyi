from typing import Any

STOPS: tuple[str, ...]

class WalkResult:
    @property
    def records(self) -> int: ...
    @property
    def end_position(self) -> int: ...
    @property
    def last_position(self) -> int: ...
    @property
    def last_store_timestamp(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def stop(self) -> str: ...

def string_hash(text: Any) -> int: ...
def crc32(data: Any) -> int: ...
def walk(
    buffer: Any,
    start: int,
    end: int,
    base_offset: int,
    *,
    check_crc: bool = True,
    check_offset: bool = True,
    check_property_crc: bool = False,
    check_torn: bool = False,
) -> WalkResult: ...
