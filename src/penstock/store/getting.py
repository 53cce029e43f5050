"""One get: which units of a queue, which records of the log (format section 14)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from penstock._native.filtering import Program
from penstock._native.reading import GetResult, UnitReader
from penstock._native.record import string_hash
from penstock._native.stored import Slab
from penstock.config import StoreConfig
from penstock.store.batchconsumequeue import BatchConsumeQueue
from penstock.store.consumequeue import UNIT, ConsumeQueue

MAX_BYTES = 128 << 20
MAX_BULK = 4096


def tag_codes(expression: str | None) -> list[int] | None:
    """Hashes of the tags in ``a || b``; None when everything matches."""
    if expression is None or expression.strip() in ("", "*"):
        return None
    return [string_hash(tag.encode()) for part in expression.split("||") if (tag := part.strip())]


def unit_reader(config: StoreConfig) -> UnitReader:
    """The native get loop with a store's limits."""
    reader = UnitReader()
    reader.filter_bytes = config.max_filter_message_size
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    reader.memory_limit = memory * config.access_message_in_memory_max_ratio // 100
    reader.memory_bytes = config.max_transfer_bytes_on_message_in_memory
    reader.memory_count = config.max_transfer_count_on_message_in_memory
    reader.disk_bytes = config.max_transfer_bytes_on_message_in_disk
    reader.disk_count = config.max_transfer_count_on_message_in_disk
    reader.log_file_size = config.mapped_file_size_commit_log
    return reader


def bulk_reader(config: StoreConfig) -> UnitReader:
    """The same for those who read whole queues: bounded by bytes, wherever the messages are, and hardly by
    their number.
    """
    reader = unit_reader(config)
    reader.disk_bytes = reader.memory_bytes
    reader.memory_count = reader.disk_count = MAX_BULK
    return reader


def get_messages(
    reader: UnitReader,
    queue: ConsumeQueue | BatchConsumeQueue,
    view: Any,
    offset: int,
    count: int,
    codes: list[int] | None,
    max_bytes: int,
    resolve: Any = None,
    fetch: Any = None,
    end: int | None = None,
    program: Program | None = None,
    admit: Callable[[int, int], bool] | None = None,
) -> GetResult:
    """Section 14.1: the conditions in their order, then the loop over units. ``view`` or ``fetch`` gives
    the records; a filter is a ``program`` over their properties, and what ``admit`` says of places in the
    log and addresses in an extension file.
    """
    low, high = queue.min_offset, queue.max_offset
    if high == 0:
        return GetResult("NO_MESSAGE_IN_QUEUE", 0, low, high)
    if offset < low:
        return GetResult("OFFSET_TOO_SMALL", low, low, high)
    if offset == high:
        return GetResult("OFFSET_OVERFLOW_ONE", offset, low, high)
    if offset > high:
        return GetResult("OFFSET_OVERFLOW_BADLY", high, low, high)
    last = view.end if end is None else end
    if isinstance(queue, BatchConsumeQueue):
        units = queue.units_from(offset)
        if units is None:
            return GetResult("OFFSET_FOUND_NULL", offset, low, high)
        return reader.read(
            Slab(units),
            0,
            len(units),
            46,
            view,
            fetch,
            offset,
            offset,
            low,
            high,
            count,
            max_bytes,
            last,
            codes,
            resolve,
            program,
            admit,
        )
    place = queue.slab_from(offset)
    if place is None:
        return GetResult("OFFSET_FOUND_NULL", queue.roll_next_file(offset), low, high)
    slab, begin, stop = place
    return reader.read(
        slab,
        begin,
        stop,
        UNIT,
        view,
        fetch,
        offset,
        offset,
        low,
        high,
        count,
        max_bytes,
        last,
        codes,
        resolve,
        program,
        admit,
    )
