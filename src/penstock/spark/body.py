"""The two bodies of the source: store directories (``path``) and brokers that run (``namesrv``).

What belongs to one of them only is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from penstock.spark.course import Group, Watched
from penstock.spark.lag import Measured
from penstock.spark.options import BROKERS, ReadOptions
from penstock.spark.ranges import QueueRange

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.network.reading import BrokerSplit
    from penstock.spark.planning import Split

    AnySplit: TypeAlias = Split | BrokerSplit


class StreamBody(Watched, Protocol):
    """What a stream asks: the queues, and the tasks that read a batch of them."""

    def plan(self, ranges: Sequence[QueueRange], columns: Sequence[str]) -> Sequence[AnySplit]: ...


def plan_read(options: ReadOptions) -> Sequence[AnySplit]:
    """The tasks of a batch read."""
    if options.namesrv is not None:
        from penstock.spark.network.planning import plan_brokers

        return plan_brokers(options)
    from penstock.spark.planning import plan_places

    return plan_places(options)


def split_batches(split: AnySplit, columns: Sequence[str], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a task."""
    if options.namesrv is not None:
        from penstock.spark.network.reading import BrokerSplit, broker_batches

        assert isinstance(split, BrokerSplit)
        return broker_batches(split, columns, options)
    from penstock.spark.batches import record_batches
    from penstock.spark.planning import Split

    assert isinstance(split, Split)
    return record_batches(split, columns, options)


def watch_of(options: ReadOptions) -> StreamBody:
    """What a stream reads: the one store, or the brokers."""
    if options.namesrv is not None:
        from penstock.spark.network.watch import BrokerWatch

        return BrokerWatch(options)
    from penstock.spark.watch import StoreWatch, stream_place

    return StoreWatch(stream_place(options), options)


def open_watch(uri: str) -> Measured:
    """What a stream reads, by the name that it gives itself."""
    if uri.startswith(BROKERS):
        from penstock.spark.network.watch import BrokerWatch

        return BrokerWatch.open(uri)
    from penstock.spark.watch import StoreWatch

    return StoreWatch.open(uri)


def group_of(options: ReadOptions) -> Group | None:
    """Where a stream publishes its place, if it is to."""
    if options.commitGroup is None:
        return None
    if options.namesrv is not None:
        from penstock.spark.network.groups import BrokerGroup

        return BrokerGroup(options, options.commitGroup)
    from penstock.spark.groups import GroupOffsets
    from penstock.spark.watch import stream_place

    return GroupOffsets(stream_place(options), options.commitGroup)
