"""From queue ranges at brokers to tasks of about the same size."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from penstock.spark.network.access import Access, make_access
from penstock.spark.network.bounds import BrokerBounds
from penstock.spark.network.reading import BrokerSplit
from penstock.spark.options import BROKER_KINDS, ReadOptions
from penstock.spark.ranges import QueueRange

SPLIT_BYTES = 32 << 20
"""What a task reads unless the options say: brokers take part of the time, so it is less than of a store."""


def access_of(options: ReadOptions) -> Access:
    """How the options say that brokers are reached."""
    assert options.namesrv is not None
    return make_access(
        options.namesrv, options.consumerGroup, {name: getattr(options, name) for name in BROKER_KINDS}
    )


def plan_brokers(options: ReadOptions) -> list[BrokerSplit]:
    """The tasks of a batch read: everything that the options ask for."""
    bounds = BrokerBounds(access_of(options))
    return plan_ranges(bounds, options, bounds.resolve(options))


def plan_ranges(
    bounds: BrokerBounds, options: ReadOptions, ranges: Sequence[QueueRange]
) -> list[BrokerSplit]:
    """Ranges cut and packed so that each task reads about ``splitBytes``; ``minPartitions`` at least."""
    if not ranges:
        return []
    if options.keys:
        return [BrokerSplit(bounds.access, tuple(ranges), by_key=True)]
    count = sum(part.end - part.start for part in ranges)
    mean = bounds.mean_size({part[:2]: part[2:] for part in ranges})
    size = SPLIT_BYTES if options.splitBytes == ReadOptions.splitBytes else options.splitBytes
    tasks = max(options.minPartitions, ceil(count * mean / size), 1)
    each = -(-count // tasks)
    packed: list[list[QueueRange]] = [[]]
    room = each
    for part in sorted(ranges, key=lambda part: (part.topic.partition("@")[2], part)):
        start = part.start
        while start < part.end:
            take = min(part.end - start, room)
            packed[-1].append(part._replace(start=start, end=start + take))
            start += take
            room -= take
            if room == 0:
                packed.append([])
                room = each
    return [BrokerSplit(bounds.access, tuple(some)) for some in packed if some]
