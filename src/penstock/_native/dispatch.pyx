"""A run of records becomes queue units and index entries, without the interpreter lock.

`Dispatch.run` stops and says why whenever something only Python can do is needed (a new queue, a file to open, a full
index); the caller does it and calls again with the same run. Plain twin of the byte work: format.dispatch.
"""

from cython cimport final
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from posix.unistd cimport usleep

from penstock._native.filestate cimport FileState, load_position, read_position, store_position
from penstock._native.flush cimport Flusher
from penstock._native.index cimport Index, IndexState, index_hash, index_put, index_store_header
from penstock._native.mapping cimport Mapping
from penstock._native.prefetch cimport prefetch_write
from penstock._native.queue cimport (
    QUEUE_FILE, QUEUE_FULL, QUEUE_GAP, QUEUE_OK, Queue, QueueState, queue_flush, queue_hash, queue_stage,
)
from penstock._native.record cimport (
    CHECK_CRC, CHECK_OFFSET, CHECK_PROPERTY_CRC, CHECK_TORN, MAGIC_BLANK, REC_BLANK, REC_OK, SYS_INNER_BATCH, SYS_PREPARED, SYS_ROLLBACK, SYS_TRANSACTION,
    Properties, Record, Span, check_record, hash_text, parse_number, parse_record, penstock_crc_setup, scan_properties,
)
from penstock._native.signal cimport Signal
from penstock._native.threads cimport load_int, steady_ns

penstock_crc_setup()

cdef enum:
    SMALL_RUN = 1 << 17    # bytes of log
    LONG_RUN = 1 << 20
    GATHER_US = 500
    GATHERS = 4

DONE, NEED_QUEUE, NEED_FILE, NEED_GAP, SPECIAL, INDEX_FULL, BAD_RECORD, WRITE_FAILED, BLANK = range(9)

STOPS = ("end", "blank", "zero", "magic", "length", "crc", "offset", "short", "torn", "stale")


