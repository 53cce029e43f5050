"""What a task does that reads from brokers: pull, check, decode. No Spark in here."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock._native.record import walk
from penstock._native.rows import Decoder
from penstock.errors import CorruptRecord, DataLost
from penstock.spark.network.access import Access
from penstock.spark.network.brokers import Brokers
from penstock.spark.network.keyrecords import records_of_keys
from penstock.spark.network.pulls import Pulls
from penstock.spark.network.queuename import queue_of
from penstock.spark.options import ReadOptions
from penstock.spark.ranges import QueueRange
from penstock.spark.task import Task
from penstock.spark.wanted import FOREVER, wanted_of

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("penstock.spark")

_LEAST_RECORD = 8


@dataclass(frozen=True)
class BrokerSplit:
    """What one task reads: ranges of queues, a queue at most once. Pickles."""

    access: Access
    ranges: tuple[QueueRange, ...]
    by_key: bool = False
    """Ask the brokers' index for the keys of the options."""


def broker_batches(
    split: BrokerSplit, columns: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """The rows of a split, queue by queue, each in its order. Batches as ``record_batches`` makes them."""
    return _BrokerTask(split, columns, options).batches()


class _BrokerTask(Task):
    def __init__(self, split: BrokerSplit, columns: Sequence[str], options: ReadOptions) -> None:
        super().__init__(columns, options)
        self.split = split
        self._brokers = Brokers.of(split.access)
        self._decoders: dict[str, Decoder] = {}

    def batches(self) -> Iterator[pa.RecordBatch]:
        found = None
        if self.split.by_key:
            found = self._brokers.run(
                records_of_keys(self._brokers, self.split.ranges, self.options.keys or ())
            )
        if found is None:
            yield from self._along_queues()
        else:
            for part, record in found:
                yield from self._feed(part, memoryview(record))
        for decoder in self._decoders.values():
            if len(decoder):
                yield from self.take(decoder)

    def _along_queues(self) -> Iterator[pa.RecordBatch]:
        with Pulls(self._brokers, self.split.ranges, self.options.tags) as pulls:
            for piece in pulls:
                if piece.lost is not None:
                    self._lose(piece.range, *piece.lost)
                else:
                    yield from self._feed(piece.range, memoryview(piece.records))

    def _decoder(self, part: QueueRange) -> Decoder:
        """One for each broker: a record tells its topic and queue, not where it is."""
        broker = queue_of(part[:2]).broker_name
        if broker not in self._decoders:
            queues = []
            for other in self.split.ranges:
                queue = queue_of(other[:2])
                if queue.broker_name == broker:
                    queues.append((queue.topic, queue.queue_id, other.start, other.end, 0, FOREVER))
            wanted = wanted_of(self.options, queues=tuple(queues))
            self._decoders[broker] = self.decoder_for(wanted.selection())
        return self._decoders[broker]

    def _feed(self, part: QueueRange, view: memoryview) -> Iterator[pa.RecordBatch]:
        decoder = self._decoder(part)
        begin, size = 0, len(view)
        while begin < size:
            result = walk(view, begin, size, 0, check_crc=self.options.verifyCrc, check_offset=False)
            at, end = begin, result.end_position
            while at < end:
                at = decoder.feed(view, at, end, 0)
                if at < end:
                    yield from self.take(decoder)
            begin = end
            if begin < size:
                stop = self._end_of_bad(view, begin)
                yield from self._meet(part, decoder, view[begin:stop], result.stop)
                begin = stop

    @staticmethod
    def _end_of_bad(view: memoryview, at: int) -> int:
        """Behind a bad record, if its length can be one; else behind all that came."""
        length = int.from_bytes(view[at : at + 4], "big")
        return at + length if _LEAST_RECORD <= length <= len(view) - at else len(view)

    def _meet(
        self, part: QueueRange, decoder: Decoder, bad: memoryview, reason: str
    ) -> Iterator[pa.RecordBatch]:
        place = int.from_bytes(bad[28:36], "big", signed=True) if len(bad) >= 36 else 0
        error = CorruptRecord(
            f"{self.split.access} {part.topic}/{part.queue_id}",
            place,
            found=f"record: {reason}, as the broker sent it",
            hint="badRecords=skip goes on behind it, badRecords=quarantine gives its bytes as a row",
        )
        if self.set_aside(error, len(bad)):
            if len(decoder):
                yield from self.take(decoder)
            begin = max(0, place)
            end = begin + len(bad)
            yield from self.quarantine(
                begin, end, f"record: {reason}", lambda low, high: bytes(bad[low - begin : high - begin])
            )

    def _lose(self, part: QueueRange, begin: int, end: int) -> None:
        lost = [(part.topic, part.queue_id, begin, end)]
        if self.options.failOnDataLoss:
            raise DataLost(
                "messages are gone",
                lost,
                file=str(self.split.access),
                hint="keep messages longer, or set failOnDataLoss=false to read what is there",
            )
        log.warning("%s: messages are gone, %s/%d [%d, %d)", self.split.access, *part[:2], begin, end)
