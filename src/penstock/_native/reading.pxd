from libc.stdint cimport int32_t, int64_t

from penstock._native.stored cimport Slab, StoredMessage

cdef struct Place:
    int64_t position
    int64_t queue_offset
    int32_t size
    int32_t slab

cdef class GetResult:
    cdef readonly str status
    cdef readonly int64_t next_begin_offset
    cdef readonly int64_t min_offset
    cdef readonly int64_t max_offset
    cdef readonly int64_t buffer_size         # bytes of all records
    cdef readonly int64_t message_count       # differs from len() when records hold inner batches
    cdef readonly bint suggest_slave
    cdef Place* places
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef list slabs
    cdef StoredMessage message(self, Py_ssize_t i)
    cdef int add(self, Slab slab, int64_t position, int32_t size, int64_t queue_offset) except -1
