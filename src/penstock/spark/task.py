"""What every task does with records, wherever they come from: rows, within the bounds of a batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock._native.rows import Decoder
from penstock._native.selection import Selection
from penstock.errors import CorruptRecord
from penstock.spark.bodies import plain_bodies
from penstock.spark.options import ReadOptions
from penstock.spark.schema import BAD_RECORD, NAMES, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("penstock.spark")


class Task:
    """Decodes records into batches with exactly the columns asked for, in their order."""

    def __init__(self, columns: Sequence[str], options: ReadOptions) -> None:
        self.options = options
        self.columns = list(columns)
        self.schema = arrow_schema(self.columns)
        # Without a column there is still a row: Spark counts them.
        self.fields = [name for name in self.columns if name in NAMES]

    def decoder_for(self, selection: Selection) -> Decoder:
        """What turns records into rows, those of a selection."""
        return Decoder(
            self.fields,
            selection=selection,
            max_rows=self.options.maxBatchRows,
            max_bytes=self.options.maxBatchBytes,
            unwrap=self.options.view == "queue",  # the log has a record, the queue has its messages
        )

    def take(self, decoder: Decoder) -> Iterator[pa.RecordBatch]:
        """The rows that a decoder has so far."""
        import pyarrow as pa

        made, compressed = decoder.take()
        batch = pa.record_batch(made)
        parts = (
            plain_bodies(
                batch, compressed, self.options.maxBatchBytes, strict=self.options.badRecords == "fail"
            )
            if compressed and self.options.decompress
            else (batch,)
        )
        for part in parts:
            yield self._shaped(part)

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        if len(self.fields) == len(self.columns):
            return batch
        reason = pa.nulls(batch.num_rows, pa.string())
        arrays = [reason if name == BAD_RECORD.name else batch.column(name) for name in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def set_aside(self, error: CorruptRecord, size: int) -> bool:
        """Do with bad bytes what the options say: raise, skip, or True for those that become rows."""
        if self.options.badRecords == "fail":
            raise error
        done = "quarantined" if self.options.quarantine else "skipped"
        log.warning("%s at %s: %s; %d bytes %s", error.file, error.offset, error.found, size, done)
        return self.options.quarantine

    def quarantine(
        self, begin: int, end: int, reason: str, read: Callable[[int, int], bytes]
    ) -> Iterator[pa.RecordBatch]:
        """Rows with raw bytes, in pieces that a batch holds; ``begin`` and ``end`` are places in the log."""
        import pyarrow as pa

        while begin < end:
            stop = min(end, begin + self.options.maxBatchBytes)
            values = {
                "physicalOffset": begin,
                "size": stop - begin,
                "body": read(begin, stop) if "body" in self.columns else None,
                BAD_RECORD.name: reason,
            }
            row = {name: [values.get(name)] for name in self.columns}
            yield pa.RecordBatch.from_pydict(row, schema=self.schema)
            begin = stop
