"""The dispatcher's own state: what stages units and queues index entries uses it too."""

from cython cimport final
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from penstock._native.index cimport Index
from penstock._native.queue cimport QueueState
from penstock._native.record cimport Properties, Record
from penstock._native.signal cimport Signal

cdef enum:
    WAITING = 64           # entries whose slots are being fetched; a power of two
    MAX_LEVELS = 64

cdef enum:
    C_DONE = 0
    C_NEED_QUEUE = 1
    C_NEED_FILE = 2
    C_NEED_GAP = 3
    C_SPECIAL = 4
    C_INDEX_FULL = 5
    C_BAD_RECORD = 6
    C_WRITE_FAILED = 7
    C_BLANK = 8

cdef struct Entry:
    int64_t offset
    int64_t timestamp
    int32_t key_hash


@final
cdef class Dispatch:
    cdef QueueState** table          # open addressing, a power of two long, at most half full
    cdef uint32_t table_mask
    cdef uint32_t table_used
    cdef QueueState** dirty          # queues with staged units
    cdef int32_t dirty_count
    cdef QueueState* last
    cdef dict queues                 # (topic, queue id) -> Queue: keeps the states alive
    cdef Index index
    cdef Entry waiting[WAITING]
    cdef uint32_t waiting_head
    cdef uint32_t waiting_tail
    cdef int64_t delays[MAX_LEVELS]
    cdef int32_t levels
    cdef bint queue_done             # the current record's unit is staged
    cdef int key_stage               # 0 unique key, 1 keys, 2 tags: where an index that was full stopped it
    cdef int32_t key_at
    cdef bint multi_dispatch
    cdef public bint indexing        # entries are wanted; without a file to put them in, INDEX_FULL asks for one
    cdef public int64_t index_from   # records before it are in the index already
    cdef readonly int64_t position   # offset of the next record
    cdef int64_t visible_end
    cdef public int64_t last_offset      # start of the last record dispatched, -1 before the first
    cdef public int64_t last_timestamp
    cdef readonly int64_t records
    cdef QueueState* needed
    cdef readonly int error
    cdef int reason
    cdef Record record

    cdef void insert(self, QueueState* q) noexcept nogil
    cdef QueueState* find(self, const uint8_t* topic, int32_t length, int32_t queue_id) noexcept nogil
    cdef bint is_special(self, const QueueState* q, const Record* r, const Properties* properties) noexcept nogil
    cdef int64_t tags_code(self, const uint8_t* topic, const Record* r, const Properties* properties) noexcept nogil
    cdef int stage(self, QueueState* q, int64_t offset, int32_t size, int64_t tags, int64_t queue_offset, int64_t timestamp) noexcept nogil
    cdef void want_entry(self, int32_t key_hash, int64_t offset, int64_t timestamp) noexcept nogil
    cdef void want_text(self, uint32_t text_hash, const Record* r) noexcept nogil
    cdef bint put_entries(self, uint32_t keep) noexcept nogil
    cdef bint room(self) noexcept nogil
    cdef bint want_keys(self, uint32_t prefix, const Record* r, const Properties* properties) noexcept nogil
    cdef void passed(self, int64_t offset, int32_t size, int64_t timestamp) noexcept nogil
    cdef int flush_queues(self) noexcept nogil
    cdef int step(self, const uint8_t* p, int64_t available, int checks) noexcept nogil
    cdef void gather(self, Signal arrived, int64_t run) noexcept nogil
    cdef int finish(self, int code) noexcept nogil
