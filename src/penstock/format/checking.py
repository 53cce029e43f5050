"""Verification of a run of records: each against its queue's unit and its index entries.

``Checker.run`` stops and says why whenever units or entries have to be read, or something does not fit; the
caller acts and calls again. What is expected of a record is what ``penstock.format.dispatch`` says of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from penstock.format.checkedqueue import CheckedQueue
from penstock.format.dispatch import index_keys
from penstock.format.indexfile import INDEX_ENTRY_SIZE, IndexEntry, decode_index_entry
from penstock.format.javahash import key_hash
from penstock.format.malformed import Buffer
from penstock.format.queueunit import QUEUE_UNIT_SIZE, QueueUnit, encode_queue_unit, tags_code
from penstock.format.record import CRC32_RESERVED_LENGTH, RecordFields, check_record, decode_record
from penstock.format.walk import Stop, walk
from penstock.message.properties import PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_TAGS
from penstock.message.sysflag import has_index_entry, has_queue_unit

DONE, STOP, NEED_QUEUE, NEED_UNITS, UNIT_DIFFERS, OUT_OF_ORDER = range(6)
SPECIAL, LIGHT, NEED_ENTRIES, ENTRY_DIFFERS, ENTRY_LOST = range(6, 11)
RECORD, UNIT, KEYS, ENTRIES = range(4)
"""What of the current record is looked at next."""

_CRC_NAME = b"__CRC32#\x01"
_FILLER = b"PENSTOCK_FILLER"
_EMPTY = bytes(QUEUE_UNIT_SIZE)


class Checker:
    """Steps over records. ``position`` is that of the next record in the buffer of the current run."""

    def __init__(self, delays: Sequence[int], log_begin: int) -> None:
        self._delays = delays
        self._log_begin = log_begin
        self._queues: dict[tuple[bytes, int], CheckedQueue] = {}
        self.position = 0
        self.records = self.fillers = 0
        self.last_position, self.last_store_timestamp = -1, 0
        self.stop: Stop = "end"
        self.needed_queue: CheckedQueue | None = None
        self._record: RecordFields | None = None
        self._stage = RECORD
        self._entries: Buffer = b""
        self._entry_at = self._begin_timestamp = 0
        self._indexing = self._indexed = False
        self._hashes: list[int] = []
        self._matched: list[bool] = []
        self._tags_hash = -1
        self.entry_number = 0
        self.entries_checked = self.keys_missing = self.tags_missing = 0
        self.first_key_missing = self.last_key_missing = -1

    def add_queue(self, queue: CheckedQueue) -> None:
        """Make a queue known that a run asked for."""
        self._queues[queue.encoded, queue.queue_id] = queue

    def set_entries(self, entries: Buffer | None, first_number: int, begin_timestamp: int) -> None:
        """Index entries that come next; None: there are no more."""
        self._entry_at = 0
        if entries is None:
            self._indexing, self._entries = False, b""
            return
        self._indexing = self._indexed = True
        self._entries, self.entry_number, self._begin_timestamp = entries, first_number, begin_timestamp

    def begin(self) -> None:
        """A new run: its buffer starts with a record."""
        self.position, self._stage, self.stop = 0, RECORD, "end"
        self.last_position, self.last_store_timestamp = -1, 0

    def run(self, buffer: Buffer, base_offset: int) -> int:
        """Check records from ``position`` on. DONE, STOP (see ``stop``), or what is needed to go on."""
        while self.position < len(buffer):
            code = self._step(buffer, base_offset)
            if code != DONE:
                return code
            record = cast(RecordFields, self._record)
            self.records += 1
            self.last_position = self.position
            self.last_store_timestamp = max(self.last_store_timestamp, record.store_timestamp)
            self.position += record.total_size
        return DONE

    def _step(self, buffer: Buffer, base_offset: int) -> int:
        if self._stage == RECORD:
            if not self._read(buffer, base_offset):
                return STOP
            self._stage = UNIT
        record = cast(RecordFields, self._record)
        self.needed_queue = self._queues.get((record.topic_bytes, record.queue_id))
        if self._stage == UNIT:
            code = self._check_queue(record)
            if code != DONE:
                return code
            self._stage = KEYS
        if self._stage == KEYS:
            self._want_hashes(record)
            self._stage = ENTRIES
        code = self._check_entries(record)
        if code == DONE:
            self._stage = RECORD
        return code

    def _read(self, buffer: Buffer, base_offset: int) -> bool:
        """Whether a whole record stands at the position; if not, ``stop`` says why."""
        rest = bytes(buffer[self.position :])
        at = base_offset + self.position
        size = int.from_bytes(rest[:4], "big", signed=True)
        one = rest[:size] if 0 < size <= len(rest) else rest
        found = walk(one, 0, len(one), at, check_torn=True)
        if not found.records:
            self.stop = found.stop
            return False
        record = decode_record(one)
        if (
            _has_crc(record.properties_bytes)
            and not check_record(one, 0, len(one), check_property_crc=True)[1]
        ):
            self.stop = "crc"
            return False
        self._record = record
        return True

    # -- its queue ---------------------------------------------------------------------------------

    def _check_queue(self, record: RecordFields) -> int:
        if not has_queue_unit(record.sys_flag):
            if not has_index_entry(record.sys_flag) and _FILLER.startswith(record.topic_bytes):
                self.fillers += 1
            return DONE
        queue = self.needed_queue
        if queue is None:
            return NEED_QUEUE
        if queue.special:
            return SPECIAL
        code = self._check_unit(queue, record)
        if code == DONE and record.properties.get(PROPERTY_INNER_MULTI_DISPATCH):
            self._stage = KEYS
            return LIGHT
        return code

    def _check_unit(self, queue: CheckedQueue, record: RecordFields) -> int:
        """Compare the record's unit; DONE when the queue part is finished, missing units included."""
        if queue.first < 0:
            queue.first = queue.next = record.queue_offset
        if record.queue_offset != queue.next:
            return OUT_OF_ORDER
        unit = queue.unit(record.queue_offset)
        if unit is None and not queue.ended:
            return NEED_UNITS
        if unit is None or unit == _EMPTY:
            if queue.missing == 0:
                queue.first_missing = record.queue_offset
            queue.missing += 1
        else:
            code = tags_code(record.topic, record.properties, record.store_timestamp, self._delays)
            if unit != encode_queue_unit(QueueUnit(record.physical_offset, record.total_size, code)):
                return UNIT_DIFFERS
            queue.checked += 1
        queue.next += 1
        return DONE

    def queue_part_done(self, found: bool = True) -> None:
        """The caller dealt with the record's unit."""
        if self._stage == UNIT:
            queue = self.needed_queue
            if queue is not None and not queue.special:
                queue.checked += found
                queue.next += 1
            self._stage = KEYS

    def skip_unit(self) -> None:
        """Leave the record's unit unchecked and its queue where it is."""
        self._stage = KEYS

    # -- its index entries -------------------------------------------------------------------------

    def _want_hashes(self, record: RecordFields) -> None:
        """The hashes under which the record is indexed, in dispatch's order: its tags come last."""
        self._hashes, self._tags_hash = [], -1
        if self._indexed and has_index_entry(record.sys_flag):
            self._hashes = [key_hash(text) for text in index_keys(record)]
            if record.properties.get(PROPERTY_TAGS):
                self._tags_hash = len(self._hashes) - 1
        self._matched = [False] * len(self._hashes)

    def _check_entries(self, record: RecordFields) -> int:
        """Consume the entries up to this record."""
        place = record.physical_offset
        while self._indexing:
            if self.rest_of_entries() <= 0:
                return NEED_ENTRIES
            entry = self._entry(self._entry_at)
            if entry.physical_offset > place:
                following = self._entry(self._entry_at + 1) if self.rest_of_entries() > 1 else None
                if following is not None and following.physical_offset <= place:
                    return ENTRY_LOST  # offsets only grow: this one is wrong
                break
            if entry.physical_offset == place:
                if not self._goes_with(entry, record):
                    return ENTRY_DIFFERS
                self.entries_checked += 1
            elif entry.physical_offset >= self._log_begin or entry.physical_offset < 0:
                return ENTRY_LOST
            self._entry_at += 1
        for number, matched in enumerate(self._matched):
            if matched:
                continue
            if number == self._tags_hash:
                self.tags_missing += 1
            else:
                self.keys_missing += 1
                self.last_key_missing = place
                self.first_key_missing = place if self.first_key_missing < 0 else self.first_key_missing
        return DONE

    def _goes_with(self, entry: IndexEntry, record: RecordFields) -> bool:
        """Whether the record has such a key and time; marks the first such key that had no entry yet."""
        if entry.key_hash not in self._hashes:
            return False
        for number, hashed in enumerate(self._hashes):
            if hashed == entry.key_hash and not self._matched[number]:
                self._matched[number] = True
                break
        elapsed = 0
        if self._begin_timestamp > 0:
            elapsed = max(0, record.store_timestamp - self._begin_timestamp) // 1000
        # The first entry of a file counts from the end of the file before it (spec 10.3).
        is_first = self.entry_number + self._entry_at == 1
        return entry.seconds == elapsed or (is_first and entry.seconds >= 0)

    def _entry(self, number: int) -> IndexEntry:
        return decode_index_entry(self._entries, number * INDEX_ENTRY_SIZE)

    @property
    def entry(self) -> tuple[int, int, int, int]:
        """(number in its file, hash, physical offset, seconds) of the entry that is looked at."""
        entry = self._entry(self._entry_at)
        return self.entry_number + self._entry_at, entry.key_hash, entry.physical_offset, entry.seconds

    def skip_entry(self) -> None:
        """Step over an entry that was told of."""
        self._entry_at += 1

    def rest_of_entries(self) -> int:
        """How many entries of this window were not looked at."""
        return len(self._entries) // INDEX_ENTRY_SIZE - self._entry_at

    # -- the record --------------------------------------------------------------------------------

    @property
    def record_size(self) -> int:
        return cast(RecordFields, self._record).total_size

    @property
    def record_queue(self) -> tuple[int, int, int, int]:
        """(topic position, topic length, queue id, queue offset) of the current record."""
        record = cast(RecordFields, self._record)
        behind_topic = 2 + len(record.properties_bytes)
        start = record.total_size - behind_topic - len(record.topic_bytes)
        return start, len(record.topic_bytes), record.queue_id, record.queue_offset


def _has_crc(properties: bytes) -> bool:
    """Whether properties end in a whole-record CRC. A flipped bit in its own name does not hide it."""
    name = properties[-CRC32_RESERVED_LENGTH:][: len(_CRC_NAME)]
    wrong = int.from_bytes(name, "big") ^ int.from_bytes(_CRC_NAME, "big")
    return len(properties) >= CRC32_RESERVED_LENGTH and wrong.bit_count() <= 1
