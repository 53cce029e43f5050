"""The native side of one consume queue: its next offset for the writer, its units for the dispatcher."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from penstock._native.filestate cimport FileState

cdef enum:
    UNIT = 20
    STAGE_LIMIT = 512

cdef enum:  # answers of stage and flush
    QUEUE_OK = 0
    QUEUE_FULL = 1       # staged units must be written first
    QUEUE_FILE = 2       # the file of the staged units is not attached
    QUEUE_GAP = 3        # the unit does not follow the last one: blanks are needed before it

cdef struct QueueState:
    int64_t next_offset      # append side; the put lock guards it
    int64_t max_physical     # end of the last record whose unit is staged or written, -1 if none
    int64_t min_logic        # first valid unit, in bytes
    int64_t max_logic        # end of the units that readers may see
    int64_t staged_from
    int32_t staged
    int32_t capacity
    uint8_t* units
    int64_t file_size
    FileState file
    bint attached
    bint special             # batch queue, extension file: its records are dispatched from Python
    bint dirty
    bint unsynced
    int32_t queue_id
    int32_t topic_length
    uint8_t* topic
    uint32_t table_hash
    uint32_t key_prefix_hash # Java hash of "<topic>#"
    int64_t last_store_timestamp
    int write_error
    void* owner              # the Queue, borrowed

cdef class Queue:
    cdef QueueState* state
    cdef readonly str topic
    cdef readonly int queue_id
    cdef object file         # keeps descriptor or memory of `state.file` alive

cdef uint32_t queue_hash(const uint8_t* topic, int32_t length, int32_t queue_id) noexcept nogil
cdef int queue_stage(QueueState* q, int64_t offset, int32_t size, int64_t tags, int64_t queue_offset) noexcept nogil
cdef int queue_flush(QueueState* q) noexcept nogil
