"""Which records of a log become rows."""

from cython cimport final
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from penstock._native.record cimport Properties, Record, Span

cdef enum:  # answers of `Selection.judge`
    TAKE = 0
    LEAVE = 1
    ASK = 2                # a topic that was not met before: Python has to say whether it is wanted

cdef struct Wanted:
    uint8_t* topic
    int32_t topic_length
    int32_t queue_id       # -1: every queue of the topic
    uint32_t hash
    bint accepted
    int64_t start          # queue offsets [start, end)
    int64_t end
    int64_t low            # physical offsets [low, high): where the queue's units point to
    int64_t high
    int64_t next           # queue offset behind the last record that was taken
    int64_t taken

@final
cdef class Selection:
    cdef Wanted* entries
    cdef int32_t count
    cdef int32_t capacity
    cdef int32_t* table    # open addressing, a power of two long, at most half full; -1: free
    cdef uint32_t mask
    cdef bint listed       # queues that are not listed are left out
    cdef bint by_topic     # topics that are not listed are left out
    cdef bint queued       # only what a dispatcher puts into queues
    cdef bint has_queues
    cdef object matches
    cdef Span* tags
    cdef int32_t tag_count
    cdef Span* keys
    cdef int32_t key_count
    cdef bint want_properties
    cdef int64_t since
    cdef int64_t until
    cdef list kept         # texts that the spans point into
    cdef int32_t last
    cdef Wanted* found     # of the record that was judged last; NULL without a list of queues
    cdef int put(self, bytes topic, int32_t queue_id, bint accepted, int64_t start, int64_t end, int64_t low, int64_t high) except -1
    cdef int rehash(self) except -1
    cdef int32_t find(self, const uint8_t* topic, int32_t length, int32_t queue_id) noexcept nogil
    cdef int judge(self, const uint8_t* p, const Record* r, int64_t offset, Properties* properties) noexcept nogil
    cdef int ask(self, const uint8_t* p, const Record* r) except -1
    cdef void took(self, int64_t queue_offset) noexcept nogil
