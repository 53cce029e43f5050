from libc.stdint cimport int64_t

from penstock._native.append cimport Appender
from penstock._native.encode cimport Buffer
from penstock._native.putresult cimport PutResult

cdef class Group:
    cdef list futures
    cdef list results                 # of the futures, in the same order
    cdef int64_t end                  # of the last record
    cdef Group next

cdef class LoopWaiters:
    cdef readonly object loop
    cdef Appender appender
    cdef object create_future
    cdef object is_running
    cdef object ask_later             # bound `ask`
    cdef bint asking                  # it is scheduled
    cdef Group first                  # in the log, on their way to the disk
    cdef Group last
    cdef Group gathered               # not in the log yet
    cdef Buffer records               # of `gathered`, in the same order
    cdef int64_t forgets              # of the encoder, when the first of them was encoded
    cdef int64_t now                  # store time of them all, -1: the system's clock
    cdef object put(self, object message, int64_t now)
    cdef bint has_room(self) noexcept
    cdef int ask_once(self) except -1
    cdef void join(self, Group group) noexcept
    cdef int place(self) except -1
    cdef object append(self, int64_t* done)
    cdef int complete(self) except -1

cdef class LoopPuts:
    cdef Appender appender
    cdef object find_waiters          # () -> LoopWaiters of the running loop
    cdef LoopWaiters waiters          # those of the last put, and the thread it came from
    cdef unsigned long waiters_thread
    cdef LoopWaiters loop_waiters(self)
