"""Queue units that the compiled dispatcher leaves to Python: batch queues, extension files, light queues."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock._native.units import record_header
from penstock.config import StoreConfig
from penstock.errors import StoreError
from penstock.format.batch import batch_span
from penstock.format.dispatch import light_queues
from penstock.format.extunit import is_ext_address
from penstock.format.queueunit import tags_code
from penstock.format.record import RecordFields
from penstock.message.sysflag import has_queue_unit
from penstock.store.batchconsumequeue import BatchConsumeQueue
from penstock.store.consumequeue import UNIT, ConsumeQueue
from penstock.store.consumequeueext import align
from penstock.store.queuetable import QueueKey, QueueTable, legal_queue

log = logging.getLogger("penstock.store")

FilterBitmap = Callable[[RecordFields], bytes | None]
"""The filter bitmap of a record, whose body is left empty."""

FAR = 1000
"""A queue offset more than so many files ahead of the end is damage, not a gap to be filled."""


class SpecialDispatch:
    """Puts the units of one record. Putting it again, after a failure or in recovery, changes nothing."""

    def __init__(self, queues: QueueTable, config: StoreConfig) -> None:
        self.queues = queues
        self.config = config
        self.filter_bitmap: FilterBitmap | None = None
        self._delays = config.delay_levels_ms
        # Where each queue ended when its extension last agreed with it: anything else means that one was cut.
        self._aligned: dict[QueueKey, int] = {}
        # An extension unit whose queue unit could not be written: the next try must not put it again.
        self._pending: tuple[QueueKey, int, int] | None = None

    def put(self, record: memoryview, position: int) -> None:
        """Dispatch the record at the start of ``record`` to its queues; it lies at ``position`` in the log.

        OSError or StoreError when the disk refuses; the same call can be repeated.
        """
        fields = _fields(record, position)
        if not has_queue_unit(fields.sys_flag):
            return
        code = tags_code(fields.topic, fields.properties, fields.store_timestamp, self._delays)
        queue = self.queues.get(fields.topic, fields.queue_id)
        if isinstance(queue, BatchConsumeQueue):
            base, count = batch_span(fields)
            queue.put(position, fields.total_size, code, fields.store_timestamp, base, count)
            return
        if not _is_far(queue, fields.queue_offset):
            if self.config.enable_consume_queue_ext:
                self._put_extended(queue, fields, code)
            else:
                queue.put_message_position_info(position, fields.total_size, code, fields.queue_offset)
            queue.detach()
        if self.config.enable_multi_dispatch:
            self._put_light(fields, code)

    def _put_extended(self, queue: ConsumeQueue, fields: RecordFields, code: int) -> None:
        place, size = fields.physical_offset, fields.total_size
        known = place + size <= queue.max_physical_offset or fields.queue_offset < queue.max_offset
        if not known:
            code = self._address(queue, fields, code)
        queue.put_message_position_info(place, size, code, fields.queue_offset)
        self._pending = None
        if not known:
            self._aligned[queue.topic, queue.queue_id] = queue.max_offset

    def _address(self, queue: ConsumeQueue, fields: RecordFields, code: int) -> int:
        """Put the extension unit; its address, or the tags code itself when there is none."""
        key = (queue.topic, queue.queue_id)
        if self._pending is not None and self._pending[:2] == (key, fields.physical_offset):
            return self._pending[2]
        ext = self.queues.extension(*key)
        if self._aligned.get(key) != queue.max_offset:
            align(queue, ext)
            self._aligned[key] = queue.max_offset
        bitmap = self.filter_bitmap(fields) if self.filter_bitmap is not None else None
        address = ext.put(code, fields.store_timestamp, bitmap)
        if not is_ext_address(address):
            return code
        self._pending = (key, fields.physical_offset, address)
        return address

    def _put_light(self, fields: RecordFields, code: int) -> None:
        """One unit more for each light queue that the record names, at the offset that it names."""
        for name, queue_id, offset in light_queues(fields):
            if not legal_queue(name, queue_id):
                continue
            queue = self.queues.get(name, queue_id)
            if isinstance(queue, BatchConsumeQueue) or _is_far(queue, offset):
                continue
            queue.put_message_position_info(fields.physical_offset, fields.total_size, code, offset)
            # There may be a million light queues: none keeps its file.
            queue.detach()


def _is_far(queue: ConsumeQueue, offset: int) -> bool:
    ahead = offset * UNIT - queue.native.max_logic
    if (queue.files and ahead > queue.file_size * FAR) or offset * UNIT >= 1 << 62:
        log.error("%s: no unit for queue offset %d, so far from %d", queue.folder, offset, queue.max_offset)
        return True
    return False


def _fields(record: memoryview, position: int) -> RecordFields:
    """What dispatching needs of a record; body and hosts are left out."""
    header = record_header(record)
    if header is None:
        raise StoreError("no whole record to dispatch", offset=position)
    size, queue_id, queue_offset, _, sys_flag, timestamp, _, _, topic_at, topic_length, at, length = header
    return RecordFields(
        total_size=size,
        magic=0,
        body_crc=0,
        queue_id=queue_id,
        flag=0,
        queue_offset=queue_offset,
        physical_offset=position,
        sys_flag=sys_flag,
        born_timestamp=0,
        born_host="",
        store_timestamp=timestamp,
        store_host="",
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"",
        topic_bytes=bytes(record[topic_at : topic_at + topic_length]),
        properties_bytes=bytes(record[at : at + length]),
    )
