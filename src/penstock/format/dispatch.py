"""From a run of records to what the dispatcher writes: queue units and index keys.

Store format, sections 8.2, 9.2 and 10.4.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from penstock.format.batch import batch_span
from penstock.format.batchunit import BatchUnit, encode_batch_unit
from penstock.format.indexfile import INDEX_TYPE_TAGS, index_key
from penstock.format.javahash import key_hash
from penstock.format.malformed import Buffer
from penstock.format.queueunit import QueueUnit, encode_queue_unit, parse_delay_levels, tags_code
from penstock.format.record import RecordFields
from penstock.format.walk import Stop, walk
from penstock.message.properties import (
    KEY_SEPARATOR,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    parse_number,
)
from penstock.message.sysflag import has_index_entry, has_queue_unit
from penstock.message.topic import (
    LMQ_PREFIX,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    is_path_safe,
)

_DEFAULT_DELAYS = tuple(parse_delay_levels())


class UnitWrite(NamedTuple):
    """A unit to append to one consume queue; 46 bytes for a batch queue, 20 otherwise."""

    topic: str
    queue_id: int
    unit: bytes
    queue_offset: int


class IndexWrite(NamedTuple):
    """A key to put into the index."""

    key_hash: int
    physical_offset: int
    store_timestamp: int


class DispatchRun(NamedTuple):
    """What a run of records asks for, in the order of the log, and where and why the run ended."""

    units: list[UnitWrite]
    keys: list[IndexWrite]
    end_position: int
    stop: Stop


def dispatch_run(
    buffer: Buffer,
    base_offset: int,
    *,
    delays: Sequence[int] = _DEFAULT_DELAYS,
    batch_topics: Collection[str] = (),
    multi_dispatch: bool = False,
    index_tags: bool = True,
) -> DispatchRun:
    """Queue units and index keys of the records in the buffer, whose first byte is ``base_offset`` in the
    log.

    Bodies are not checked: recovery did that. A record that claims another offset ends the run.
    ``batch_topics`` have batch consume queues; ``index_tags`` adds the tags as a key, as releases from 5.5.0
    on do.
    """
    found = walk(buffer, 0, len(buffer), base_offset, check_crc=False, check_offset=True)
    units: list[UnitWrite] = []
    keys: list[IndexWrite] = []
    for record in found.records:
        if has_queue_unit(record.sys_flag):
            units += queue_writes(record, delays, batch_topics, multi_dispatch)
        if has_index_entry(record.sys_flag):
            keys += [
                IndexWrite(key_hash(key), record.physical_offset, record.store_timestamp)
                for key in index_keys(record, tags=index_tags)
            ]
    return DispatchRun(units, keys, found.end_position, found.stop)


def queue_writes(
    record: RecordFields,
    delays: Sequence[int] = _DEFAULT_DELAYS,
    batch_topics: Collection[str] = (),
    multi_dispatch: bool = False,
) -> list[UnitWrite]:
    """The units of one record: its own, and with ``multi_dispatch`` one for each light queue it names."""
    topic = record.topic
    code = tags_code(topic, record.properties, record.store_timestamp, delays)
    if topic in batch_topics:
        base, count = batch_span(record)
        batch = BatchUnit(
            record.physical_offset, record.total_size, code, record.store_timestamp, base, count
        )
        return [UnitWrite(topic, record.queue_id, encode_batch_unit(batch), base)]
    unit = encode_queue_unit(QueueUnit(record.physical_offset, record.total_size, code))
    writes = [UnitWrite(topic, record.queue_id, unit, record.queue_offset)]
    if multi_dispatch:
        writes += [UnitWrite(name, queue_id, unit, offset) for name, queue_id, offset in light_queues(record)]
    return writes


def light_queues(record: RecordFields) -> list[tuple[str, int, int]]:
    """The light queues a record goes to as (name, queue id, queue offset).

    None when the two lists disagree.
    """
    topic = record.topic
    if topic == SCHEDULE_TOPIC or topic.startswith((RETRY_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX)):
        return []
    names = record.properties.get(PROPERTY_INNER_MULTI_DISPATCH, "").split(",")
    offsets = record.properties.get(PROPERTY_INNER_MULTI_QUEUE_OFFSET, "").split(",")
    if len(names) != len(offsets):
        return []
    found: list[tuple[str, int, int]] = []
    for name, text in zip(names, offsets, strict=True):
        offset = parse_number(text, low=0)
        if offset is None:
            return []
        if is_path_safe(name):
            found.append((name, 0 if name.startswith(LMQ_PREFIX) else record.queue_id, offset))
    return found


def index_keys(record: RecordFields, *, tags: bool = True) -> list[str]:
    """The texts under which a record is indexed, in the order in which they are put."""
    topic, properties = record.topic, record.properties
    texts: list[str] = []
    unique_key = properties.get(PROPERTY_UNIQUE_KEY)
    if unique_key is not None:
        texts.append(index_key(topic, unique_key))
    texts += [index_key(topic, key) for key in properties.get(PROPERTY_KEYS, "").split(KEY_SEPARATOR) if key]
    tags_text = properties.get(PROPERTY_TAGS)
    if tags and tags_text:
        texts.append(index_key(topic, tags_text, INDEX_TYPE_TAGS))
    return texts
