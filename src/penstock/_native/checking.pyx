"""Verification of a run of records: each against its queue's unit and its index entries, without Python per record.

`Checker.run` stops and says why whenever something only Python can do is needed (units or entries to read) or something
does not fit; the caller acts and calls again. What is expected of a record is what format.dispatch says of it.
Plain twin: format.checking.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp

from penstock._native.checkedqueue cimport CheckedQueue, CheckedState
from penstock._native.endian cimport get32, get64, put32, put64
from penstock._native.index cimport index_hash
from penstock._native.queue cimport UNIT, queue_hash
from penstock._native.record cimport (
    CHECK_CRC, CHECK_OFFSET, CHECK_PROPERTY_CRC, CHECK_TORN, CRC_RESERVED, REC_OK, SYS_PREPARED, SYS_ROLLBACK,
    SYS_TRANSACTION, Properties, Record, check_record, hash_text, parse_number, parse_record, penstock_crc_setup,
    scan_properties,
)

penstock_crc_setup()

cdef enum:
    ENTRY = 20
    MAX_LEVELS = 64

DONE, STOP, NEED_QUEUE, NEED_UNITS, UNIT_DIFFERS, OUT_OF_ORDER, SPECIAL, LIGHT, NEED_ENTRIES, ENTRY_DIFFERS, ENTRY_LOST = range(11)

cdef enum:
    C_DONE = 0
    C_STOP = 1
    C_NEED_QUEUE = 2
    C_NEED_UNITS = 3
    C_UNIT_DIFFERS = 4
    C_OUT_OF_ORDER = 5
    C_SPECIAL = 6
    C_LIGHT = 7
    C_NEED_ENTRIES = 8
    C_ENTRY_DIFFERS = 9
    C_ENTRY_LOST = 10

STOPS = ("end", "blank", "zero", "magic", "length", "crc", "offset", "short", "torn")

cdef const char* CRC_NAME = b"__CRC32#\x01"
cdef const char* FILLER = b"PENSTOCK_FILLER"


cdef bint is_crc_name(const uint8_t* p) noexcept nogil:
    """Whether a whole-record CRC begins here. A flipped bit in its own name does not hide it."""
    cdef int i, bits = 0
    cdef uint8_t wrong
    for i in range(9):
        wrong = p[i] ^ <uint8_t> CRC_NAME[i]
        if wrong & (wrong - 1):
            return False
        bits += wrong != 0
    return bits <= 1


cdef class Checker:
    """Steps over records. `position` is that of the next record in the buffer of the current run."""

    cdef CheckedState** table
    cdef uint32_t table_mask
    cdef uint32_t table_used
    cdef CheckedState* last
    cdef list queues                # keeps the states alive
    cdef int64_t delays[MAX_LEVELS]
    cdef int32_t levels
    cdef readonly int64_t position
    cdef readonly int64_t records
    cdef readonly int64_t fillers
    cdef readonly int64_t last_position
    cdef readonly int64_t last_store_timestamp
    cdef int reason
    cdef Record record
    cdef CheckedState* queue
    cdef int stage                  # 0 record, 1 unit, 2 light queues, 3 entries of the current record
    cdef int64_t log_begin
    # The index: entries of one file from `entry_number` on.
    cdef const uint8_t[::1] entries
    cdef int64_t entry_count
    cdef int64_t entry_at
    cdef readonly int64_t entry_number
    cdef int64_t entry_begin_timestamp
    cdef bint indexing              # there are entries to come
    cdef bint indexed               # there were entries: a key without one is missing
    cdef int32_t* hashes
    cdef uint8_t* matched
    cdef int32_t hash_room
    cdef int32_t hash_count
    cdef int32_t tag_hash           # number of the hash that is the tags' own, -1 if none
    cdef readonly int64_t entries_checked
    cdef readonly int64_t keys_missing
    cdef readonly int64_t tags_missing
    cdef readonly int64_t first_key_missing
    cdef readonly int64_t last_key_missing

    def __cinit__(self, list delays not None, int64_t log_begin):
        cdef int i
        self.table_mask = 255
        self.table = <CheckedState**> calloc(256, sizeof(CheckedState*))
        self.hash_room = 64
        self.hashes = <int32_t*> malloc(64 * sizeof(int32_t))
        self.matched = <uint8_t*> malloc(64)
        if self.table == NULL or self.hashes == NULL or self.matched == NULL:
            raise MemoryError()
        self.queues = []
        self.levels = <int32_t> min(len(delays), MAX_LEVELS - 1)
        for i in range(self.levels):
            self.delays[i] = delays[i]
        self.log_begin = log_begin
        self.first_key_missing = self.last_key_missing = -1

    def __dealloc__(self):
        free(self.table)
        free(self.hashes)
        free(self.matched)

    def add_queue(self, CheckedQueue queue not None):
        """Make a queue known that a run asked for."""
        cdef CheckedState** old = self.table
        cdef uint32_t i, old_mask = self.table_mask
        if self.table_used * 2 > self.table_mask:
            self.table = <CheckedState**> calloc((old_mask + 1) * 2, sizeof(CheckedState*))
            if self.table == NULL:
                self.table = old
                raise MemoryError()
            self.table_mask = old_mask * 2 + 1
            for i in range(old_mask + 1):
                if old[i] != NULL:
                    self.insert(old[i])
            free(old)
        self.insert(&queue.state)
        self.table_used += 1
        self.queues.append(queue)

    cdef void insert(self, CheckedState* q) noexcept nogil:
        cdef uint32_t i = q.table_hash & self.table_mask
        while self.table[i] != NULL:
            i = (i + 1) & self.table_mask
        self.table[i] = q

    cdef CheckedState* find(self, const uint8_t* topic, int32_t length, int32_t queue_id) noexcept nogil:
        cdef CheckedState* q = self.last
        cdef uint32_t h, i
        if q != NULL and q.queue_id == queue_id and q.topic_length == length and memcmp(q.topic, topic, length) == 0:
            return q
        h = queue_hash(topic, length, queue_id)
        i = h & self.table_mask
        while self.table[i] != NULL:
            q = self.table[i]
            if q.table_hash == h and q.queue_id == queue_id and q.topic_length == length and memcmp(q.topic, topic, length) == 0:
                self.last = q
                return q
            i = (i + 1) & self.table_mask
        return NULL

    def set_entries(self, const uint8_t[::1] entries, int64_t first_number, int64_t begin_timestamp):
        """Index entries that come next; None: there are no more."""
        self.entry_at = 0
        if entries is None:
            self.indexing = False
            self.entry_count = 0
            return
        self.indexing = self.indexed = True
        self.entries = entries
        self.entry_count = entries.shape[0] // ENTRY
        self.entry_number = first_number
        self.entry_begin_timestamp = begin_timestamp

    cdef int64_t tags_code(self, const uint8_t* topic, const Record* r, const Properties* properties) noexcept nogil:
        cdef int64_t level
        if properties.delay.length > 0 and r.topic_length == 19 and memcmp(topic, b"SCHEDULE_TOPIC_XXXX", 19) == 0:
            level = parse_number(properties.delay, 0)
            if level > self.levels:
                level = self.levels
            if level > 0:
                return r.store_timestamp + self.delays[level - 1]
        if properties.tags.length > 0:
            return <int64_t> <int32_t> hash_text(0, properties.tags.at, properties.tags.length)
        return 0

    cdef int check_unit(self, CheckedState* q, const uint8_t* p, const Record* r, const Properties* properties) noexcept nogil:
        """Compare the record's unit; C_DONE when the queue part is finished, missing units included."""
        cdef const uint8_t* unit
        cdef uint8_t expected[UNIT]
        cdef int64_t number
        if q.first < 0:
            q.first = q.next = r.queue_offset
        if r.queue_offset != q.next:
            return C_OUT_OF_ORDER
        number = r.queue_offset - q.window_from
        if q.units == NULL or number < 0 or number >= q.window_count:
            if not q.ended:
                return C_NEED_UNITS
            unit = NULL
        else:
            unit = q.units + number * UNIT
            if get32(unit + 8) == 0 and get64(unit) == 0 and get64(unit + 12) == 0:
                unit = NULL
        if unit == NULL:
            if q.missing == 0:
                q.first_missing = r.queue_offset
            q.missing += 1
        else:
            put64(expected, r.physical_offset)
            put32(expected + 8, r.size)
            put64(expected + 12, self.tags_code(p + r.topic_at, r, properties))
            if memcmp(expected, unit, UNIT) != 0:
                return C_UNIT_DIFFERS
            q.checked += 1
        q.next += 1
        return C_DONE

    cdef bint want_hash(self, uint32_t text_hash) noexcept nogil:
        cdef int32_t* hashes
        cdef uint8_t* matched
        if self.hash_count == self.hash_room:
            # At most one hash for two bytes of properties: bounded by their own limit.
            hashes = <int32_t*> realloc(self.hashes, 2 * self.hash_room * sizeof(int32_t))
            if hashes == NULL:
                return False
            self.hashes = hashes
            matched = <uint8_t*> realloc(self.matched, 2 * self.hash_room)
            if matched == NULL:
                return False
            self.matched = matched
            self.hash_room *= 2
        self.hashes[self.hash_count] = index_hash(text_hash)
        self.matched[self.hash_count] = 0
        self.hash_count += 1
        return True

    cdef void want_hashes(self, uint32_t prefix, const Properties* properties) noexcept nogil:
        """The hashes under which the record is indexed, in dispatch's order."""
        cdef int32_t start, at = 0
        cdef const uint8_t* keys = properties.keys.at
        self.hash_count = 0
        self.tag_hash = -1
        if properties.unique_key.length > 0:
            if not self.want_hash(hash_text(prefix, properties.unique_key.at, properties.unique_key.length)):
                return
        while at < properties.keys.length:
            start = at
            while at < properties.keys.length and keys[at] != 32:
                at += 1
            if at > start and not self.want_hash(hash_text(prefix, keys + start, at - start)):
                return
            at += 1
        if properties.tags.length > 0:
            self.tag_hash = self.hash_count
            self.want_hash(hash_text(hash_text(prefix, b"T#", 2), properties.tags.at, properties.tags.length))

    cdef bint is_wanted(self, int32_t key_hash) noexcept nogil:
        """Whether the record has a key of this hash; marks the first one that had no entry yet."""
        cdef int32_t i, known = -1
        for i in range(self.hash_count):
            if self.hashes[i] == key_hash:
                if not self.matched[i]:
                    self.matched[i] = 1
                    return True
                known = i
        return known >= 0

    cdef int check_entries(self, const Record* r) noexcept nogil:
        """Consume the entries up to this record."""
        cdef const uint8_t* e
        cdef int64_t offset, expected, seconds
        cdef int32_t i
        while self.indexing:
            if self.entry_at >= self.entry_count:
                return C_NEED_ENTRIES
            e = &self.entries[0] + self.entry_at * ENTRY
            offset = get64(e + 4)
            if offset > r.physical_offset:
                if self.entry_at + 1 < self.entry_count and get64(e + ENTRY + 4) <= r.physical_offset:
                    return C_ENTRY_LOST   # offsets only grow: this one is wrong
                break
            if offset < r.physical_offset:
                if offset >= self.log_begin or offset < 0:
                    return C_ENTRY_LOST
            else:
                seconds = get32(e + 12)
                expected = 0
                if self.entry_begin_timestamp > 0 and r.store_timestamp > self.entry_begin_timestamp:
                    expected = (r.store_timestamp - self.entry_begin_timestamp) // 1000
                # The first entry of a file counts from the end of the file before it (spec 10.3).
                if self.entry_number + self.entry_at == 1 and seconds >= 0:
                    seconds = expected
                if not self.is_wanted(get32(e)) or seconds != expected:
                    return C_ENTRY_DIFFERS
                self.entries_checked += 1
            self.entry_at += 1
        for i in range(self.hash_count):
            if not self.matched[i]:
                if i == self.tag_hash:
                    self.tags_missing += 1
                else:
                    self.keys_missing += 1
                    if self.first_key_missing < 0:
                        self.first_key_missing = r.physical_offset
                    self.last_key_missing = r.physical_offset
        return C_DONE

    cdef int step(self, const uint8_t* p, int64_t available, int64_t offset) noexcept nogil:
        cdef Record* r = &self.record
        cdef Properties properties
        cdef int code, kind
        cdef uint32_t prefix
        if self.stage == 0:
            code = parse_record(p, available, r)
            if code == REC_OK:
                code = check_record(p, r, offset, CHECK_CRC | CHECK_OFFSET | CHECK_TORN)
                if code == REC_OK and r.properties_length >= CRC_RESERVED and is_crc_name(p + r.size - CRC_RESERVED):
                    code = check_record(p, r, offset, CHECK_PROPERTY_CRC)
            if code != REC_OK:
                self.reason = code
                return C_STOP
            self.stage = 1
        scan_properties(p + r.properties_at, r.properties_length, &properties)
        kind = r.sys_flag & SYS_TRANSACTION
        self.queue = self.find(p + r.topic_at, r.topic_length, r.queue_id)
        if self.stage == 1:
            if kind != SYS_PREPARED and kind != SYS_ROLLBACK:
                if self.queue == NULL:
                    return C_NEED_QUEUE
                if self.queue.special:
                    return C_SPECIAL
                code = self.check_unit(self.queue, p, r, &properties)
                if code != C_DONE:
                    return code
                self.stage = 2
                if properties.multi_dispatch.length > 0:
                    return C_LIGHT
            elif kind == SYS_ROLLBACK and r.topic_length <= 15 and memcmp(p + r.topic_at, FILLER, r.topic_length) == 0:
                self.fillers += 1
            self.stage = 2
        if self.stage == 2:
            self.hash_count = 0
            if self.indexed and kind != SYS_ROLLBACK:
                if self.queue != NULL:
                    prefix = self.queue.prefix_hash
                else:
                    prefix = hash_text(hash_text(0, p + r.topic_at, r.topic_length), b"#", 1)
                self.want_hashes(prefix, &properties)
            self.stage = 3
        code = self.check_entries(r)
        if code != C_DONE:
            return code
        self.stage = 0
        return C_DONE

    def begin(self):
        """A new run: its buffer starts with a record."""
        self.position = 0
        self.stage = 0
        self.last_position = -1
        self.last_store_timestamp = 0
        self.reason = 0

    def run(self, const uint8_t[::1] buffer not None, int64_t base_offset):
        """Check records from `position` on. DONE, STOP (see `stop`), or what is needed to go on."""
        cdef int64_t n = buffer.shape[0]
        cdef int code = C_DONE
        cdef const uint8_t* p
        if n == 0 or self.position >= n:
            return C_DONE
        p = &buffer[0]
        with nogil:
            while self.position < n:
                code = self.step(p + self.position, n - self.position, base_offset + self.position)
                if code != C_DONE:
                    break
                self.records += 1
                self.last_position = self.position
                if self.record.store_timestamp > self.last_store_timestamp:
                    self.last_store_timestamp = self.record.store_timestamp
                self.position += self.record.size
        return code

    def queue_part_done(self, bint found=True):
        """The caller dealt with the record's unit."""
        if self.stage == 1:
            if self.queue != NULL and not self.queue.special:
                if found:
                    self.queue.checked += 1
                self.queue.next += 1
            self.stage = 2

    def skip_unit(self):
        """Leave the record's unit unchecked and its queue where it is."""
        self.stage = 2

    def skip_entry(self):
        """Step over an entry that was told of."""
        self.entry_at += 1

    @property
    def entry(self):
        """(number in its file, hash, physical offset, seconds) of the entry that is looked at."""
        cdef const uint8_t* e = &self.entries[0] + self.entry_at * ENTRY
        return self.entry_number + self.entry_at, get32(e), get64(e + 4), get32(e + 12)

    def rest_of_entries(self):
        """How many entries of this window were not looked at."""
        return self.entry_count - self.entry_at

    @property
    def needed_queue(self):
        return None if self.queue == NULL else <CheckedQueue> self.queue.owner

    @property
    def stop(self):
        return STOPS[self.reason]

    @property
    def stop_length(self):
        return self.record.size

    @property
    def record_size(self):
        return self.record.size

    @property
    def record_queue(self):
        """(topic position, topic length, queue id, queue offset) of the current record."""
        return self.record.topic_at, self.record.topic_length, self.record.queue_id, self.record.queue_offset

    @property
    def record_store_timestamp(self):
        return self.record.store_timestamp
