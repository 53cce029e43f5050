"""The native side of one index file (spec 10): a header, slots and chained entries in mapped memory."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from penstock._native.record cimport Span

cdef struct IndexState:
    uint8_t* base
    int32_t slots
    int32_t capacity
    int32_t count
    int32_t used_slots
    int64_t begin_timestamp
    int64_t end_timestamp
    int64_t begin_offset
    int64_t end_offset

cdef class Index:
    cdef IndexState state
    cdef object memory

cdef int32_t index_hash(uint32_t text_hash) noexcept nogil
cdef int32_t key_hashes(uint32_t prefix, Span unique, Span keys, Span tags, int32_t* out, int32_t most) noexcept nogil
cdef bint index_put(IndexState* s, int32_t key_hash, int64_t offset, int64_t timestamp) noexcept nogil
cdef void index_store_header(IndexState* s) noexcept nogil
