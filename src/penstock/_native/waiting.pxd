from libc.stdint cimport int64_t

from penstock._native.flush cimport Flusher

cdef class Wait:
    cdef object future
    cdef object result
    cdef int64_t end
    cdef Wait next

cdef class LoopWaiters:
    cdef readonly object loop
    cdef Flusher flusher
    cdef object create_future
    cdef object is_running
    cdef object ask_later             # bound `ask`
    cdef Wait first
    cdef Wait last
    cdef int unasked
    cdef object add(self, int64_t end, object result)
    cdef int complete(self) except -1
