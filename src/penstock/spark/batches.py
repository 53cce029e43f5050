"""What a task does: read its part of a store and hand out Arrow batches, or runs of whole records.

No Spark is needed here. Every byte comes from a read into a reused buffer; a file that vanishes or cannot be
read is an error or a reported loss, never a dead process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.errors import CorruptRecord, DataLost
from penstock.spark.bounds import StoreBounds
from penstock.spark.logreader import Bad, LogReader
from penstock.spark.options import ReadOptions
from penstock.spark.planning import LogSplit, Split
from penstock.spark.ranges import QueueRange
from penstock.spark.task import Task
from penstock.spark.unitreader import UnitReader
from penstock.store.scan import Run

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("penstock.spark")


def log_runs(split: LogSplit, *, check_crc: bool = True) -> Iterator[Run]:
    """Whole, checked records of a split in pieces: ``run.view[:run.end]``, from ``run.base`` of the log on.

    A run is valid until the next one comes. Damage is an error; ``LogReader`` goes around it and tells.
    """
    reader = LogReader(split, check_crc=check_crc)
    for run in reader.runs():
        for bad in reader.take_bad():
            raise corrupt(bad)
        yield run
    for bad in reader.take_bad():
        raise corrupt(bad)


def record_batches(split: Split, columns: Sequence[str], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a split, in the order of the log (of each queue, where it is read by queues).

    Batches have exactly the columns asked for, in this order and as Spark wants them, and are bounded in rows
    and in bytes.
    """
    return _Task(split, columns, options).batches()


class _Task(Task):
    def __init__(self, split: Split, columns: Sequence[str], options: ReadOptions) -> None:
        super().__init__(columns, options)
        self.split = split
        self.decoder = self.decoder_for(split.wanted.selection())

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self.split.log is not None:
            yield from self._along_log(self.split.log)
        elif self.split.offsets:
            yield from self._at_offsets()
        else:
            yield from self._along_units()
        if len(self.decoder):
            yield from self._take()

    # -- three ways --------------------------------------------------------------------------------

    def _along_log(self, part: LogSplit) -> Iterator[pa.RecordBatch]:
        reader = LogReader(part, check_crc=self.options.verifyCrc)
        decoder = self.decoder
        for run in reader.runs():
            for bad in reader.take_bad():
                yield from self._meet(bad)
            at = decoder.feed(run.view, 0, run.end, run.base)
            while at < run.end:
                yield from self._take()
                at = decoder.feed(run.view, at, run.end, run.base)
        for bad in reader.take_bad():
            yield from self._meet(bad)

    def _at_offsets(self) -> Iterator[pa.RecordBatch]:
        with UnitReader(self.split.place) as reader:
            for offset in self.split.offsets:
                record = reader.record(offset, check_crc=self.options.verifyCrc)
                if isinstance(record, Bad):
                    yield from self._meet(record)
                    continue
                if self.decoder.feed(record, 0, len(record), offset) < len(record):
                    yield from self._take()
                    self.decoder.feed(record, 0, len(record), offset)

    def _along_units(self) -> Iterator[pa.RecordBatch]:
        with UnitReader(self.split.place, self.split.queue_files) as reader:
            for part in self.split.ranges:
                for met in reader.feed(self.decoder, part, check_crc=self.options.verifyCrc):
                    if met is None:
                        yield from self._take()
                    else:
                        yield from self._meet(met)

    # -- what comes out ----------------------------------------------------------------------------

    def _take(self) -> Iterator[pa.RecordBatch]:
        return self.take(self.decoder)

    def _meet(self, bad: Bad) -> Iterator[pa.RecordBatch]:
        """Do with a bad part of the log what the options say."""
        if bad.lost:
            self._lose(bad)
        elif self.set_aside(corrupt(bad), bad.end - bad.begin):
            if len(self.decoder):
                yield from self._take()
            with UnitReader(self.split.place) as reader:
                yield from self.quarantine(bad.begin, bad.end, bad.reason, reader.raw)

    def _lose(self, bad: Bad) -> None:
        if self.options.failOnDataLoss:
            raise DataLost(
                f"messages are gone, {bad.reason}",
                self._lost_ranges(),
                file=bad.file,
                hint="keep messages longer, or set failOnDataLoss=false to read what is there",
            )
        log.warning("%s: messages are gone, %s", bad.file, bad.reason)

    def _lost_ranges(self) -> list[tuple[str, int, int, int]]:
        """Which of the offsets that this task was to read are before the first that is left."""
        place = self.split.place.refreshed()
        queues = self.split.wanted.queues
        if not place.has_queues or not (queues or self.split.ranges):
            return []
        bounds = StoreBounds(place)
        try:
            earliest = bounds.earliest()
        finally:
            bounds.close()
        asked = [QueueRange(*queue[:4]) for queue in queues or ()] or self.split.ranges
        return [
            (topic, queue, start, min(end, earliest[topic, queue]))
            for topic, queue, start, end in asked
            if earliest.get((topic, queue), 0) > start
        ]


def corrupt(bad: Bad) -> CorruptRecord:
    """The error for a bad part of the log."""
    return CorruptRecord(
        bad.file,
        bad.position,
        found=f"{bad.reason} (physical offsets {bad.begin} to {bad.end})",
        hint="badRecords=skip goes on behind it, badRecords=quarantine gives its bytes as a row;"
        " `penstock store repair` mends the store",
    )
