"""The records of a split as columns, with the bytes they were read from: what the tasks of several jobs walk
over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock._native.columns import decode_log
from penstock.spark.batches import log_runs
from penstock.spark.logreader import LogReader

if TYPE_CHECKING:
    import pyarrow

    from penstock.spark.planning import LogSplit

MAX_ROWS = 65536


@dataclass(frozen=True, slots=True)
class Piece:
    """Some records in a row. ``view`` holds exactly them, from physical offset ``base`` on, until the next
    piece.
    """

    batch: pyarrow.RecordBatch
    view: memoryview
    base: int


def header_pieces(
    split: LogSplit, columns: Sequence[str], *, check_crc: bool = False, skip_damage: bool = True
) -> Iterator[Piece]:
    """The records of a split in order. Bodies are not looked at unless ``columns`` or ``check_crc`` asks for
    them.

    A place without whole records is passed over; without ``skip_damage`` it raises CorruptRecord.
    """
    import pyarrow

    reader = LogReader(split, check_crc=check_crc)
    for run in reader.runs() if skip_damage else log_runs(split, check_crc=check_crc):
        at = 0
        while at < run.end:
            batch, end, _ = decode_log(
                run.view, at, run.end, run.base, columns=columns, max_rows=MAX_ROWS, check_crc=False
            )
            if end == at:
                raise AssertionError(f"a checked record at {run.base + at} cannot be read")
            yield Piece(pyarrow.record_batch(batch), run.view[at:end], run.base + at)
            at = end
