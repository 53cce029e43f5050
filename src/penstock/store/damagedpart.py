"""A damaged part of a log: what a scan found between two whole records."""

from __future__ import annotations

import bisect
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of the log without whole records, between two that are."""

    begin: int
    end: int
    reason: str


def damage_at(damage: list[Damage], place: int) -> Damage | None:
    """The damaged part that a place lies in. The list is in order, as a scan makes it."""
    number = bisect.bisect_right(damage, place, key=lambda part: part.begin)
    found = damage[number - 1] if number else None
    return found if found is not None and place < found.end else None
