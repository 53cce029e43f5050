from libc.stdint cimport int32_t, int64_t, uint8_t

from penstock._native.filestate cimport FileState
from penstock._native.record cimport Record

cdef class Slab:
    """Bytes that stay where they are while somebody holds this object."""
    cdef Py_buffer view
    cdef const uint8_t* base
    cdef readonly int64_t file_from
    cdef readonly int64_t length
    cdef bint open

cdef class StoredMessage:
    cdef Slab slab
    cdef const uint8_t* p
    cdef Record r
    cdef int64_t shown_queue_offset
    cdef dict parsed
    cdef str tags_text
    cdef str keys_text
    cdef str unique_text
    cdef str topic_text(self)
    cdef bytes body_bytes(self)
    cdef dict properties_map(self)

cdef StoredMessage stored_message(Slab slab, int64_t position, int64_t available, int64_t queue_offset)
