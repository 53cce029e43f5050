from libc.stdint cimport int32_t, int64_t

from penstock._native.encode cimport Buffer, Encoded
from penstock._native.queue cimport Queue

cdef class PutResult:
    cdef int code
    cdef readonly int64_t queue_offset
    cdef readonly int64_t physical_offset
    cdef readonly int64_t store_timestamp
    cdef readonly int32_t size
    cdef readonly int32_t message_num
    cdef Queue queue
    cdef bytes store_host
    cdef readonly str reason

cdef class PutResults:
    cdef Encoded* records
    cdef int32_t appended_count
    cdef Py_ssize_t count
    cdef dict failures            # index -> PutResult of a message that was refused
    cdef list order               # index -> place in records, only when something was refused
    cdef list alive               # queues and hosts that the records borrow
    cdef int code                 # of everything that was appended
    cdef void* held_queue         # the last ones that `alive` has got
    cdef void* held_host
    cdef int hold(self, const Encoded* e) except -1
    cdef int fail(self, Py_ssize_t index, PutResult result) except -1
    cdef int take(self, Buffer* b, int32_t done) except -1

cdef void set_place(PutResult result, const Encoded* e) noexcept
cdef PutResult appended(const Encoded* e)
cdef PutResult refused(int code, object reason)
