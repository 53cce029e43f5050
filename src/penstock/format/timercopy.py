"""Timer messages whose time has come, as the records of the places they belong to (store format, 15.7)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence, Set

from penstock.format.malformed import Buffer, Malformed
from penstock.format.record import RecordFields, decode_record, encode_record
from penstock.message.properties import (
    PROPERTY_CRC32,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_NUM,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    encode_properties,
)
from penstock.message.sysflag import INNER_BATCH_FLAG
from penstock.message.topic import PROPERTIES_MAX_LENGTH


def copy_due(
    records: Sequence[Buffer | None],
    times: Sequence[int],
    held: bytes,
    now: int,
    roll: bool,
    deleted: Set[bytes],
    max_body: int,
    max_record: int,
    most_bytes: int,
) -> tuple[bytearray, array[int], array[int], list[tuple[str, int]]]:
    """Copies of timer messages for where they belong: the records, where each begins, the real queue of each
    as a number, and the real queues.

    Records of the topic ``held``; their enqueue times are ``times``, they leave the wheel ``now``. With
    ``roll`` they go back to queue 0 of that topic. What a record of a log is given by its place is zero. Ends
    before the first one that is not plain (no record or one of another topic, without a place, an inner
    batch, one that deletes another, too long), that has a key among ``deleted``, and after ``most_bytes``.
    """
    made, begins, slots = bytearray(), array("q"), array("i")
    queues: dict[tuple[str, int], int] = {}
    for data, time in zip(records, times, strict=False):
        record = None if data is None else _read(data, held, max_body)
        if record is None or len(made) >= most_bytes or time < 0:
            break
        properties = record.properties
        place = properties[PROPERTY_REAL_TOPIC], _small_number(properties[PROPERTY_REAL_QUEUE_ID])
        key = (record.unique_key or "").encode()
        if key and (key in deleted or place[0].encode() + b"+" + key in deleted):
            break
        if roll:
            times_rolled = _small_number(properties.get(PROPERTY_TIMER_ROLL_TIMES, "0"))
        elif PROPERTY_TIMER_DEL_UNIQKEY in properties:
            break
        properties.pop(PROPERTY_CRC32, None)
        properties[PROPERTY_TIMER_ENQUEUE_MS] = str(time)
        properties[PROPERTY_TIMER_DEQUEUE_MS] = str(now)
        if roll:
            properties[PROPERTY_TIMER_ROLL_TIMES] = str(times_rolled + 1)
        text = encode_properties(properties)
        if len(text) > PROPERTIES_MAX_LENGTH:
            break
        copy = _copy(record, (held.decode(), 0) if roll else place, text)
        if len(copy) > max_record:
            break
        begins.append(len(made))
        slots.append(queues.setdefault(place, len(queues)))
        made += copy
    return made, begins, slots, list(queues)


def _read(data: Buffer, held: bytes, max_body: int) -> RecordFields | None:
    """A plain record of the topic ``held`` with a place that it belongs to, else None."""
    try:
        record = decode_record(data)
    except Malformed:
        return None
    if record.total_size != len(data) or record.topic_bytes != held or record.sys_flag & INNER_BATCH_FLAG:
        return None
    properties = record.properties
    if PROPERTY_INNER_NUM in properties or PROPERTY_INNER_MULTI_DISPATCH in properties:
        return None
    if not properties.get(PROPERTY_REAL_TOPIC) or len(record.body) > max_body:
        return None
    numbers = (properties.get(PROPERTY_REAL_QUEUE_ID, ""), properties.get(PROPERTY_TIMER_ROLL_TIMES, "0"))
    return record if all(_small_number(number) >= 0 for number in numbers) else None


def _copy(record: RecordFields, place: tuple[str, int], properties: bytes) -> bytes:
    return encode_record(
        place[0],
        record.body,
        properties,
        queue_id=place[1],
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        queue_offset=0,
        physical_offset=0,
        store_timestamp=0,
    )


def _small_number(text: str) -> int:
    """Up to nine digits and nothing else; -1 for whatever else there is."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else -1
