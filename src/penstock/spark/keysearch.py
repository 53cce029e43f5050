"""Places of messages by key, through the index, and the parts of the log that the index does not know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.spark.places import Place
from penstock.store.indexreader import IndexReader

_ALWAYS = (-(2**62), 2**62)
_EVERYTHING = 2**31 - 1


@dataclass(frozen=True)
class Found:
    """``offsets`` of records that may have one of the keys, in order;
    ``unknown``: parts [begin, end) of the log without an index.
    """

    offsets: tuple[int, ...]
    unknown: tuple[tuple[int, int], ...]


def search_index(
    place: Place, topics: Iterable[str], keys: Iterable[str], low: int, high: int
) -> Found | None:
    """What the index knows about keys in [low, high) of the log; None if it is not to be trusted.

    After a crash entries may be missing that the files claim to have: then only the log itself tells.
    """
    directory = place.directory
    if place.kind != "store" or not (directory.is_live or directory.is_closed):
        return None
    config = directory.config.replace(max_msgs_num_batch=_EVERYTHING)
    reader = IndexReader(place.storage, f"{place.root}/index", config)
    covered = sorted(reader.extents())
    if not covered:
        return None
    # The last record of a file may have more keys, in the next file or in none yet: it counts as unknown.
    offsets = {
        offset
        for topic in topics
        for key in keys
        for offset in reader.query_offset(topic, key, _EVERYTHING, *_ALWAYS)
        if low <= offset < high and any(begin <= offset < end for begin, end in covered)
    }
    return Found(tuple(sorted(offsets)), tuple(_gaps(covered, low, high)))


def _gaps(covered: list[tuple[int, int]], low: int, high: int) -> list[tuple[int, int]]:
    gaps: list[tuple[int, int]] = []
    position = low
    for begin, end in covered:
        if position < min(begin, high):
            gaps.append((position, min(begin, high)))
        position = max(position, end)
    if position < high:
        gaps.append((position, high))
    return gaps
