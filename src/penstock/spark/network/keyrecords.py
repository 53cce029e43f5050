"""Records that the brokers' index knows by their keys."""

from __future__ import annotations

from collections.abc import Sequence

from penstock._native.units import record_header
from penstock.client.records import MOST_FOUND
from penstock.errors import RemotingError
from penstock.spark.network.brokers import Brokers
from penstock.spark.network.queuename import queue_of
from penstock.spark.ranges import QueueRange
from penstock.spark.wanted import FOREVER

Found = tuple[QueueRange, bytes]
"""The range that a record belongs to, and the record."""


async def records_of_keys(
    brokers: Brokers, ranges: Sequence[QueueRange], keys: Sequence[str]
) -> list[Found] | None:
    """Records of the ranges' topics with the hash of a key, each once, in the order of their queues.

    None when an index has more of them than it tells, all of one moment: then only reading helps. Who uses
    the records compares keys and offsets.
    """
    parts = {part[:2]: part for part in ranges}
    found: dict[tuple[str, int], tuple[QueueRange, int, bytes]] = {}
    for name in dict.fromkeys(part.topic for part in ranges):
        queue = queue_of((name, 0))
        for key in keys:
            end = FOREVER
            while True:
                body = await brokers.by_key(queue.broker_name, queue.topic, key, begin=0, end=end)
                records = _records(memoryview(body))
                before = len(found)
                for queue_id, offset, place, _, record in records:
                    part = parts.get((name, queue_id))
                    if part is not None:
                        found[name, place] = (part, offset, bytes(record))
                if len(records) < MOST_FOUND:
                    break
                oldest = min(stored for *_, stored, _ in records)
                if oldest >= end and len(found) == before:
                    return None
                end = oldest
    ordered = sorted(found.values(), key=lambda one: (one[0], one[1]))
    return [(part, record) for part, _, record in ordered]


def _records(view: memoryview) -> list[tuple[int, int, int, int, memoryview]]:
    """Queue, queue offset, place, store time and bytes of records that lie end to end."""
    made: list[tuple[int, int, int, int, memoryview]] = []
    at = 0
    while at < len(view):
        header = record_header(view[at:])
        if header is None:
            raise RemotingError("a broker answered a query by key with bytes that are no records")
        size, queue_id, offset, place, _, stored = header[:6]
        made.append((queue_id, offset, place, stored, view[at : at + size]))
        at += size
    return made
