from array import array
from typing import Any

GOES_ON: int
BROKEN: int
FORWARDS: int

def count_late(records: list[Any], begin: int, before: int) -> int: ...
def join_units(
    records: list[Any],
    begin: int,
    pages: dict[int, bytearray],
    wheel_slots: int,
    position: int,
    room: int,
    rules: tuple[int, int, int, int, int],
    out: int = -1,
) -> tuple[int, bytes, bytes, dict[str, int]]: ...
def set_slots(pages: dict[int, bytearray], wheel_slots: int, slots: Any) -> set[int]: ...
def follow_chain(
    units: Any, base: int, end: int, position: int, tick: int, precision: int
) -> tuple[array[int], array[int], int, int]: ...
