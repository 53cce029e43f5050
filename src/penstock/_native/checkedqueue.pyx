"""A queue whose units are compared with the records of the log. Plain twin: format.checkedqueue."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from penstock._native.queue cimport UNIT, queue_hash
from penstock._native.record cimport hash_text


cdef class CheckedQueue:
    """One queue, as the pass over the log sees it."""

    def __cinit__(self, str topic not None, int queue_id, bytes encoded not None, bint special=False):
        self.topic = topic
        self.queue_id = queue_id
        self.state.topic_length = <int32_t> len(encoded)
        self.state.topic = <uint8_t*> malloc(len(encoded) + 1)
        if self.state.topic == NULL:
            raise MemoryError()
        memcpy(self.state.topic, <const char*> encoded, len(encoded))
        self.state.topic[len(encoded)] = 35  # '#'
        self.state.prefix_hash = hash_text(0, self.state.topic, self.state.topic_length + 1)
        self.state.table_hash = queue_hash(self.state.topic, self.state.topic_length, queue_id)
        self.state.queue_id = queue_id
        self.state.first = self.state.next = -1
        self.state.first_missing = -1
        self.state.special = special
        self.state.owner = <void*> self

    def __dealloc__(self):
        free(self.state.topic)
        free(self.state.units)

    def set_units(self, const uint8_t[::1] units not None, int64_t queue_offset):
        """Units from a queue offset on; none: the queue has no more."""
        cdef int64_t count = units.shape[0] // UNIT
        cdef uint8_t* grown
        if count > self.state.capacity:
            grown = <uint8_t*> realloc(self.state.units, count * UNIT)
            if grown == NULL:
                raise MemoryError()
            self.state.units = grown
            self.state.capacity = count
        if count:
            memcpy(self.state.units, &units[0], count * UNIT)
        self.state.window_from = queue_offset
        self.state.window_count = count
        self.state.ended = count == 0

    @property
    def first(self):
        return self.state.first

    @property
    def next(self):
        return self.state.next

    @next.setter
    def next(self, int64_t value):
        self.state.next = value

    @property
    def checked(self):
        return self.state.checked

    @property
    def missing(self):
        return self.state.missing

    @property
    def first_missing(self):
        return self.state.first_missing

    @property
    def ended(self):
        """Whether the queue's files held no unit where one was asked for."""
        return bool(self.state.ended)

    def restore(self, int64_t first, int64_t next, int64_t checked, int64_t missing, int64_t first_missing, bint ended):
        """Be where another pass over an earlier part of the log left this queue."""
        self.state.first = first
        self.state.next = next
        self.state.checked = checked
        self.state.missing = missing
        self.state.first_missing = first_missing
        self.state.ended = ended
