"""One queue, as a pass that verifies the log sees it."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef struct CheckedState:
    uint8_t* topic
    int32_t topic_length
    int32_t queue_id
    uint32_t table_hash
    uint32_t prefix_hash
    int64_t first             # queue offset of the first record seen, -1 before it
    int64_t next              # queue offset that the next record should have
    int64_t window_from       # queue offset of the first unit in `units`
    int64_t window_count
    uint8_t* units
    int64_t capacity
    int64_t checked           # units that were there and right, or told of
    int64_t missing           # records without a unit
    int64_t first_missing
    void* owner               # the CheckedQueue; borrowed, the checker keeps it
    bint ended                # the file holds no more units
    bint special              # units of this queue are Python's to check

cdef class CheckedQueue:
    cdef CheckedState state
    cdef readonly str topic
    cdef readonly int queue_id
