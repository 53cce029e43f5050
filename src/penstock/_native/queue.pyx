"""Consume queue units on their way to the file: staged in memory, written in runs, published last."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from penstock._native.endian cimport put32, put64
from penstock._native.filestate cimport load_position, state_write, store_position
from penstock._native.record cimport hash_text


cdef uint32_t queue_hash(const uint8_t* topic, int32_t length, int32_t queue_id) noexcept nogil:
    cdef uint32_t h = hash_text(0, topic, length) * 31u + <uint32_t> queue_id
    h ^= h >> 15
    h *= 0x85EBCA6Bu
    return h ^ (h >> 13)


cdef int queue_stage(QueueState* q, int64_t offset, int32_t size, int64_t tags, int64_t queue_offset) noexcept nogil:
    """Take one unit (spec 9.4). A record that is behind the last one, or whose place is taken, is a duplicate."""
    cdef int64_t place = queue_offset * UNIT
    cdef int64_t end
    cdef uint8_t* grown
    cdef uint8_t* at
    if offset + size <= q.max_physical:
        return QUEUE_OK
    end = q.staged_from + q.staged * UNIT if q.staged else q.max_logic
    if place < end:
        return QUEUE_OK
    if place > end:
        return QUEUE_GAP
    if q.staged and (q.staged == STAGE_LIMIT or q.staged_from // q.file_size != place // q.file_size):
        return QUEUE_FULL
    if q.staged == q.capacity:
        grown = <uint8_t*> realloc(q.units, (q.capacity * 2 if q.capacity else 16) * UNIT)
        if grown == NULL:
            return QUEUE_FULL
        q.units = grown
        q.capacity = q.capacity * 2 if q.capacity else 16
    if q.staged == 0:
        q.staged_from = place
    at = q.units + q.staged * UNIT
    put64(at, offset)
    put32(at + 8, size)
    put64(at + 12, tags)
    q.staged += 1
    q.max_physical = offset + size
    return QUEUE_OK


cdef int queue_flush(QueueState* q) noexcept nogil:
    """Write the staged units and publish them; on an error they stay staged and the next call tries again."""
    cdef int code
    cdef int64_t file_from
    if q.staged == 0:
        return QUEUE_OK
    file_from = q.staged_from - q.staged_from % q.file_size
    if not q.attached or q.file.file_from != file_from:
        return QUEUE_FILE
    code = state_write(&q.file, q.staged_from - file_from, q.units, q.staged * UNIT)
    if code != 0:
        q.write_error = -code
        return code
    q.write_error = 0
    q.unsynced = True
    store_position(&q.max_logic, q.staged_from + q.staged * UNIT)
    q.staged = 0
    return QUEUE_OK


cdef class Queue:
    """One (topic, queue id): counters shared by the writer, the dispatcher and readers."""

    def __cinit__(self, str topic not None, int queue_id, int64_t file_size):
        cdef bytes encoded = topic.encode()
        self.state = <QueueState*> calloc(1, sizeof(QueueState))
        if self.state == NULL:
            raise MemoryError()
        self.topic = topic
        self.queue_id = queue_id
        self.state.topic_length = <int32_t> len(encoded)
        self.state.topic = <uint8_t*> malloc(len(encoded) + 1)
        if self.state.topic == NULL:
            raise MemoryError()
        memcpy(self.state.topic, <const char*> encoded, len(encoded))
        self.state.topic[len(encoded)] = 35  # '#'
        self.state.key_prefix_hash = hash_text(0, self.state.topic, self.state.topic_length + 1)
        self.state.table_hash = queue_hash(self.state.topic, self.state.topic_length, queue_id)
        self.state.queue_id = queue_id
        self.state.max_physical = -1
        self.state.owner = <void*> self
        self.state.file_size = file_size
        self.state.file.fd = -1

    def __dealloc__(self):
        if self.state != NULL:
            free(self.state.topic)
            free(self.state.units)
            free(self.state)

    def attach(self, object file not None, int64_t file_from):
        """Write further units into `file` (a SparseFile whose first byte is at `file_from`)."""
        self.state.file.fd = file.fileno()
        self.state.file.writable = 1
        self.state.file.file_from = file_from
        self.state.file.size = self.state.file_size
        self.state.attached = True
        self.file = file

    def detach(self):
        """Forget the file; the dispatcher asks for it again when it needs it."""
        self.state.attached = False
        self.state.file.fd = -1
        self.file = None

    @property
    def attached_file(self):
        return self.file

    def put(self, int64_t offset, int32_t size, int64_t tags, int64_t queue_offset):
        """Stage one unit; the answers are those of queue_stage."""
        return queue_stage(self.state, offset, size, tags, queue_offset)

    def flush(self):
        """Write what is staged; the answers are those of queue_flush (a negative one is -errno)."""
        return queue_flush(self.state)

    def staged_bytes(self):
        """The staged units, for a caller that writes them itself."""
        return PyBytes_FromStringAndSize(<const char*> self.state.units, self.state.staged * UNIT)

    def staged_written(self):
        """The caller has written them: publish."""
        self.state.unsynced = True
        store_position(&self.state.max_logic, self.state.staged_from + self.state.staged * UNIT)
        self.state.staged = 0

    def drop_staged(self):
        self.state.staged = 0

    @property
    def staged_from(self):
        return self.state.staged_from if self.state.staged else self.state.max_logic

    @property
    def next_offset(self):
        return self.state.next_offset

    @next_offset.setter
    def next_offset(self, int64_t value):
        self.state.next_offset = value

    @property
    def max_physical(self):
        return self.state.max_physical

    @max_physical.setter
    def max_physical(self, int64_t value):
        self.state.max_physical = value

    @property
    def min_logic(self):
        return load_position(&self.state.min_logic)

    @min_logic.setter
    def min_logic(self, int64_t value):
        store_position(&self.state.min_logic, value)

    @property
    def max_logic(self):
        return load_position(&self.state.max_logic)

    @max_logic.setter
    def max_logic(self, int64_t value):
        store_position(&self.state.max_logic, value)

    @property
    def special(self):
        return self.state.special

    @special.setter
    def special(self, bint value):
        self.state.special = value

    @property
    def unsynced(self):
        return self.state.unsynced

    @unsynced.setter
    def unsynced(self, bint value):
        self.state.unsynced = value

    @property
    def last_store_timestamp(self):
        return self.state.last_store_timestamp

    @property
    def file_size(self):
        return self.state.file_size
