"""Which records become rows, and which rows: the plain twin of the compiled selection and decoder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from penstock.format.batch import batch_span, unwrap_inner_batch
from penstock.format.malformed import Malformed
from penstock.format.record import RecordFields
from penstock.message.sysflag import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAG,
    TRANSACTION_ROLLBACK_TYPE,
    has_queue_unit,
    transaction_type,
)

FILLER_TOPIC = "PENSTOCK_FILLER"

QueueExtent = tuple[int, int, int, int]
"""Queue offsets [start, end) whose units point to [low, high) of the log."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is wanted; None: no such condition. As ``_native.selection.Selection`` has it."""

    queues: dict[tuple[str, int], QueueExtent] | None = None
    topics: Collection[str] | None = None
    matches: Callable[[str], bool] | None = None
    queued: bool = False
    tags: Collection[str] | None = None
    keys: Collection[str] | None = None
    since: int | None = None
    until: int | None = None

    def takes(self, record: RecordFields) -> bool:
        """Whether a record is wanted, its queue offset aside."""
        kind = transaction_type(record.sys_flag)
        if kind == TRANSACTION_ROLLBACK_TYPE and record.topic == FILLER_TOPIC:
            return False
        if self.queued and not has_queue_unit(record.sys_flag):
            return False
        extent = (self.queues or {}).get((record.topic, record.queue_id))
        if extent is not None:
            if not extent[2] <= record.physical_offset < extent[3]:
                return False
        elif self.topics is not None or self.matches is not None:
            named = record.topic in (self.topics or ())
            if not named and not (self.matches is not None and self.matches(record.topic)):
                return False
        elif self.queues is not None:
            return False
        if self.since is not None and record.store_timestamp < self.since:
            return False
        if self.until is not None and record.store_timestamp >= self.until:
            return False
        if self.tags is not None and (record.tags or "") not in self.tags:
            return False
        words = {record.unique_key, *(record.keys or "").split(" ")} - {None, ""}
        return self.keys is None or bool(words & set(self.keys))


def select_rows(
    records: Iterable[RecordFields], choice: Choice, *, unwrap: bool = True
) -> list[RecordFields]:
    """A record for each row: wanted ones in order, the messages of an inner batch one by one.

    In ``queued`` mode a record whose place in its queue is taken already is left out.
    """
    found: list[RecordFields] = []
    following: dict[tuple[str, int], int] = {}
    for record in records:
        if not choice.takes(record):
            continue
        key = (record.topic, record.queue_id)
        extent = (choice.queues or {}).get(key)
        low, high = (extent[0], extent[1]) if extent is not None else (-(2**63), 2**63)
        if choice.queued:
            low = max(low, following.get(key, low))
        for row in _messages(record) if unwrap else [record]:
            if low <= row.queue_offset < high:
                found.append(row)
                if extent is not None:
                    following[key] = max(following.get(key, 0), row.queue_offset + 1)
    return found


def _messages(record: RecordFields) -> list[RecordFields]:
    if not record.sys_flag & INNER_BATCH_FLAG or record.sys_flag & COMPRESSED_FLAG or not record.body:
        return [record]
    base, _ = batch_span(record)
    try:
        inner = unwrap_inner_batch(record)
    except Malformed:
        return [record]
    return [
        replace(
            record,
            queue_offset=base + number,
            body=message.body,
            properties_bytes=message.properties_bytes,
            flag=message.flag,
        )
        for number, message in enumerate(inner)
    ]
