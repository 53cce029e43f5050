from libc.stdint cimport int64_t

from penstock._native.threads cimport pthread_cond_t, pthread_mutex_t

cdef class Signal:
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t condition
    cdef int sleeping
    cdef int64_t count
    cdef void notify_fast(self) noexcept nogil
    cdef void notify_all(self) noexcept nogil
