"""Units of a queue of either kind, as bytes."""

from __future__ import annotations

from itertools import islice

from penstock.format.batchunit import BATCH_UNIT_SIZE, encode_batch_unit
from penstock.store.batchconsumequeue import BatchConsumeQueue
from penstock.store.consumequeue import UNIT
from penstock.store.queuetable import AnyQueue


def read_units(queue: AnyQueue, offset: int, count: int) -> tuple[bytes, int]:
    """Units from the one that holds ``offset`` on, at most ``count``, and the size of one.

    Fewer at the end of a file; none where the queue has none.
    """
    if isinstance(queue, BatchConsumeQueue):
        found = islice(queue.iterate(offset), count) if offset < queue.max_offset else ()
        return b"".join(encode_batch_unit(unit) for unit in found), BATCH_UNIT_SIZE
    if not queue.min_offset <= offset < queue.max_offset:
        return b"", UNIT
    return queue.read(offset * UNIT, min(queue.max_offset, offset + count) * UNIT - offset * UNIT), UNIT
