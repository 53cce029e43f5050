"""How much a day brings, and how long the disk will do."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.spark.places import Place

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
WINDOW_DAYS = 7
KEPT_DAYS = (1, 3, 7, 30)
# RocketMQ begins to delete the oldest files when the disk is used to this share (diskMaxUsedSpaceRatio).
DISK_SHARE = 0.75


class HourBytes(Protocol):
    """What one queue got in one hour."""

    @property
    def hour_ms(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class DayBytes:
    """One day, in UTC."""

    day_ms: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Retention:
    """The plan. ``bytes_per_day`` is the mean over the last ``window_hours`` of traffic, a week at most.

    ``days_held`` is how many days of such traffic fit into ``disk_bytes``, ``days_until_full`` how many more
    days fit beside what is there; None when nothing comes in or the disk is unknown. ``kept_bytes`` is what
    it takes to keep so many days.
    """

    days: list[DayBytes]
    bytes_per_day: float
    window_hours: int
    log_bytes: int
    disk_bytes: int | None
    days_held: float | None
    days_until_full: float | None
    kept_bytes: dict[int, int]


def plan_retention(place: Place, hours: Sequence[HourBytes], disk_bytes: int | None) -> Retention | None:
    """The plan for a store with that traffic; None without any.

    ``disk_bytes`` is what its log may take; without it, what the log has now and what the disk has left below
    RocketMQ's limit, if the store is on a disk of this machine.
    """
    if not hours:
        return None
    held = sum(file.size for file in place.log_files)
    limit = disk_bytes
    if limit is None and place.is_local:
        usage = shutil.disk_usage(place.root)
        limit = max(0, held + int(usage.total * DISK_SHARE) - usage.used)
    return project(hours, held, limit)


def project(hours: Sequence[HourBytes], log_bytes: int, disk_bytes: int | None) -> Retention:
    """The plan, from figures alone."""
    days: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for hour in hours:
        day = days[hour.hour_ms // DAY_MS * DAY_MS]
        day[0] += hour.rows
        day[1] += hour.bytes
    last = max(hour.hour_ms for hour in hours) + HOUR_MS
    first = max(min(hour.hour_ms for hour in hours), last - WINDOW_DAYS * DAY_MS)
    recent = sum(hour.bytes for hour in hours if hour.hour_ms >= first)
    rate = recent / ((last - first) / DAY_MS)
    return Retention(
        days=[DayBytes(day, rows, size) for day, (rows, size) in sorted(days.items())],
        bytes_per_day=rate,
        window_hours=(last - first) // HOUR_MS,
        log_bytes=log_bytes,
        disk_bytes=disk_bytes,
        days_held=None if disk_bytes is None or not rate else disk_bytes / rate,
        days_until_full=None if disk_bytes is None or not rate else max(0, disk_bytes - log_bytes) / rate,
        kept_bytes={days_kept: round(rate * days_kept) for days_kept in KEPT_DAYS},
    )
