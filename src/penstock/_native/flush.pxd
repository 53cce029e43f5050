from libc.stdint cimport int64_t

from penstock._native.filestate cimport FileState
from penstock._native.signal cimport Signal
from penstock._native.threads cimport pthread_cond_t, pthread_mutex_t

cdef enum:
    FLUSH_FILES = 64
    FLUSH_WAKES = 64

cdef enum:
    FLUSHED = 0
    FLUSH_TIMED_OUT = 1
    FLUSH_FAILED = 2

cdef class Flusher:
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t done          # a sync ended
    cdef pthread_cond_t wanted        # the loop has something to do
    cdef FileState* files[FLUSH_FILES]
    cdef int file_count
    cdef list mappings                # keeps files[] alive
    cdef int64_t flushed
    cdef int64_t requested
    cdef int64_t syncs
    cdef int syncing
    cdef int failed
    cdef int stopping
    cdef int waiters
    cdef bint memory
    cdef int wakes[FLUSH_WAKES]
    cdef int wake_count
    cdef Signal visible
    cdef int wait_flushed(self, int64_t offset, int64_t timeout_ns) noexcept nogil
    cdef int sync_files(self) noexcept nogil
    cdef void finish_sync(self) noexcept nogil
    cdef void want(self, int64_t offset) noexcept nogil
