"""Queue offset by store time, with both boundaries (format section 9.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

UNIT = 20


class _Place(Protocol):
    @property
    def physical_offset(self) -> int: ...
    @property
    def size(self) -> int: ...


class SearchedQueue(Protocol):
    """What the search reads of a queue."""

    file_size: int

    @property
    def files(self) -> tuple[int, ...]: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    def unit_at(self, logic: int) -> _Place | None: ...


def search_units(
    queue: SearchedQueue,
    timestamp: int,
    boundary: str,
    store_time: Callable[[int, int], int],
    min_physical: int,
) -> int:
    """The unclamped answer. LOWER: the first unit not before ``timestamp``; UPPER: the last one not after
    it.
    """

    def when(logic: int) -> int:
        unit = queue.unit_at(logic)
        return -1 if unit is None else store_time(unit.physical_offset, unit.size)

    lower = boundary.lower() == "lower"
    files = [f for f in queue.files if f < queue.max_offset * UNIT]
    file_from = _file_for(files, queue.file_size, timestamp, lower, when)
    if file_from is None:
        return 0
    floor = max(0, queue.min_offset * UNIT - file_from)
    ceiling = min(queue.file_size, queue.max_offset * UNIT - file_from) - UNIT
    if ceiling < 0:
        return 0
    if when(file_from + ceiling) < timestamp:
        return (file_from + ceiling) // UNIT + (1 if lower else 0)
    if when(file_from + floor) > timestamp:
        return file_from // UNIT if lower else 0
    low, high, target, left, right = floor, ceiling, -1, -1, -1
    while high >= low:
        middle = (low + high) // (2 * UNIT) * UNIT
        unit = queue.unit_at(file_from + middle)
        if unit is None:
            return 0
        if unit.physical_offset < min_physical:
            low, left = middle + UNIT, middle
            continue
        stored = store_time(unit.physical_offset, unit.size)
        if stored < 0:
            return 0
        if stored == timestamp:
            target = middle
            break
        if stored > timestamp:
            high, right = middle - UNIT, middle
        else:
            low, left = middle + UNIT, middle
    if target >= 0:
        step = -UNIT if lower else UNIT
        while floor <= target + step <= ceiling and when(file_from + target + step) == timestamp:
            target += step
        position = target
    else:
        position = right if lower else left
    return (file_from + position) // UNIT


def _file_for(
    files: list[int], file_size: int, timestamp: int, lower: bool, when: Callable[[int], int]
) -> int | None:
    if not files:
        return None
    if lower:
        for file_from in files[:-1]:
            if when(file_from + file_size - UNIT) >= timestamp:
                return file_from
        return files[-1]
    for file_from in reversed(files):
        if when(file_from) <= timestamp:
            return file_from
    return None