@final
cdef class Dispatch:
    """Follows the log. One caller at a time."""

    def __cinit__(self, list delays not None, bint multi_dispatch=False):
        cdef int i
        self.table_mask = 255
        self.table = <QueueState**> calloc(256, sizeof(QueueState*))
        self.dirty = <QueueState**> calloc(256, sizeof(QueueState*))
        if self.table == NULL or self.dirty == NULL:
            raise MemoryError()
        self.queues = {}
        self.last_offset = -1
        if len(delays) >= MAX_LEVELS:
            raise ValueError(f"more than {MAX_LEVELS - 1} delay levels")
        self.levels = <int32_t> len(delays)
        for i in range(self.levels):
            self.delays[i] = delays[i]
        self.multi_dispatch = multi_dispatch

    def __dealloc__(self):
        free(self.table)
        free(self.dirty)

    def use_index(self, Index index):
        """Put entries into this file from now on (None: keep no index)."""
        self.index = index

    def seek(self, int64_t offset):
        """Continue with the record at `offset`."""
        if self.dirty_count == 0 and self.waiting_head == self.waiting_tail:
            store_position(&self.visible_end, offset)
        self.position = offset
        self.queue_done = False
        self.key_stage = 0

    def add_queue(self, Queue queue not None):
        """Make a queue known; a run asked for it, or recovery loaded it."""
        cdef QueueState** old = self.table
        cdef QueueState** grown
        cdef QueueState** dirty
        cdef uint32_t i, old_mask = self.table_mask
        key = (queue.topic, queue.queue_id)
        if key in self.queues:
            raise ValueError(f"queue {queue.topic}-{queue.queue_id} is known already")
        if self.table_used * 2 > self.table_mask:
            grown = <QueueState**> calloc((old_mask + 1) * 2, sizeof(QueueState*))
            dirty = <QueueState**> calloc((old_mask + 1) * 2, sizeof(QueueState*))
            if grown == NULL or dirty == NULL:
                free(grown)
                free(dirty)
                raise MemoryError()
            for i in range(<uint32_t> self.dirty_count):
                dirty[i] = self.dirty[i]
            free(self.dirty)
            self.dirty = dirty
            self.table = grown
            self.table_mask = old_mask * 2 + 1
            for i in range(old_mask + 1):
                if old[i] != NULL:
                    self.insert(old[i])
            free(old)
        self.insert(queue.state)
        self.table_used += 1
        self.queues[key] = queue

    def knows(self, str topic not None, int queue_id):
        """Whether a queue was added."""
        return (topic, queue_id) in self.queues

    def follows(self, Queue queue not None):
        """Whether this very queue was added, and not another of its name."""
        return self.queues.get((queue.topic, queue.queue_id)) is queue

    def remove_queue(self, Queue queue not None):
        """Forget a queue that was deleted; nothing of it may be staged."""
        cdef QueueState* state
        if self.queues.pop((queue.topic, queue.queue_id), None) is None:
            return
        self.last = NULL
        for i in range(self.table_mask + 1):
            self.table[i] = NULL
        kept = list(self.queues.values())
        for other in kept:
            state = (<Queue> other).state
            self.insert(state)
        self.table_used = <uint32_t> len(kept)
        count = 0
        for i in range(self.dirty_count):
            if self.dirty[i] != queue.state:
                self.dirty[count] = self.dirty[i]
                count += 1
        self.dirty_count = count

    cdef void insert(self, QueueState* q) noexcept nogil:
        cdef uint32_t i = q.table_hash & self.table_mask
        while self.table[i] != NULL:
            i = (i + 1) & self.table_mask
        self.table[i] = q

    cdef QueueState* find(self, const uint8_t* topic, int32_t length, int32_t queue_id) noexcept nogil:
        cdef QueueState* q = self.last
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

    cdef int64_t tags_code(self, const uint8_t* topic, const Record* r, const Properties* properties) noexcept nogil:
        """Spec 9.2: the hash of the tags; for delayed messages the time of delivery."""
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

    cdef void want_entry(self, int32_t key_hash, int64_t offset, int64_t timestamp) noexcept nogil:
        cdef Entry* e = &self.waiting[self.waiting_tail & (WAITING - 1)]
        e.key_hash = key_hash
        e.offset = offset
        e.timestamp = timestamp
        prefetch_write(self.index.state.base + 40 + 4 * <int64_t> (e.key_hash % self.index.state.slots))
        self.waiting_tail += 1

    cdef void want_text(self, uint32_t text_hash, const Record* r) noexcept nogil:
        self.want_entry(index_hash(text_hash), r.physical_offset, r.store_timestamp)

    cdef bint put_entries(self, uint32_t keep) noexcept nogil:
        """Move waiting entries into the index until `keep` are left; False when it is full."""
        cdef Entry* e
        while self.waiting_tail - self.waiting_head > keep:
            e = &self.waiting[self.waiting_head & (WAITING - 1)]
            if not index_put(&self.index.state, e.key_hash, e.offset, e.timestamp):
                return False
            self.waiting_head += 1
        return True

    cdef bint room(self) noexcept nogil:
        """Room for one more waiting entry; the oldest ones, whose slots have arrived, make it."""
        return self.waiting_tail - self.waiting_head < WAITING or self.put_entries(WAITING // 2)

    cdef bint want_keys(self, uint32_t prefix, const Record* r, const Properties* properties) noexcept nogil:
        """Queue the entries of one record in spec 10.4's order.

        False when the index is full; the next call goes on with the key that found no room.
        """
        cdef int32_t start
        cdef const uint8_t* p = properties.keys.at
        if self.key_stage == 0:
            if properties.unique_key.length > 0:
                if not self.room():
                    return False
                self.want_text(hash_text(prefix, properties.unique_key.at, properties.unique_key.length), r)
            self.key_stage = 1
            self.key_at = 0
        while self.key_stage == 1 and self.key_at < properties.keys.length:
            start = self.key_at
            while self.key_at < properties.keys.length and p[self.key_at] != 32:
                self.key_at += 1
            if self.key_at > start:
                if not self.room():
                    self.key_at = start
                    return False
                self.want_text(hash_text(prefix, p + start, self.key_at - start), r)
            self.key_at += 1
        self.key_stage = 2
        if properties.tags.length > 0:
            if not self.room():
                return False
            self.want_text(hash_text(hash_text(prefix, b"T#", 2), properties.tags.at, properties.tags.length), r)
        self.key_stage = 0
        return True

    cdef int flush_queues(self) noexcept nogil:
        cdef int code
        cdef QueueState* q
        while self.dirty_count > 0:
            q = self.dirty[self.dirty_count - 1]
            code = queue_flush(q)
            if code != QUEUE_OK:
                self.needed = q
                if code == QUEUE_FILE:
                    return C_NEED_FILE
                self.error = -code
                return C_WRITE_FAILED
            q.dirty = False
            self.dirty_count -= 1
        return C_DONE

    cdef bint is_special(self, const QueueState* q, const Record* r, const Properties* properties) noexcept nogil:
        """Whether only Python can put the record into its queue."""
        return q.special or r.sys_flag & SYS_INNER_BATCH or (self.multi_dispatch and properties.multi_dispatch.length > 0)

    cdef int stage(
        self, QueueState* q, int64_t offset, int32_t size, int64_t tags, int64_t queue_offset, int64_t timestamp
    ) noexcept nogil:
        """Take the unit of a record; units that wait are written if there is no room."""
        cdef int code = queue_stage(q, offset, size, tags, queue_offset)
        if code == QUEUE_FULL:
            code = queue_flush(q)
            if code == QUEUE_OK:
                code = queue_stage(q, offset, size, tags, queue_offset)
        if code != QUEUE_OK:
            self.needed = q
            if code == QUEUE_FILE:
                return C_NEED_FILE
            if code == QUEUE_GAP:
                return C_NEED_GAP
            self.error = -code if code < 0 else 0
            return C_WRITE_FAILED
        q.last_store_timestamp = timestamp
        if q.staged and not q.dirty:
            q.dirty = True
            self.dirty[self.dirty_count] = q
            self.dirty_count += 1
        return C_DONE

    cdef void passed(self, int64_t offset, int32_t size, int64_t timestamp) noexcept nogil:
        """A record is dispatched: the next one lies behind it."""
        self.queue_done = False
        self.last_offset = offset
        self.last_timestamp = timestamp
        self.position = offset + size
        self.records += 1

    cdef int step(self, const uint8_t* p, int64_t available, int checks) noexcept nogil:
        """Dispatch the record at `p`; C_DONE moves `position` past it."""
        cdef Properties properties
        cdef QueueState* q
        cdef Record* r = &self.record
        cdef int code, kind
        cdef uint32_t prefix
        code = parse_record(p, available, r)
        if code == REC_OK and checks:
            code = check_record(p, r, self.position, checks)
        if code == REC_BLANK:
            return C_BLANK
        if code != REC_OK:
            self.reason = code
            return C_BAD_RECORD
        scan_properties(p + r.properties_at, r.properties_length, &properties)
        # The record's own offset is what Java indexes; a record that lies elsewhere was refused above.
        r.physical_offset = self.position
        kind = r.sys_flag & SYS_TRANSACTION
        q = self.find(p + r.topic_at, r.topic_length, r.queue_id)
        if not self.queue_done and kind != SYS_PREPARED and kind != SYS_ROLLBACK:
            if q == NULL:
                return C_NEED_QUEUE
            if self.is_special(q, r, &properties):
                self.needed = q
                return C_SPECIAL
            if checks & CHECK_TORN and r.physical_offset >= q.max_physical \
                    and r.queue_offset * 20 < (q.staged_from + q.staged * 20 if q.staged else q.max_logic):
                # Its place in the queue belongs to an earlier record: a leftover behind the real end of the log.
                self.reason = 9
                return C_BAD_RECORD
            code = self.stage(
                q, r.physical_offset, r.size, self.tags_code(p + r.topic_at, r, &properties), r.queue_offset, r.store_timestamp
            )
            if code != C_DONE:
                return code
        self.queue_done = True
        if self.indexing and self.position >= self.index_from and kind != SYS_ROLLBACK \
                and properties.keys.length + properties.tags.length + properties.unique_key.length > 0:
            if self.index is None:
                return C_INDEX_FULL
            if q != NULL:
                prefix = q.key_prefix_hash
            else:
                prefix = hash_text(hash_text(0, p + r.topic_at, r.topic_length), b"#", 1)
            if not self.want_keys(prefix, r, &properties):
                return C_INDEX_FULL
        self.passed(self.position, r.size, r.store_timestamp)
        return C_DONE

    def run(
        self, const uint8_t[::1] buffer not None, int64_t base_offset, int64_t end, bint checked=False, bint flush=True,
        bint body_crc=True, bint property_crc=False,
    ):
        """Dispatch records from `position` to `end`; the buffer's first byte has physical offset `base_offset`.

        Answers DONE, BLANK (position is at it), or what is needed before the same call can go on.
        `checked` verifies CRC, offset and tears of each record on the way, as recovery must; `property_crc` the CRC of
        the whole record instead of its body's.
        """
        cdef int code = C_DONE, flushed
        cdef int64_t limit = base_offset + buffer.shape[0]
        cdef int checks = CHECK_OFFSET
        cdef const uint8_t* p
        if checked:
            checks |= CHECK_TORN | (CHECK_CRC if body_crc else 0) | (CHECK_PROPERTY_CRC if property_crc else 0)
        if end < limit:
            limit = end
        if self.position < base_offset:
            raise ValueError("the run starts behind the position")
        if buffer.shape[0] == 0 or self.position >= limit:
            with nogil:
                code = self.finish(C_DONE) if flush else C_DONE
            return code
        p = &buffer[0]
        with nogil:
            while self.position < limit:
                code = self.step(p + (self.position - base_offset), limit - self.position, checks)
                if code != C_DONE:
                    break
            if flush or code != C_DONE:
                code = self.finish(code)
        return code

    def follow(self, Mapping mapping not None, Flusher flusher not None, Signal arrived not None, bint flushed_only, int naps):
        """Dispatch what appears in one file, napping a little while nothing does; answers as `run`.

        DONE: nothing came for `naps` naps, 20 ms have passed, or the file is read to its end. Never needs the
        interpreter lock.
        """
        cdef FileState* f = &mapping.state
        cdef int code = C_DONE, idle = 0
        cdef int64_t end, limit = f.file_from + f.size, before, until = steady_ns() + 20000000
        if self.position < f.file_from or self.position > limit:
            raise ValueError("the position is not in this file")
        mapping.pin()
        try:
            with nogil:
                while self.position < limit:
                    end = f.file_from + read_position(f)
                    if flushed_only and load_position(&flusher.flushed) < end:
                        end = load_position(&flusher.flushed)
                    if self.position >= end:
                        if idle >= naps or steady_ns() > until:
                            break
                        idle += 1
                        usleep(200)
                        continue
                    idle = 0
                    before = self.position
                    while self.position < end:
                        code = self.step(f.base + (self.position - f.file_from), end - self.position, CHECK_OFFSET)
                        if code != C_DONE:
                            break
                    code = self.finish(code)
                    if self.position > before:
                        arrived.notify_fast()
                    if code != C_DONE or steady_ns() > until:
                        break
                    if naps:
                        self.gather(arrived, self.position - before)
        finally:
            mapping.unpin()
        return code

    cdef void gather(self, Signal arrived, int64_t run) noexcept nogil:
        """Let more records come after a run of so many bytes: each costs a write for every queue that it touches.

        Whoever sleeps until messages arrive waits for one nap at most.
        """
        cdef int nap = 0
        if run < (SMALL_RUN if load_int(&arrived.sleeping) else LONG_RUN):
            usleep(GATHER_US)
            for nap in range(1, GATHERS):
                if load_int(&arrived.sleeping):
                    return
                usleep(GATHER_US)

    cdef int finish(self, int code) noexcept nogil:
        """Everything dispatched so far becomes visible, unless that needs help too."""
        cdef int flushed = self.flush_queues()
        if self.index is not None:
            if not self.put_entries(0):
                if flushed == C_DONE:
                    flushed = C_INDEX_FULL
            index_store_header(&self.index.state)
        if flushed == C_DONE:
            store_position(&self.visible_end, self.position)
        return flushed if flushed != C_DONE else code

    @property
    def visible(self):
        """Everything before this offset can be read and found: its units and entries are written."""
        return load_position(&self.visible_end)

    @property
    def is_settled(self):
        """Whether everything that was dispatched is written: no unit and no entry waits."""
        return self.dirty_count == 0 and self.waiting_head == self.waiting_tail and not self.queue_done

    def queue_part_done(self):
        """The unit of the current record was put by the caller: go on with its index entries."""
        self.queue_done = True

    def clear_dirty(self):
        """Forget staged units (their queues are about to be truncated)."""
        cdef int32_t i
        for i in range(self.dirty_count):
            self.dirty[i].dirty = False
            self.dirty[i].staged = 0
        self.dirty_count = 0

    @property
    def needed_queue(self):
        """The queue the last answer speaks of."""
        cdef QueueState* q = self.needed
        if q == NULL:
            return None
        return self.queues[q.topic[:q.topic_length].decode(), q.queue_id]

    @property
    def entries_waiting(self):
        return self.waiting_tail - self.waiting_head

    @property
    def bad_reason(self):
        return STOPS[self.reason]

    @property
    def record_size(self):
        return self.record.size

    @property
    def record_queue_offset(self):
        return self.record.queue_offset

    @property
    def record_queue_id(self):
        return self.record.queue_id

    @property
    def record_topic_span(self):
        """(position in the record, length) of the current record's topic."""
        return self.record.topic_at, self.record.topic_length
